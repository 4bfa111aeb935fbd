"""Marian (`marian`), as OPUS-MT has it: post-norm blocks, sinusoids, tied embeddings, a bias of the logits."""

from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import ACTIVATIONS, Imported, Weights, dense, register_family
from zoo.checkpoints.tokenizers import mapped_subwords
from zoo.checkpoints.vocabulary import Arrangement, arrange

_SHARED = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")


@register_family("marian")
def marian(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of Marian whose two languages share a vocabulary.

    Its sinusoids have all sines before all cosines, ours take turns: the features of all vectors are put in our order,
    which changes no number that a model gives. What begins a translation is padding there, which is never written; here
    it is there twice.

    Raises:
        InputError: If it differs from these in what we do not have.
    """
    for name, only in (
        ("share_encoder_decoder_embeddings", True),
        ("tie_word_embeddings", True),
        ("static_position_embeddings", True),
        ("normalize_before", False),
        ("normalize_embedding", False),
        ("add_final_layer_norm", False),
        ("encoder_ffn_dim", checkpoint.option("decoder_ffn_dim", 4096)),
        ("encoder_attention_heads", checkpoint.option("decoder_attention_heads", 16)),
    ):
        checkpoint.option(name, only, only=only)
    size, dim = checkpoint.option("vocab_size", 58101), checkpoint.option("d_model", 1024)
    vocabulary = checkpoint.json("vocab.json")
    pad, end = checkpoint.option("pad_token_id", 58100), checkpoint.option("eos_token_id", 0)
    start = checkpoint.option("decoder_start_token_id", pad)
    order = arrange(size, start, end, pad, vocabulary.get("<unk>"))
    options = {
        "source_vocab_size": len(order.original_ids),
        "target_vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("encoder_layers", 12),
        "decoder_layers": checkpoint.option("decoder_layers", 12),
        "num_heads": checkpoint.option("encoder_attention_heads", 16),
        "model_dim": dim,
        "intermediate_dim": checkpoint.option("encoder_ffn_dim", 4096),
        "max_length": checkpoint.option("max_position_embeddings", 1024),
        "activation": ACTIVATIONS.get(activation := checkpoint.option("activation_function", "gelu"), activation),
        "scale_embeddings": checkpoint.option("scale_embedding", False),
        "tied_embeddings": "all",
        "output_bias": True,
        "dropout": checkpoint.option("dropout", 0.1),
        "attention_dropout": checkpoint.option("attention_dropout", 0.0),
        "feed_forward_dropout": checkpoint.option("activation_dropout", 0.0),
    }
    tokenizers = {side: mapped_subwords(checkpoint, f"{side}.spm", vocabulary, order) for side in ("source", "target")}
    return Imported("transformer_base", options, tokenizers, lambda model: _weights(checkpoint, model, order))


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    dim, inner, size = model.model_dim, model.intermediate_dim, checkpoint.option("vocab_size", 58101)
    features = np.arange(dim).reshape(2, -1).T.ravel()  # sines and cosines in turn

    def vector(name: str) -> np.ndarray:
        return checkpoint.read(name, (dim,))[features]

    def reading(name: str, outputs: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns matrix and bias of a map from the features."""
        kernel = checkpoint.read(f"{name}.weight", (outputs, dim)).T
        return kernel[features], checkpoint.read(f"{name}.bias", (outputs,))

    def writing(name: str, inputs: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns matrix and bias of a map to the features."""
        return checkpoint.read(f"{name}.weight", (dim, inputs)).T[:, features], vector(f"{name}.bias")

    def attention(layer: Any, name: str) -> Weights:
        yield from dense(layer.query_dense, *reading(f"{name}.q_proj", dim))
        yield from dense(layer.key_dense, *reading(f"{name}.k_proj", dim))
        yield from dense(layer.value_dense, *reading(f"{name}.v_proj", dim))
        yield from dense(layer.output_dense, *writing(f"{name}.out_proj", dim))

    table = next((name for name in _SHARED if checkpoint.has(name)), _SHARED[0])
    yield model.target_embedding.embeddings, order.rows(checkpoint.read(table, (size, dim)))[:, features]
    checkpoint.ignore(*_SHARED, "lm_head.weight")
    yield model.output_layer.bias, order.rows(checkpoint.read("final_logits_bias", (1, size))[0])
    for side, blocks in (("encoder", model.encoder_blocks), ("decoder", model.decoder_blocks)):
        checkpoint.ignore(f"model.{side}.embed_positions.weight")
        for index, block in enumerate(blocks):
            name = f"model.{side}.layers.{index}"
            if side == "encoder":
                attentions = [(block.attention, "self_attn")]
            else:
                attentions = [(block.self_attention, "self_attn"), (block.cross_attention, "encoder_attn")]
            for layer, part in attentions:
                yield from attention(layer, f"{name}.{part}")
            yield from dense(block.feed_forward.intermediate_dense, *reading(f"{name}.fc1", inner))
            yield from dense(block.feed_forward.output_dense, *writing(f"{name}.fc2", inner))
            norms = [*(f"{part}_layer_norm" for _, part in attentions), "final_layer_norm"]
            for norm, part in zip(block.norms, norms, strict=True):
                yield norm.gamma, vector(f"{name}.{part}.weight")
                yield norm.beta, vector(f"{name}.{part}.bias")
