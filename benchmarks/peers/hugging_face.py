"""Hugging Face's Marian, on PyTorch."""

import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel

from benchmarks.peers import pytorch
from benchmarks.peers.batches import END, PAD, START, serve_search

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
    # Without an end nothing is ruled out at each step, which would cost a pass over all logits.
    model.generation_config.eos_token_id = model.generation_config.forced_eos_token_id = None
    model.config.eos_token_id = None

    @torch.inference_mode()
    def generate(source):
        source = torch.tensor(source, dtype=torch.long)
        options = {"num_beams": channel.task["beam"], "do_sample": False, "use_cache": True, "length_penalty": 0.0}
        options |= {"min_new_tokens": source.shape[1], "max_new_tokens": source.shape[1]}
        return model.generate(input_ids=source, attention_mask=(source != PAD).long(), **options)[:, 1:]

    serve_search(channel, generate, pytorch.number_of_weights(model), PACKAGES, end=None)
