"""What decoders with RMS norm, rotary positions and gated feed-forward networks share: Llama, Gemma and others."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.decoder_tokenizers import begins_texts, decoder_files, text_tokenizer, unknown_id
from zoo.checkpoints.families.base import ACTIVATIONS, Imported, Trained, Weights, paired
from zoo.checkpoints.families.layouts import (
    Columns,
    Layout,
    Mapped,
    Reordered,
    linear,
    normalization,
    read_mapped,
    rows_of_tokens,
    tables,
)
from zoo.checkpoints.families.rotary import SCALING, rope_parameters, rotary
from zoo.checkpoints.vocabulary import NEW, Arrangement, arrange, others_as_option, written_ends
from zoo.errors import InputError
from zoo.vocabulary import PAD, START

TABLES = ("model.embed_tokens.weight", "lm_head.weight")
"""The names of the embeddings and of the output projection."""
QK_EPSILON = 1e-6
"""ε of the normalisation of queries and keys in our models; these families have one ε for all normalisations."""
DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
"""Values of keys that `config.json` lacks, unless a family has others."""


def decoder(
    checkpoint: Checkpoint, options: Mapping[str, Any], weights: Callable[[Checkpoint, Any, Arrangement], Weights]
) -> Imported:
    """Returns a checkpoint of a decoder as one of our models.

    Args:
        checkpoint: The checkpoint, with the `defaults` of its family.
        options: The options that only its family can read.
        weights: Function of the checkpoint, a model and the order of tokens that yields variables and their values.

    Raises:
        InputError: If the checkpoint has options that our models do not support.
    """
    heads, dim = checkpoint.option("num_attention_heads"), checkpoint.option("hidden_size")
    end, *others = checkpoint.ends()
    start = checkpoint.start(end)
    unknown, pad = unknown_id(checkpoint), checkpoint.option("pad_token_id")
    pad = None if pad in (start, end, unknown, -1) else pad
    order = arrange(checkpoint.option("vocab_size"), start, end, pad, unknown)
    groups = checkpoint.option("num_key_value_heads") or heads
    options = {
        "vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("num_hidden_layers"),
        "num_heads": heads,
        "num_key_value_heads": 0 if groups == heads else groups,
        "model_dim": dim,
        "key_dim": checkpoint.option("head_dim") or dim // heads,
        "intermediate_dim": checkpoint.option("intermediate_size"),
        "max_length": checkpoint.option("max_position_embeddings"),
        "epsilon": checkpoint.option("rms_norm_eps"),
        "dropout": 0.0,
        "attention_dropout": checkpoint.option("attention_dropout", 0.0),
        "tied_embeddings": checkpoint.tied(False, *TABLES),
        "other_ends": others_as_option(order, others),
        "start_symbol": begins_texts(checkpoint, order.original_ids[START]),
        **options,
        "activation": ACTIVATIONS.get(options["activation"], options["activation"]),
    }
    tokenizers = {"text": text_tokenizer(checkpoint, order)}
    return Imported("causal_lm_modern", options, tokenizers, lambda model: weights(checkpoint, model, order))


def whole_rotary(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the options of rotary positions of whole heads.

    Raises:
        InputError: If only a part of each head is rotated; see `rotary` as well.
    """
    options = rotary(checkpoint, checkpoint.option("rope_theta"))
    fraction = options.pop("rotary_fraction")
    if fraction != 1.0:
        raise InputError(
            f"{checkpoint.config_file}: rope_parameters must rotate whole heads to be imported. "
            f"Received: partial_rotary_factor={fraction}."
        )
    return options


WINDOWED, FULL = "sliding_attention", "full_attention"


def windows(checkpoint: Checkpoint, default: Sequence[bool], always: bool = False) -> dict[str, Any]:
    """Returns the options of attention windows, or none if no layer has one that is shorter than the longest text.

    Args:
        checkpoint: The checkpoint.
        default: Which layers have a window if `layer_types` is missing.
        always: Whether longer windows matter, too, as their layers differ in something else.

    Raises:
        InputError: If some layers have windows, but not all, nor all except each n-th one.
    """
    kinds = checkpoint.option("layer_types") or [WINDOWED if windowed else FULL for windowed in default]
    if len(kinds) != len(default) or {*kinds} - {WINDOWED, FULL}:
        raise InputError(
            f"{checkpoint.config_file}: layer_types must be {WINDOWED} or {FULL}, for each of {len(default)} layers. "
            f"Received: {kinds}."
        )
    window = checkpoint.option("sliding_window")
    is_short = always or (window and window < checkpoint.option("max_position_embeddings"))
    if not window or not is_short or WINDOWED not in kinds:
        return {}
    every = kinds.index(FULL) + 1 if FULL in kinds else 0
    if kinds != _layer_types(every, len(kinds)):
        raise InputError(
            f"{checkpoint.config_file}: windows must be those of all layers, or of all but each n-th one. "
            f"Received: layer_types={kinds}."
        )
    if window < 2:
        raise InputError(
            f"{checkpoint.config_file}: sliding_window must be at least 2. Received: sliding_window={window}."
        )
    # Their window includes the token itself, ours only the positions before it.
    return {"visibility": "window", "window": window - 1, "full_attention_every": every}


def _layer_types(every: int, num_layers: int) -> list[str]:
    """Returns `layer_types` where each n-th layer, or for 0 none, attends to everything."""
    return [FULL if every and number % every == 0 else WINDOWED for number in range(1, num_layers + 1)]


_SAME = {  # our options by their keys in config.json
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "model_dim",
    "intermediate_size": "intermediate_dim",
    "max_position_embeddings": "max_length",
    "rms_norm_eps": "epsilon",
    "tie_word_embeddings": "tied_embeddings",
    "attention_dropout": "attention_dropout",
}
FREE = {
    *_SAME.values(),
    *SCALING,
    "max_wavelength",
    "vocab_size",
    "activation",
    "num_key_value_heads",
    "key_dim",
    "dropout",
    "other_ends",
}
"""Options that may have any value when a decoder of one of these families is written, or that are checked elsewhere."""
WINDOW_OPTIONS = {"visibility", "window", "full_attention_every"}


def decoder_config(trained: Trained, order: Arrangement) -> dict[str, Any]:
    """Returns the part of `config.json` that all these families have.

    Args:
        trained: The model.
        order: Our order of its tokens.
    """
    model, options = trained.model, trained.options
    return {
        "vocab_size": order.size,
        "head_dim": model.options.head_dim,
        "num_key_value_heads": options["num_key_value_heads"] or options["num_heads"],
        "bos_token_id": order.original_ids[START],
        "eos_token_id": written_ends(order, options["other_ends"]),
        "pad_token_id": None if order.original_ids[PAD] == NEW else order.original_ids[PAD],
        "rope_parameters": rope_parameters(model.options),
        **{name: options[ours] for name, ours in _SAME.items()},
    }


def window_config(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of `config.json` on windows for a model with these options of ours."""
    if options["visibility"] != "window":
        return {"layer_types": _layer_types(1, options["num_layers"])}
    kinds = _layer_types(options["full_attention_every"], options["num_layers"])
    return {"sliding_window": options["window"] + 1, "layer_types": kinds}


def decoder_tokenizer(trained: Trained, family: str) -> tuple[dict[str, Any], Arrangement]:
    """Returns the files of the tokenizer by name, and the order of the tokens.

    Args:
        trained: The model.
        family: The name of the family, for the error.

    Raises:
        InputError: If the family does not support the tokenizer.
    """
    tables, begins = rows_of_tokens(trained.model), trained.options["start_symbol"]
    return decoder_files(trained.tokenizers["text"], tables, family, begins)


def check_epsilon(family: str, epsilon: float) -> None:
    """Checks that normalisations have the ε of our normalisation of queries and keys.

    Raises:
        InputError: If they have another one.
    """
    if epsilon != QK_EPSILON:
        raise InputError(f"With qk_norm {family} supports only epsilon={QK_EPSILON}. Received: epsilon={epsilon}.")


QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
ATTENTION = (*QKV, "self_attn.o_proj")
FEED_FORWARD = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def projections(model: Any) -> dict[str, list[Any]]:
    """Returns the projections of all blocks by their name in a block of the checkpoint."""
    layers: dict[str, list[Any]] = {name: [] for name in (*ATTENTION, *FEED_FORWARD)}
    for block in model.blocks:
        attention, feed_forward = block.attention, block.feed_forward
        attending = (attention.query_dense, attention.key_dense, attention.value_dense, attention.output_dense)
        gated = (feed_forward.intermediate_dense, feed_forward.linear_dense, feed_forward.output_dense)
        for name, layer in zip(layers, (*attending, *gated), strict=True):
            layers[name].append(layer)
    return layers


def used_biases(model: Any) -> set[str]:
    """Returns the names of the projections of our model that have biases other than zero."""
    layers_by_name = projections(model).items() if model.use_bias else ()
    return {name for name, layers in layers_by_name if any(np.any(layer.bias) for layer in layers)}


def missing_biases(model: Any, biased: Collection[str]) -> Weights:
    """Yields zeros for the biases of our model that the checkpoint does not have."""
    for name, layers in projections(model).items() if model.use_bias else ():
        for layer in layers if name not in biased else ():
            yield layer.bias, np.zeros(layer.bias.shape, "float32")


def ignore_repeated(checkpoint: Checkpoint, model: Any) -> None:
    """Marks tensors that hold nothing learned, or the tied embeddings once more."""
    if model.tied_embeddings:
        checkpoint.ignore("lm_head.weight")
    checkpoint.ignore(*(f"model.layers.{index}.self_attn.rotary_emb.inv_freq" for index in range(len(model.blocks))))


def block_tensors(
    model: Any, order: Arrangement, size: int, biased: Collection[str], norms: Sequence[str]
) -> Iterator[Mapped]:
    """Yields the tensors of a decoder with separate projections, and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
        biased: The names of the projections that have biases.
        norms: The names of the normalisations of a block.
    """
    yield from tables(model, order, size, *TABLES)
    yield from projection_tensors(model, biased)
    yield from qk_norm_tensors(model)
    for index, block in enumerate(model.blocks):
        for norm, name in zip(block.norms, norms, strict=True):
            yield from normalization(f"model.layers.{index}.{name}", norm)
    yield from normalization("model.norm", model.final_norm)


def block_weights(
    checkpoint: Checkpoint, model: Any, order: Arrangement, biased: Collection[str], norms: Sequence[str]
) -> Weights:
    """Yields our variables and their values from the tensors of `block_tensors`."""
    size = checkpoint.option("vocab_size")
    yield from read_mapped(checkpoint, block_tensors(model, order, size, biased, norms))
    yield from missing_biases(model, biased)
    ignore_repeated(checkpoint, model)


def projection_tensors(model: Any, biased: Collection[str] = ()) -> Iterator[Mapped]:
    """Yields the tensors of the projections of all blocks.

    Args:
        model: The model.
        biased: The names of the projections that have biases.
    """
    head_dim = model.options.head_dim
    for name, layers in projections(model).items():
        for index, layer in enumerate(layers):
            is_rotated = name in ("self_attn.q_proj", "self_attn.k_proj")
            outputs = paired(np.arange(layer.kernel.shape[1]), head_dim) if is_rotated else None
            yield from linear(f"model.layers.{index}.{name}", layer, outputs=outputs, bias=name in biased)


def qk_norm_tensors(model: Any, query: Layout | None = None, key: Layout | None = None) -> Iterator[Mapped]:
    """Yields the tensors of the normalisations of queries and keys, if the model has them.

    Args:
        model: The model.
        query: The layout of the scale of queries in our order. Default: `Columns()`.
        key: That of keys.
    """
    for index, block in enumerate(model.blocks if model.qk_norm else ()):
        norms = ("q_norm", block.attention.query_norm, query), ("k_norm", block.attention.key_norm, key)
        for name, norm, layout in norms:
            places = paired(np.arange(norm.scale.shape[0]), model.options.head_dim)
            layout = Reordered(places, 0, layout or Columns())
            yield from normalization(f"model.layers.{index}.self_attn.{name}", norm, layout)
