"""CTranslate2 with the weights of a `transformer_tiny`.

Several batches are translated at the same time, a thread for each; a `batch` of 0 is one batch, with all threads.
"""

import tempfile
from pathlib import Path

import ctranslate2
import numpy as np

from benchmarks.peers.batches import read_ids, serve_after_warm_up, serve_one_by_one

SPECIAL = ["<blank>", "<s>", "</s>", "<unk>"]  # ids 0 to 3 of this library's tokenizers
# Its formula of the length penalty differs from ours; without one the ranking is the same.
OPTIONS = {"length_penalty": 0, "suppress_sequences": [["<s>"], ["<blank>"]]}


class Converter:
    """Copies the weights of a pre-norm Transformer with one matrix of embeddings into a model of CTranslate2."""

    def __init__(self, weights):
        self.weights = weights

    def linear(self, spec, *names):
        """Copies one projection, or several as one."""
        spec.weight = np.ascontiguousarray(np.concatenate([self.weights[f"{name}/kernel"] for name in names], axis=1).T)
        spec.bias = np.concatenate([self.weights[f"{name}/bias"] for name in names])

    def norm(self, spec, name):
        spec.gamma, spec.beta = self.weights[f"{name}/gamma"], self.weights[f"{name}/beta"]

    def block(self, layer, block, is_decoder):
        own = f"{block}/{'self_attention' if is_decoder else 'attention'}"
        self.norm(layer.self_attention.layer_norm, f"{own}_norm")
        self.linear(layer.self_attention.linear[0], *(f"{own}/{role}" for role in ("query", "key", "value")))
        self.linear(layer.self_attention.linear[1], f"{own}/output")
        if is_decoder:
            cross = f"{block}/cross_attention"
            self.norm(layer.attention.layer_norm, f"{cross}_norm")
            self.linear(layer.attention.linear[0], f"{cross}/query")
            self.linear(layer.attention.linear[1], f"{cross}/key", f"{cross}/value")
            self.linear(layer.attention.linear[2], f"{cross}/output")
        self.norm(layer.ffn.layer_norm, f"{block}/feed_forward_norm")
        self.linear(layer.ffn.linear_0, f"{block}/feed_forward/intermediate")
        self.linear(layer.ffn.linear_1, f"{block}/feed_forward/output")

    def save(self, folder):
        """Writes the model; returns its tokens."""
        layers, heads = int(self.weights["layers"]), int(self.weights["heads"])
        spec = ctranslate2.specs.TransformerSpec.from_config(
            (layers, layers), heads, pre_norm=True, activation=ctranslate2.specs.Activation.RELU
        )
        embeddings = self.weights["target_embedding/embeddings"]
        for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
            embedding = stack.embeddings[0] if side == "encoder" else stack.embeddings
            embedding.weight, stack.scale_embeddings = embeddings, True
            stack.position_encodings.encodings = self.weights["positions"]
            self.norm(stack.layer_norm, f"{side}_norm")
            for number, layer in enumerate(stack.layer):
                self.block(layer, f"{side}_block_{number}", side == "decoder")
        spec.decoder.projection.weight = embeddings
        spec.decoder.projection.bias = np.zeros(len(embeddings), "float32")
        tokens = [*SPECIAL, *(f"s{number}" for number in range(len(SPECIAL), len(embeddings)))]
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        spec.config.add_source_bos = spec.config.add_source_eos = False
        spec.config.decoder_start_token = "<s>"
        spec.validate()
        spec.optimize(quantization=None)
        spec.save(folder)
        return tokens


def translate_exactly(translator, source, batch, beam):
    """Returns the results by length; each batch must have as many tokens as its longest sentence."""
    ordered, batch = sorted(source, key=len), batch or len(source)
    groups = [ordered[start : start + batch] for start in range(0, len(ordered), batch)][::-1]  # the longest first
    pending = []
    for sentences in groups:
        limits = {"min_decoding_length": len(sentences[-1]), "max_decoding_length": len(sentences[-1])}
        options = {"beam_size": beam, "asynchronous": True, **limits, **OPTIONS}
        pending.append(translator.translate_batch(sentences, **options))
    translated = [[translation.result() for translation in group] for group in pending]
    for sentences, results in zip(groups, translated, strict=True):
        lengths = {len(result.hypotheses[0]) for result in results}
        if lengths != {len(sentences[-1])}:
            raise ValueError(f"Expected {len(sentences[-1])} tokens. Received: {lengths}.")
    return [result for results in translated for result in results]


def search(channel):
    """Translates the sentences of `ids.json` with the weights of `weights.npz`, both in the `folder` of the task."""
    task, base = channel.task, Path(channel.task["folder"])
    with tempfile.TemporaryDirectory() as folder:
        tokens = Converter(np.load(base / "weights.npz")).save(folder)
        threads = {"inter_threads": task["threads"], "intra_threads": 1}
        threads = threads if task["batch"] else {"intra_threads": task["threads"]}
        kind = task.get("compute_type", "float32")
        translator = ctranslate2.Translator(folder, device="cpu", compute_type=kind, **threads)
    numbers = {token: number for number, token in enumerate(tokens)}
    source = [[tokens[number] for number in row] for row in read_ids(task)]

    def translate():
        if task["exact_steps"]:
            return translate_exactly(translator, source, task["batch"], task["beam"])
        options = OPTIONS | {"length_penalty": task.get("length_penalty", OPTIONS["length_penalty"])}
        return translator.translate_batch(source, beam_size=task["beam"], max_batch_size=task["batch"], **options)

    def describe(results):
        return {"ids": [[numbers[token] for token in result.hypotheses[0]] for result in results]}

    if task.get("one_by_one"):
        one = lambda row: translator.translate_batch([row], beam_size=task["beam"], **OPTIONS)[0]  # noqa: E731
        serve_one_by_one(channel, one, source, ["ctranslate2"], describe)
    serve_after_warm_up(channel, translate, describe, ["ctranslate2"])
