"""Marian (`marian`, OPUS-MT): post-norm blocks, sinusoids, tied embeddings, and a bias of the logits."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import (
    Exported,
    Imported,
    Trained,
    Weights,
    generation_config,
    register_family,
    register_writer,
)
from zoo.checkpoints.families.fairseq import BIAS, FREE, Defaults, config_of, options_of, tensors_of_blocks
from zoo.checkpoints.families.layouts import Mapped, OneRow, Reordered, Rows, read_mapped, write_mapped
from zoo.checkpoints.tokenizers import check_added, mapped_subwords, marian_files, marian_order
from zoo.checkpoints.vocabulary import Arrangement, arrange

_SHARED = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
_DEFAULTS = Defaults(vocab_size=58101)


@register_family(
    "marian",
    without_influence={
        "num_hidden_layers": "encoder_layers, which is read, is the same",
        "extra_pos_embeddings": "positions are sinusoids",
    },
)
def marian(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of Marian whose languages share a vocabulary as one of our models.

    Its sinusoids have all sines before all cosines, ours alternate: the features of all vectors are reordered, which
    changes no output. The start token of the decoder is padding there, and has its own id here.

    Raises:
        InputError: If it has options that our models do not support.
    """
    for name, only in (
        ("share_encoder_decoder_embeddings", True),
        ("tie_word_embeddings", True),
        ("static_position_embeddings", True),
        ("normalize_before", False),
        ("normalize_embedding", False),
        ("add_final_layer_norm", False),
        ("is_encoder_decoder", True),
        ("decoder_vocab_size", checkpoint.option("vocab_size", _DEFAULTS.vocab_size)),
        ("add_bias_logits", False),
        ("do_blenderbot_90_layernorm", False),
        ("force_bos_token_to_be_generated", False),
    ):
        checkpoint.option(name, only, only=only)
    size = checkpoint.option("vocab_size", _DEFAULTS.vocab_size)
    vocabulary = checkpoint.json("vocab.json")
    check_added(checkpoint, vocabulary)
    pad, end = checkpoint.option("pad_token_id", 58100), checkpoint.end(0)
    start = checkpoint.decoder_start(pad)
    order = arrange(size, start, end, pad, vocabulary.get("<unk>"))
    options = {
        **options_of(checkpoint, order, _DEFAULTS),
        "max_length": checkpoint.option("max_position_embeddings", 1024),
        "output_bias": True,
    }
    tokenizers = {side: mapped_subwords(checkpoint, f"{side}.spm", vocabulary, order) for side in ("source", "target")}
    return Imported("transformer_base", options, tokenizers, lambda model: _weights(checkpoint, model, order))


@register_writer("zoo.models.seq2seq.transformer:Transformer", usual="transformer_base")
def to_marian(trained: Trained) -> Exported:
    """Returns a Transformer as a checkpoint of Marian.

    Raises:
        InputError: If Marian does not support an option or the tokenizer.
    """
    model = trained.model
    trained.check("Marian", {*FREE, "output_bias"}, tied_embeddings="all")
    order = marian_order(trained.tokenizers).complete()
    bias = [] if model.output_layer is None else [model.output_layer.bias]
    tables = [np.asarray(table) for table in (model.target_embedding.embeddings, *bias)]
    order = order.with_start(tables)
    config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "forced_eos_token_id": None,
        **config_of("Marian", trained, order),
    }
    generation = generation_config(config, trained.options["max_length"])
    written = write_mapped(tensors(model, order, order.size))
    zeros = {} if bias else {BIAS: lambda: np.zeros((1, order.size), "float32")}
    return Exported(
        config, {**written, **zeros}, {**marian_files(trained.tokenizers, order), "generation_config.json": generation}
    )


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    table = next((name for name in _SHARED if checkpoint.has(name)), _SHARED[0])
    yield from read_mapped(
        checkpoint, tensors(model, order, checkpoint.option("vocab_size", _DEFAULTS.vocab_size), table)
    )
    checkpoint.ignore(*_SHARED, "lm_head.weight")
    checkpoint.ignore(*(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")))


def tensors(model: Any, order: Arrangement, size: int, table: str = _SHARED[0]) -> Iterator[Mapped]:
    """Yields the tensors of a Marian and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
        table: The name of the embeddings.
    """
    places = np.arange(model.model_dim).reshape(2, -1).T.ravel()  # sines and cosines alternate
    yield Mapped(table, (model.target_embedding.embeddings,), Reordered(places, 1, Rows(order, size)))
    if model.output_layer is not None:
        yield Mapped(BIAS, (model.output_layer.bias,), OneRow(Rows(order, size)))
    for side, blocks in (("encoder", model.encoder_blocks), ("decoder", model.decoder_blocks)):
        yield from tensors_of_blocks(side, blocks, places)
