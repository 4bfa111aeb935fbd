"""T5, mT5 and UMT5 (`t5`, `mt5`, `umt5`): pre-norm with RMS norm, relative position biases, unscaled dot products."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import (
    ACTIVATIONS,
    Exported,
    Imported,
    Trained,
    Weights,
    activation_name,
    attentions_of,
    generation_config,
    register_family,
    register_writer,
)
from zoo.checkpoints.families.layouts import (
    Columns,
    Copies,
    Mapped,
    Rows,
    Scaled,
    Transposed,
    linear,
    normalization,
    read_mapped,
    write_mapped,
)
from zoo.checkpoints.tokenizers import reordered_subwords, t5_files, t5_model, tokenizer_config, unknown_of
from zoo.checkpoints.vocabulary import Arrangement, arrange
from zoo.errors import InputError
from zoo.vocabulary import END, PAD, START

_BUCKETS = 32
_FIRST = 0
"""The default start token of the decoder of mT5 and UMT5, whatever padding is."""
_LOGITS = "lm_head.weight"
_TABLES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
_FIXED: dict[str, Any] = {
    "normalize_first": True,
    "normalization": "rms_norm",
    "use_bias": False,
    "score": "dot",
    "positions": "t5",
    "scale_embeddings": False,
}


@register_family("t5", "mt5", "umt5")
def t5(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of T5 as one of our models, also of version 1.1, mT5, UMT5 and MADLAD-400.

    UMT5 has position biases in every layer. MADLAD-400 stores its embeddings with encoder and decoder. T5 divides the
    last vectors by √D, version 1.1 and mT5 do not; here the scale of the last normalisation includes that.

    Raises:
        InputError: If it has options that our models do not support.
    """
    model_type = checkpoint.config["model_type"]
    mt5 = model_type != "t5"  # the defaults of UMT5 are the same
    checkpoint.option("relative_attention_num_buckets", _BUCKETS, only=_BUCKETS)
    checkpoint.option("is_encoder_decoder", True, only=True)
    size, dim = checkpoint.option("vocab_size", 250112 if mt5 else 32128), checkpoint.option("d_model", 512)
    pieces = t5_model(checkpoint)
    pad, end = checkpoint.option("pad_token_id", 0), checkpoint.end(1)
    start = checkpoint.decoder_start(_FIRST if mt5 else pad)
    order = arrange(size, start, end, pad, unknown_of(pieces))
    layers = checkpoint.option("num_layers", 8 if mt5 else 6)
    kind = checkpoint.option("feed_forward_proj", "gated-gelu" if mt5 else "relu")
    activation = {"gated-gelu": "gelu_new"}.get(kind, kind.removeprefix("gated-"))
    checkpoint.option("dense_act_fn", activation, only=activation)
    checkpoint.option("is_gated_act", kind.startswith("gated-"), only=kind.startswith("gated-"))
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
        "epsilon": checkpoint.option("layer_norm_epsilon", 1e-6),
        "max_distance": checkpoint.option("relative_attention_max_distance", 128),
        "share_positions": model_type != "umt5",
        "tied_embeddings": "all" if _is_tied(checkpoint, (size, dim)) else "none",
        "dropout": checkpoint.option("dropout_rate", 0.1),
        "attention_dropout": checkpoint.option("dropout_rate", 0.1),
        "feed_forward_dropout": checkpoint.option("dropout_rate", 0.1),
        **_FIXED,
    }
    tidy = bool(tokenizer_config(checkpoint).get("clean_up_tokenization_spaces", False))
    # The rows beyond the pieces may be written.
    tokenizer = reordered_subwords(checkpoint, "spiece.model", order, pieces, tidy)
    tokenizers = {"source": tokenizer, "target": tokenizer}
    return Imported("transformer_base", options, tokenizers, lambda model: _weights(checkpoint, model, order, size))


def _is_tied(checkpoint: Checkpoint, shape: tuple[int, int]) -> bool:
    """Returns whether embeddings and output projection are equal; the file may contain both."""
    return not checkpoint.has(_LOGITS) or np.array_equal(
        checkpoint.read(_LOGITS, shape), checkpoint.read(_table(checkpoint, shape), shape)
    )


def _table(checkpoint: Checkpoint, shape: tuple[int, int]) -> str:
    """Returns the name of the embeddings, of which the file may contain copies.

    Raises:
        InputError: If the copies differ: programs differ in which one they take.
    """
    first, *others = [name for name in _TABLES if checkpoint.has(name)] or [_TABLES[0]]
    for name in others:
        if not np.array_equal(checkpoint.read(name, shape), checkpoint.read(first, shape)):
            raise InputError(
                f"{checkpoint.path}: {name} differs from {first}, and encoder and decoder share one table."
            )
    return first


_SAME = {  # our options by their keys in config.json
    "num_layers": "num_layers",
    "num_heads": "num_heads",
    "d_model": "model_dim",
    "d_ff": "intermediate_dim",
    "n_positions": "max_length",
    "layer_norm_epsilon": "epsilon",
    "dropout_rate": "dropout",
}
_DROPOUTS = ("attention_dropout", "feed_forward_dropout")
_OTHERS = ("source_vocab_size", "target_vocab_size", "decoder_layers", "key_dim", "activation", "gated", "max_distance")


@register_writer("zoo.models.seq2seq.transformer:Transformer", usual="transformer_base")
def to_t5(trained: Trained) -> Exported:
    """Returns a Transformer as a checkpoint of T5, version 1.1, whose logits are not scaled, or of UMT5.

    Raises:
        InputError: If T5 does not support an option or the tokenizer.
    """
    model, options = trained.model, trained.options
    trained.check("T5", {*_SAME.values(), *_DROPOUTS, *_OTHERS, "share_positions", "tied_embeddings"}, **_FIXED)
    if options["tied_embeddings"] == "target":
        raise InputError("T5 supports only tied_embeddings='all' or 'none'. Received: tied_embeddings='target'.")
    activation, shared = activation_name("T5", options["activation"]), options.get("share_positions", True)
    if options["gated"] and activation == "gelu":
        raise InputError("A gated T5 supports activation='gelu_tanh', but no exact GELU. Received: activation='gelu'.")
    kind = f"gated-{activation.replace('gelu_new', 'gelu')}" if options["gated"] else activation
    table = model.target_embedding
    logits = [] if options["tied_embeddings"] == "all" else [np.asarray(table.reverse_embeddings).T]
    files, order = t5_files(trained.tokenizers, [np.asarray(table.embeddings), *logits])
    pad, start, end = (order.original_ids[i] for i in (PAD, START, END))
    config = {
        "architectures": [f"{'' if shared else 'UM'}T5ForConditionalGeneration"],
        "model_type": "t5" if shared else "umt5",
        "is_encoder_decoder": True,
        "vocab_size": order.size,
        "num_decoder_layers": options["decoder_layers"] or options["num_layers"],
        "d_kv": model.options.head_dim,
        "feed_forward_proj": kind,
        "relative_attention_num_buckets": _BUCKETS,
        "relative_attention_max_distance": options["max_distance"] or 128,
        "tie_word_embeddings": False,  # older software reads that the logits are not scaled from it
        "scale_decoder_outputs": False,
        "pad_token_id": pad,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        **{name: options[ours] for name, ours in _SAME.items()},
    }
    generation = generation_config(config, options["max_length"])
    mapped = list(tensors(model, order, order.size))
    if not logits:  # the embeddings once more
        mapped.append(Mapped(_LOGITS, (table.embeddings,), Rows(order, order.size)))
    return Exported(config, write_mapped(mapped), {**files, "generation_config.json": generation})


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement, size: int) -> Weights:
    # Older files have only the first key; mT5 ignores both.
    tied = checkpoint.option("tie_word_embeddings", True) is not False
    divides = checkpoint.option("scale_decoder_outputs", tied) and checkpoint.config["model_type"] != "mt5"
    factor = model.model_dim**-0.5 if divides else 1.0
    table = _table(checkpoint, (size, model.model_dim))
    yield from read_mapped(checkpoint, tensors(model, order, size, factor, table))
    checkpoint.ignore(*_TABLES, _LOGITS)
    unused = "block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    checkpoint.ignore(f"encoder.{unused}", f"decoder.{unused}")


def tensors(
    model: Any, order: Arrangement, size: int, factor: float = 1.0, table: str = _TABLES[0]
) -> Iterator[Mapped]:
    """Yields the tensors of a T5 and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
        factor: What its logits are multiplied by.
        table: The name of the embeddings.
    """
    target, rows = model.target_embedding, Rows(order, size)
    if model.tied_embeddings == "all":
        yield Mapped(table, (target.embeddings,), rows)
    else:
        yield Mapped(table, (target.embeddings, model.source_embedding.embeddings), Copies(2, rows))
        yield Mapped(_LOGITS, (target.reverse_embeddings,), Rows(order, size, columns=True))
    for side, blocks in (("encoder", model.encoder_blocks), ("decoder", model.decoder_blocks)):
        for index, block in enumerate(blocks):
            attentions = list(zip(("SelfAttention", "EncDecAttention"), attentions_of(block), strict=False))
            name, last = f"{side}.block.{index}.layer.", len(attentions)
            for number, (part, layer) in enumerate(attentions):
                for letter, dense in (("q", layer.query_dense), ("k", layer.key_dense), ("v", layer.value_dense)):
                    yield from linear(f"{name}{number}.{part}.{letter}", dense, bias=False)
                yield from linear(f"{name}{number}.{part}.o", layer.output_dense, bias=False)
            feed_forward, inner = block.feed_forward, f"{name}{last}.DenseReluDense"
            first = f"{inner}.wi_0" if model.gated else f"{inner}.wi"
            yield from linear(first, feed_forward.intermediate_dense, bias=False)
            if model.gated:
                yield from linear(f"{inner}.wi_1", feed_forward.linear_dense, bias=False)
            yield from linear(f"{inner}.wo", feed_forward.output_dense, bias=False)
            for number, norm in enumerate(block.norms):
                yield from normalization(f"{name}{number}.layer_norm", norm)
            if index == 0 or not model.share_positions:
                biases = f"{name}0.SelfAttention.relative_attention_bias.weight"
                yield Mapped(biases, (attentions_of(block)[0].positions.embeddings,), Transposed(Columns()))
    yield from normalization("encoder.final_layer_norm", model.encoder_norm)
    yield from normalization("decoder.final_layer_norm", model.decoder_norm, Scaled(factor, Columns()))
