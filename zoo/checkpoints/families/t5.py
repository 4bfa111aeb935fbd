"""T5 and mT5 (`t5`, `mt5`): RMS norm before each part, biases for distances, dot products that are not scaled."""

from typing import Any

import numpy as np
import sentencepiece

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import ACTIVATIONS, Imported, Weights, dense, register_family
from zoo.checkpoints.vocabulary import NEW, Arrangement, arrange
from zoo.text import ReorderedSubwordTokenizer


@register_family("t5", "mt5")
def t5(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of T5, version 1.1 and mT5 included.

    T5 divides what its logits are made of by √D, version 1.1 and mT5 do not; here the last normalisation does. What
    begins an answer is padding there, which is never written; here it is there twice.

    Raises:
        InputError: If it differs from these in what we do not have.
    """
    mt5 = checkpoint.config["model_type"] == "mt5"
    checkpoint.option("relative_attention_num_buckets", 32, only=32)
    checkpoint.option("is_encoder_decoder", True, only=True)
    size, dim = checkpoint.option("vocab_size", 250112 if mt5 else 32128), checkpoint.option("d_model", 512)
    model = checkpoint.file("spiece.model").read_bytes()
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    pad, end = checkpoint.option("pad_token_id", 0), checkpoint.option("eos_token_id", 1)
    order = arrange(size, checkpoint.option("decoder_start_token_id", pad), end, pad, pieces.unk_id())
    layers = checkpoint.option("num_layers", 8 if mt5 else 6)
    kind = checkpoint.option("feed_forward_proj", "gated-gelu" if mt5 else "relu")
    activation = {"gated-gelu": "gelu_new"}.get(kind, kind.removeprefix("gated-"))
    options = {
        "source_vocab_size": len(order.original_ids),
        "target_vocab_size": len(order.original_ids),
        "num_layers": layers,
        "decoder_layers": checkpoint.option("num_decoder_layers", layers) or layers,
        "num_heads": checkpoint.option("num_heads", 6 if mt5 else 8),
        "model_dim": dim,
        "key_dim": checkpoint.option("d_kv", 64),
        "intermediate_dim": checkpoint.option("d_ff", 1024 if mt5 else 2048),
        "max_length": checkpoint.option("n_positions", 512),
        "activation": ACTIVATIONS.get(activation, activation),
        "gated": kind.startswith("gated-"),
        "normalize_first": True,
        "normalization": "rms_norm",
        "epsilon": checkpoint.option("layer_norm_epsilon", 1e-6),
        "use_bias": False,
        "score": "dot",
        "positions": "t5",
        "max_distance": checkpoint.option("relative_attention_max_distance", 128),
        "scale_embeddings": False,
        "tied_embeddings": "all" if _is_tied(checkpoint, (size, dim)) else "none",
        "dropout": checkpoint.option("dropout_rate", 0.1),
        "attention_dropout": checkpoint.option("dropout_rate", 0.1),
        "feed_forward_dropout": checkpoint.option("dropout_rate", 0.1),
    }
    # Rows of the table beyond the pieces, such as <extra_id_0>, may be written but are no text.
    ids = [i if i < pieces.vocab_size() else NEW for i in order.original_ids]
    tokenizer = ReorderedSubwordTokenizer(model, ids)
    tokenizers = {"source": tokenizer, "target": tokenizer}
    return Imported("transformer_base", options, tokenizers, lambda model: _weights(checkpoint, model, order, size))


def _is_tied(checkpoint: Checkpoint, shape: tuple[int, int]) -> bool:
    """Returns whether embeddings and logits are of one table, which may be there twice."""
    logits, embeddings = "lm_head.weight", "shared.weight"
    return not checkpoint.has(logits) or np.array_equal(
        checkpoint.read(logits, shape), checkpoint.read(embeddings, shape)
    )


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement, size: int) -> Weights:
    dim, inner, inside = model.model_dim, model.intermediate_dim, model.num_heads * model.key_dim
    # What says so has this name for reasons of history; mT5 ignores it.
    divides = checkpoint.config["model_type"] == "t5" and checkpoint.option("tie_word_embeddings", True)

    def read(name: str, inputs: int, outputs: int) -> np.ndarray:
        return checkpoint.read(f"{name}.weight", (outputs, inputs)).T

    def attention(layer: Any, name: str) -> Weights:
        for part, letter in ((layer.query_dense, "q"), (layer.key_dense, "k"), (layer.value_dense, "v")):
            yield from dense(part, read(f"{name}.{letter}", dim, inside))
        yield from dense(layer.output_dense, read(f"{name}.o", inside, dim))

    def feed_forward(layer: Any, name: str) -> Weights:
        first = "wi_0" if model.gated else "wi"
        yield from dense(layer.intermediate_dense, read(f"{name}.{first}", dim, inner))
        if model.gated:
            yield from dense(layer.linear_dense, read(f"{name}.wi_1", dim, inner))
        yield from dense(layer.output_dense, read(f"{name}.wo", inner, dim))

    table = order.rows(checkpoint.read("shared.weight", (size, dim)))
    yield model.target_embedding.embeddings, table
    if model.tied_embeddings != "all":
        yield model.source_embedding.embeddings, table
        yield model.target_embedding.reverse_embeddings, order.rows(checkpoint.read("lm_head.weight", (size, dim))).T
    checkpoint.ignore("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    for side, blocks in (("encoder", model.encoder_blocks), ("decoder", model.decoder_blocks)):
        for index, block in enumerate(blocks):
            if side == "encoder":
                attentions = [("SelfAttention", block.attention)]
            else:
                attentions = [("SelfAttention", block.self_attention), ("EncDecAttention", block.cross_attention)]
            name = f"{side}.block.{index}.layer."
            for number, (part, layer) in enumerate(attentions):
                yield from attention(layer, f"{name}{number}.{part}")
            yield from feed_forward(block.feed_forward, f"{name}{len(attentions)}.DenseReluDense")
            for number, norm in enumerate(block.norms):
                yield norm.scale, checkpoint.read(f"{name}{number}.layer_norm.weight", (dim,))
        biases = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield _positions(blocks[0]).embeddings, checkpoint.read(biases, (32, model.num_heads)).T
        checkpoint.ignore(f"{side}.block.0.layer.1.EncDecAttention.relative_attention_bias.weight")  # unused
        norm = model.encoder_norm if side == "encoder" else model.decoder_norm
        factor = dim**-0.5 if divides and side == "decoder" else 1.0
        yield norm.scale, factor * checkpoint.read(f"{side}.final_layer_norm.weight", (dim,))


def _positions(block: Any) -> Any:
    """Returns the positions that all blocks of a side share."""
    return (block.self_attention if hasattr(block, "self_attention") else block.attention).positions
