"""Marian (`marian`), as OPUS-MT has it: post-norm blocks, sinusoids, tied embeddings, a bias of the logits."""

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
    Mapped,
    OneRow,
    Reordered,
    Rows,
    linear,
    normalization,
    read_mapped,
    write_mapped,
)
from zoo.checkpoints.tokenizers import mapped_subwords, marian_files, marian_order
from zoo.checkpoints.vocabulary import Arrangement, arrange
from zoo.vocabulary import END, PAD, START

_SHARED = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
_BIAS = "final_logits_bias"


@register_family(
    "marian",
    without_influence={
        "num_hidden_layers": "the number of layers of the encoder, which is read",
        "extra_pos_embeddings": "positions are sinusoids",
    },
)
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
        ("is_encoder_decoder", True),
        ("decoder_vocab_size", checkpoint.option("vocab_size", 58101)),
        ("add_bias_logits", False),
        ("do_blenderbot_90_layernorm", False),
        ("force_bos_token_to_be_generated", False),
    ):
        checkpoint.option(name, only, only=only)
    for name, default in (("ffn_dim", 4096), ("attention_heads", 16)):
        of_decoder = checkpoint.option(f"decoder_{name}", default)
        checkpoint.option(f"encoder_{name}", default, only=of_decoder)
    size, dim = checkpoint.option("vocab_size", 58101), checkpoint.option("d_model", 1024)
    vocabulary = checkpoint.json("vocab.json")
    pad, end = checkpoint.option("pad_token_id", 58100), checkpoint.end(0)
    start = checkpoint.decoder_start(pad)
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


_SAME = {  # our options, by their names in config.json
    "encoder_layers": "num_layers",
    "encoder_attention_heads": "num_heads",
    "decoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "intermediate_dim",
    "decoder_ffn_dim": "intermediate_dim",
    "d_model": "model_dim",
    "max_position_embeddings": "max_length",
    "scale_embedding": "scale_embeddings",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "feed_forward_dropout",
}
_FREE = {*_SAME.values(), "source_vocab_size", "target_vocab_size", "decoder_layers", "output_bias", "activation"}


@register_writer("zoo.models.seq2seq.transformer:Transformer", usual="transformer_base")
def to_marian(trained: Trained) -> Exported:
    """Returns a Transformer as a checkpoint of Marian.

    Where training has made what begins a translation another token than padding, it has an id of its own.

    Raises:
        InputError: If Marian has no such option or tokenizer.
    """
    model, options = trained.model, trained.options
    trained.check("Marian", _FREE, tied_embeddings="all")
    order = marian_order(trained.tokenizers).complete()
    bias = [] if model.output_layer is None else [model.output_layer.bias]
    tables = [np.asarray(table) for table in (model.target_embedding.embeddings, *bias)]
    order = order.with_start(tables)
    pad, start, end = (order.original_ids[i] for i in (PAD, START, END))
    config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": order.size,
        "activation_function": activation_name("Marian", options["activation"]),
        "decoder_layers": options["decoder_layers"] or options["num_layers"],
        "pad_token_id": pad,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        "forced_eos_token_id": None,
        **{name: options[ours] for name, ours in _SAME.items()},
    }
    generation = generation_config(config, options["max_length"])
    written = write_mapped(tensors(model, order, order.size))
    zeros = {} if bias else {_BIAS: lambda: np.zeros((1, order.size), "float32")}
    return Exported(
        config, {**written, **zeros}, {**marian_files(trained.tokenizers, order), "generation_config.json": generation}
    )


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    table = next((name for name in _SHARED if checkpoint.has(name)), _SHARED[0])
    yield from read_mapped(checkpoint, tensors(model, order, checkpoint.option("vocab_size", 58101), table))
    checkpoint.ignore(*_SHARED, "lm_head.weight")
    checkpoint.ignore(*(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")))


def tensors(model: Any, order: Arrangement, size: int, table: str = _SHARED[0]) -> Iterator[Mapped]:
    """Yields the tensors of a Marian with what each holds of a model, to be read or written.

    Args:
        model: The model.
        order: The order of its tokens.
        size: The number of tokens in the checkpoint.
        table: The name of the embeddings.
    """
    places = np.arange(model.model_dim).reshape(2, -1).T.ravel()  # of sines and cosines in turn
    reading: Any = {"inputs": places}
    writing: Any = {"outputs": places}
    vector = Reordered(places, 0, Columns())
    yield Mapped(table, (model.target_embedding.embeddings,), Reordered(places, 1, Rows(order, size)))
    if model.output_layer is not None:
        yield Mapped(_BIAS, (model.output_layer.bias,), OneRow(Rows(order, size)))
    for side, blocks in (("encoder", model.encoder_blocks), ("decoder", model.decoder_blocks)):
        for index, block in enumerate(blocks):
            layer = f"model.{side}.layers.{index}"
            attentions = dict(zip(("self_attn", "encoder_attn"), attentions_of(block), strict=False))
            for name, attention in attentions.items():
                yield from linear(f"{layer}.{name}.q_proj", attention.query_dense, **reading)
                yield from linear(f"{layer}.{name}.k_proj", attention.key_dense, **reading)
                yield from linear(f"{layer}.{name}.v_proj", attention.value_dense, **reading)
                yield from linear(f"{layer}.{name}.out_proj", attention.output_dense, **writing)
            yield from linear(f"{layer}.fc1", block.feed_forward.intermediate_dense, **reading)
            yield from linear(f"{layer}.fc2", block.feed_forward.output_dense, **writing)
            names = [*(f"{name}_layer_norm" for name in attentions), "final_layer_norm"]
            for norm, name in zip(block.norms, names, strict=True):
                yield from normalization(f"{layer}.{name}", norm, vector)
