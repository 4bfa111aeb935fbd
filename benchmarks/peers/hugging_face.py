"""Hugging Face's Marian, on PyTorch, and M2M100 with the weights of a pre-norm `transformer_tiny`."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import M2M100Config, M2M100ForConditionalGeneration, MarianConfig, MarianMTModel

from benchmarks.peers import pytorch
from benchmarks.peers.batches import (
    END,
    PAD,
    START,
    padded,
    read_ids,
    serve_after_warm_up,
    serve_one_by_one,
    serve_search,
)

PACKAGES = ("transformers", "torch")


class Translator(nn.Module):
    """Marian's post-norm encoder and decoder with one matrix for all embeddings and the output."""

    def __init__(self, task):
        super().__init__()
        sides = ("encoder", "decoder")
        config = MarianConfig(
            vocab_size=task["vocabulary"],
            d_model=task["dim"],
            **{f"{side}_layers": task["layers"] for side in sides},
            **{f"{side}_attention_heads": task["heads"] for side in sides},
            **{f"{side}_ffn_dim": task["hidden"] for side in sides},
            dropout=task["dropout"],
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            init_std=task["dim"] ** -0.5,
            scale_embedding=True,
            max_position_embeddings=256,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=START,
            use_cache=False,
        )
        self.model = MarianMTModel._from_config(config, attn_implementation="sdpa")

    def forward(self, source, target):
        return self.model(input_ids=source, attention_mask=source != PAD, decoder_input_ids=target).logits


def train(channel):
    pytorch.train(channel, Translator, PACKAGES)


def search(channel):
    """Searches with `generate`."""
    pytorch.prepare(channel.task)
    model = Translator(channel.task).eval().model
    # Excluding an end at each step would cost a pass over all logits.
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    model.config.eos_token_id = None

    @torch.inference_mode()
    def generate(source):
        source = torch.tensor(source, dtype=torch.long)
        options = {"num_beams": channel.task["beam"], "do_sample": False, "use_cache": True, "length_penalty": 0.0}
        options |= {"min_new_tokens": source.shape[1], "max_new_tokens": source.shape[1]}
        return model.generate(input_ids=source, attention_mask=(source != PAD).long(), **options)[:, 1:]

    serve_search(channel, generate, pytorch.number_of_weights(model), PACKAGES, end=None)


def trained(file):
    """Returns M2M100 with the weights that `benchmarks.decoding.write_weights` wrote."""
    weights = dict(np.load(file))
    layers, heads, embeddings = int(weights["layers"]), int(weights["heads"]), weights["target_embedding/embeddings"]
    hidden = weights["encoder_block_0/feed_forward/intermediate/bias"].size
    sides = ("encoder", "decoder")
    config = M2M100Config(
        vocab_size=len(embeddings),
        d_model=embeddings.shape[1],
        **{f"{side}_layers": layers for side in sides},
        **{f"{side}_attention_heads": heads for side in sides},
        **{f"{side}_ffn_dim": hidden for side in sides},
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=len(weights["positions"]),
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        decoder_start_token_id=START,
    )
    model = M2M100ForConditionalGeneration._from_config(config, attn_implementation="sdpa").eval()
    state = {"model.shared.weight": embeddings, "lm_head.weight": embeddings}

    def linear(name, ours):
        state[f"{name}.weight"], state[f"{name}.bias"] = weights[f"{ours}/kernel"].T, weights[f"{ours}/bias"]

    def norm(name, ours):
        state[f"{name}.weight"], state[f"{name}.bias"] = weights[f"{ours}/gamma"], weights[f"{ours}/beta"]

    for side in sides:
        norm(f"model.{side}.layer_norm", f"{side}_norm")
        state[f"model.{side}.embed_tokens.weight"] = embeddings
        kinds = {"self_attn": "attention" if side == "encoder" else "self_attention"}
        kinds |= {"encoder_attn": "cross_attention"} if side == "decoder" else {}
        for number in range(layers):
            theirs, ours = f"model.{side}.layers.{number}", f"{side}_block_{number}"
            for name, kind in kinds.items():
                norm(f"{theirs}.{name}_layer_norm", f"{ours}/{kind}_norm")
                for role, part in {"q": "query", "k": "key", "v": "value", "out": "output"}.items():
                    linear(f"{theirs}.{name}.{role}_proj", f"{ours}/{kind}/{part}")
            norm(f"{theirs}.final_layer_norm", f"{ours}/feed_forward_norm")
            linear(f"{theirs}.fc1", f"{ours}/feed_forward/intermediate")
            linear(f"{theirs}.fc2", f"{ours}/feed_forward/output")
    model.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
    positions = torch.tensor(weights["positions"])
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weights[PAD + 1 : PAD + 1 + len(positions)] = positions
    return model


def translate(channel):
    """Translates the sentences of `ids.json` with the weights of `weights.npz`, both in the `folder` of the task."""
    task, folder = channel.task, Path(channel.task["folder"])
    torch.set_num_threads(task["threads"])
    model = trained(folder / "weights.npz")
    rows = read_ids(task)
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    batches = [order[start : start + task["batch"]] for start in range(0, len(rows), task["batch"])]

    @torch.inference_mode()
    def generate_ids(sentences):
        source = torch.tensor(padded(sentences), dtype=torch.long)
        options = {"num_beams": task["beam"], "do_sample": False, "max_new_tokens": 2 * source.shape[1] + 10}
        options["length_penalty"] = task.get("length_penalty", 1.0)
        ids = model.generate(input_ids=source, attention_mask=(source != PAD).long(), **options)[:, 1:]
        return ids.tolist()

    def generate():
        translations = {}
        for numbers in batches:
            translations |= zip(numbers, generate_ids([rows[number] for number in numbers]), strict=True)
        return [translations[number] for number in range(len(rows))]

    def describe(translations):
        return {"ids": [[*row, END][: [*row, END].index(END)] for row in translations]}

    if task.get("one_by_one"):
        serve_one_by_one(channel, lambda row: generate_ids([row])[0], rows, PACKAGES, describe)
    serve_after_warm_up(channel, generate, describe, PACKAGES)
