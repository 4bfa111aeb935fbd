"""Worker: CTranslate2 with the weights of a `transformer_tiny`, in an environment of its own; needs nothing of the zoo.

`python ctranslate2_worker.py WEIGHTS.npz TEXTS.json THREADS BATCH [exact]`; `WEIGHTS.npz` is what `benchmarks.decoding`
wrote. Of several batches of `BATCH` sentences as many are translated at a time as there are threads; 0 is one batch.
With `exact` each batch of sentences of about equal length gets as many symbols as its longest sentence has.
"""

import json
import sys
import tempfile

import ctranslate2
import numpy as np
from turns import serve

SPECIAL = ["<blank>", "<s>", "</s>", "<unk>"]  # ids 0 to 3 of the zoo's tokenizers
# Its length penalty is another formula; without one both rank alike.
OPTIONS = {"length_penalty": 0, "suppress_sequences": [["<s>"], ["<blank>"]]}


def linear(spec, weights, *names):
    spec.weight = np.ascontiguousarray(np.concatenate([weights[f"{name}/kernel"] for name in names], axis=1).T)
    spec.bias = np.concatenate([weights[f"{name}/bias"] for name in names])


def norm(spec, weights, name):
    spec.gamma, spec.beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]


def feed_forward(spec, weights, block):
    norm(spec.layer_norm, weights, f"{block}/feed_forward_norm")
    linear(spec.linear_0, weights, f"{block}/feed_forward/intermediate")
    linear(spec.linear_1, weights, f"{block}/feed_forward/output")


def self_attention(spec, weights, block, name):
    norm(spec.layer_norm, weights, f"{block}/{name}_norm")
    linear(spec.linear[0], weights, *(f"{block}/{name}/{part}" for part in ("query", "key", "value")))
    linear(spec.linear[1], weights, f"{block}/{name}/output")


def cross_attention(spec, weights, block):
    name = f"{block}/cross_attention"
    norm(spec.layer_norm, weights, f"{name}_norm")
    linear(spec.linear[0], weights, f"{name}/query")
    linear(spec.linear[1], weights, f"{name}/key", f"{name}/value")
    linear(spec.linear[2], weights, f"{name}/output")


def convert(weights, folder):
    """Writes a CTranslate2 model with the weights of a pre-norm Transformer whose embeddings are all tied."""
    layers, heads = int(weights["layers"]), int(weights["heads"])
    spec = ctranslate2.specs.TransformerSpec.from_config(
        (layers, layers), heads, pre_norm=True, activation=ctranslate2.specs.Activation.RELU
    )
    embeddings = weights["target_embedding/embeddings"]
    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        embedding = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embedding.weight, stack.scale_embeddings = embeddings, True
        stack.position_encodings.encodings = weights["positions"]
        norm(stack.layer_norm, weights, f"{side}_norm")
        for number, layer in enumerate(stack.layer):
            block = f"{side}_block_{number}"
            self_attention(layer.self_attention, weights, block, "attention" if side == "encoder" else "self_attention")
            if side == "decoder":
                cross_attention(layer.attention, weights, block)
            feed_forward(layer.ffn, weights, block)
    spec.decoder.projection.weight = embeddings
    spec.decoder.projection.bias = np.zeros(len(embeddings), "float32")
    symbols = [*SPECIAL, *(f"s{number}" for number in range(len(SPECIAL), len(embeddings)))]
    spec.register_source_vocabulary(symbols)
    spec.register_target_vocabulary(symbols)
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.decoder_start_token = "<s>"
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(folder)
    return symbols


def make_translate(translator, source, batch):
    """Returns a function from the size of the beam to the results of all sentences, in their order."""

    def translate(beam):
        return translator.translate_batch(source, beam_size=beam, max_batch_size=batch, **OPTIONS)

    return translate


def make_exact(translator, source, batch):
    """Returns what `make_translate` does, with lengths that are prescribed and checked, and results by length."""
    ordered, batch = sorted(source, key=len), batch or len(source)
    rows = [ordered[start : start + batch] for start in range(0, len(ordered), batch)][::-1]  # the longest first

    def translate(beam):
        begun = [
            translator.translate_batch(
                each,
                beam_size=beam,
                asynchronous=True,
                min_decoding_length=len(each[-1]),
                max_decoding_length=len(each[-1]),
                **OPTIONS,
            )
            for each in rows
        ]
        found = [[answer.result() for answer in answers] for answers in begun]
        for each, results in zip(rows, found, strict=True):
            lengths = {len(result.hypotheses[0]) for result in results}
            if lengths != {len(each[-1])}:
                raise ValueError(f"{len(each[-1])} symbols were to be found. Received: {lengths}.")
        return [result for results in found for result in results]

    return translate


def main():
    weights, texts, *counts = sys.argv[1:]
    exact = counts[2:] == ["exact"]
    threads, batch = map(int, counts[:2])
    texts = json.loads(open(texts, encoding="utf-8").read())
    with tempfile.TemporaryDirectory() as folder:
        symbols = convert(np.load(weights), folder)
        parallel = {"inter_threads": threads, "intra_threads": 1} if batch else {"intra_threads": threads}
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", **parallel)
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    source = [[symbols[number] for number in row] for row in texts]
    translate = (make_exact if exact else make_translate)(translator, source, batch)

    def tell(results):
        ids = [[numbers[symbol] for symbol in result.hypotheses[0]] for result in results]
        return {"ids": ids, "versions": {"ctranslate2": ctranslate2.__version__}}

    serve(translate, tell)


if __name__ == "__main__":
    main()
