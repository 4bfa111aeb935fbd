"""Llama and its relatives (`llama`, `mistral`, `qwen2`, `qwen3`): RMS norm, rotary positions, gates, grouped heads."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    paired,
    register_family,
    register_writer,
)
from zoo.checkpoints.families.layouts import (
    Columns,
    Mapped,
    Reordered,
    linear,
    normalization,
    read_mapped,
    rows_of_tokens,
    tables,
    write_mapped,
)
from zoo.checkpoints.families.rotary import SCALING, check_scaling, rope_parameters, rotary
from zoo.checkpoints.tokenizers import decoder_files, text_tokenizer, unknown_of
from zoo.checkpoints.vocabulary import NEW, Arrangement, arrange, others_as_option, written_ends
from zoo.errors import InputError
from zoo.vocabulary import PAD, START

TABLES = ("model.embed_tokens.weight", "lm_head.weight")
"""The names of the embeddings and of the matrix of the logits."""
QK_EPSILON = 1e-6
"""ε of the normalisation of queries and keys; those of Qwen3 have one ε for all."""


_OF_TENSORS = "whether there are biases is seen from the tensors"


@register_family(
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    without_influence={
        "attention_bias": _OF_TENSORS,
        "mlp_bias": _OF_TENSORS,
        "max_window_layers": "read where layers have windows",
        "sliding_window": "read where layers have windows",
    },
)
def llama(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of a Llama-like decoder.

    Rotary positions pair neighbours here and features half a head apart there: the columns of queries and keys are put
    in another order. Where some maps have biases (Qwen2), those of the others are zero.

    Raises:
        InputError: If it differs in what we do not have.
    """
    kind, layers = checkpoint.config["model_type"], checkpoint.option("num_hidden_layers", 32)
    if kind == "qwen3":
        checkpoint.option("rms_norm_eps", QK_EPSILON, only=QK_EPSILON)
    if kind == "llama" or not checkpoint.option("use_sliding_window", kind == "mistral"):
        windowed = 0
    else:
        windowed = layers if kind == "mistral" else layers - checkpoint.option("max_window_layers", 28)
    options = {
        "activation": checkpoint.option("hidden_act", "silu"),
        "qk_norm": kind == "qwen3",
        "use_bias": _has_bias(checkpoint),
        "scale_embeddings": False,
        "tied_embeddings": checkpoint.tied(False, *TABLES),
        **windows(checkpoint, [index >= layers - windowed for index in range(layers)]),
    }
    return decoder(checkpoint, options, _weights)


def decoder(
    checkpoint: Checkpoint, options: Mapping[str, Any], weights: Callable[[Checkpoint, Any, Arrangement], Weights]
) -> Imported:
    """Returns a checkpoint of a decoder with RMS norm, rotary positions and gates as one of our models.

    Args:
        checkpoint: The checkpoint.
        options: What its family is alone to say.
        weights: Function of the checkpoint, a model and the order of tokens that yields variables and their values.

    Raises:
        InputError: If it differs in what we do not have.
    """
    heads, dim = checkpoint.option("num_attention_heads", 32), checkpoint.option("hidden_size", 4096)
    size = checkpoint.option("vocab_size", 32000)
    start, (end, *others) = checkpoint.option("bos_token_id"), checkpoint.ends(2)
    pieces = checkpoint.path / "tokenizer.model"
    unknown = unknown_of(pieces.read_bytes()) if pieces.is_file() else None
    pad = checkpoint.option("pad_token_id")
    pad = None if pad in (start, end, unknown, -1) else pad
    order = arrange(size, end if start is None else start, end, pad, unknown)
    groups = checkpoint.option("num_key_value_heads") or heads
    options = {
        "vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("num_hidden_layers", 32),
        "num_heads": heads,
        "num_key_value_heads": 0 if groups == heads else groups,
        "model_dim": dim,
        "key_dim": checkpoint.option("head_dim") or dim // heads,
        "intermediate_dim": checkpoint.option("intermediate_size", 11008),
        "max_length": checkpoint.option("max_position_embeddings", 2048),
        "epsilon": checkpoint.option("rms_norm_eps", 1e-6),
        "dropout": 0.0,
        "other_ends": others_as_option(order, others),
        "start_symbol": unknown is not None,
        **_rotary(checkpoint),
        **options,
        "activation": ACTIVATIONS.get(options["activation"], options["activation"]),
    }
    tokenizers = {"text": text_tokenizer(checkpoint, order)}
    return Imported("causal_lm_modern", options, tokenizers, lambda model: weights(checkpoint, model, order))


def _has_bias(checkpoint: Checkpoint) -> bool:
    return any(checkpoint.has(f"model.layers.0.{name}.bias") for name in ("self_attn.q_proj", "mlp.up_proj"))


_WINDOWED, _FULL = "sliding_attention", "full_attention"


def windows(checkpoint: Checkpoint, usual: Sequence[bool]) -> dict[str, Any]:
    """Returns the options of windows that are shorter than the longest text.

    Args:
        checkpoint: The checkpoint.
        usual: Which layers have a window where `layer_types` does not say so.

    Raises:
        InputError: If there are layers with windows and others, and not each n-th one is of the others.
    """
    window, path = checkpoint.option("sliding_window", 4096), checkpoint.path / "config.json"
    kinds = checkpoint.option("layer_types") or [_WINDOWED if each else _FULL for each in usual]
    if len(kinds) != len(usual) or {*kinds} - {_WINDOWED, _FULL}:
        raise InputError(
            f"{path}: layer_types must be {_WINDOWED} or {_FULL}, for each of {len(usual)} layers. Received: {kinds}."
        )
    if not window or window >= checkpoint.option("max_position_embeddings", 2048) or _WINDOWED not in kinds:
        return {}
    every = kinds.index(_FULL) + 1 if _FULL in kinds else 0
    regular = [_FULL if every and number % every == 0 else _WINDOWED for number in range(1, len(kinds) + 1)]
    if kinds != regular:
        raise InputError(
            f"{path}: windows must be those of all layers, or of all but each n-th one. Received: layer_types={kinds}."
        )
    if window < 2:
        raise InputError(f"{path}: sliding_window must be at least 2. Received: sliding_window={window}.")
    # Ours is the number of positions before a token that it sees, theirs counts its own as well.
    return {"visibility": "window", "window": window - 1, "full_attention_every": every}


def _rotary(checkpoint: Checkpoint) -> dict[str, Any]:
    options = rotary(checkpoint, checkpoint.option("rope_theta", 10000.0))
    fraction = options.pop("rotary_fraction")
    if fraction != 1.0:
        raise InputError(
            f"{checkpoint.config_file}: rotary positions must be of whole heads to be imported. "
            f"Received: partial_rotary_factor={fraction}."
        )
    return options


_SAME = {  # our options, by their names in config.json
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "model_dim",
    "intermediate_size": "intermediate_dim",
    "max_position_embeddings": "max_length",
    "rms_norm_eps": "epsilon",
    "tie_word_embeddings": "tied_embeddings",
    "attention_dropout": "attention_dropout",
}
_ROTARY = ("max_wavelength", *SCALING)
DECODER_FREE = {
    *_SAME.values(),
    *_ROTARY,
    "vocab_size",
    "activation",
    "num_key_value_heads",
    "key_dim",
    "dropout",
    "other_ends",
}
"""Options whose value is free in what is written of a decoder of any of these families, or is checked elsewhere."""
_WINDOW = ("visibility", "window", "full_attention_every")
_FREE = {*DECODER_FREE, "qk_norm", "use_bias", "start_symbol", "feed_forward_dropout"}


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="causal_lm_modern")
def to_llama(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of Llama, of Mistral, of Qwen2 or of Qwen3.

    It is Qwen3 if queries and keys are normalised, Qwen2 if the maps to queries, keys and values alone have biases that
    are not zero, Mistral if all attention has a window, and else Llama.

    Raises:
        InputError: If none of them has such an option or tokenizer.
    """
    model, options = trained.model, trained.options
    free = {*_FREE, *_WINDOW} if options["visibility"] == "window" else _FREE
    trained.check("Llama", free, scale_embeddings=False)
    check_scaling("Llama", options)
    if options["qk_norm"] and options["epsilon"] != QK_EPSILON:
        raise InputError(f"With qk_norm Qwen3 has epsilon={QK_EPSILON} only. Received: epsilon={options['epsilon']}.")
    kind, biased = _kind(model)
    if kind == "llama" and options["visibility"] == "window":
        if biased or options["full_attention_every"]:
            raise InputError("Llama has visibility='full' only, Mistral windows in all layers and no biases.")
        kind = "mistral"
    files, order, begins = decoder_files(trained.tokenizers["text"], rows_of_tokens(model), "Llama")
    if begins != options["start_symbol"]:
        received = f"Received: start_symbol={options['start_symbol']}"
        raise InputError(f"With this tokenizer Llama has start_symbol={begins} only. {received}.")
    config = {
        **decoder_config(trained, order),
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        "hidden_act": activation_name("Llama", options["activation"]),
        "attention_bias": set(_ATTENTION) <= biased,
        "mlp_bias": set(_FEED_FORWARD) <= biased,
    }
    if options["visibility"] == "window":
        windows = window_config(options)
        if kind == "mistral":  # all layers of which have them
            config["sliding_window"] = windows["sliding_window"]
        else:
            config |= {**windows, "use_sliding_window": True}
    return Exported(config, write_mapped(tensors(model, order, order.size, biased)), files)


def decoder_config(trained: Trained, order: Arrangement) -> dict[str, Any]:
    """Returns what `config.json` says of a decoder of any of these families: what `decoder` reads of all of them.

    Args:
        trained: The model.
        order: The order of its tokens.
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
    """Returns what `config.json` says of the windows of a model with these options of ours, and of its layers."""
    every, numbers = options["full_attention_every"], range(1, options["num_layers"] + 1)
    kinds = [_FULL if every and number % every == 0 else _WINDOWED for number in numbers]
    return {"sliding_window": options["window"] + 1, "layer_types": kinds}


def _kind(model: Any) -> tuple[str, set[str]]:
    """Returns the model type of one of our models, and which of its maps have biases."""
    used = {
        name for name, layers in _maps(model).items() if model.use_bias and any(np.any(each.bias) for each in layers)
    }
    if model.qk_norm:
        if used & {*_FEED_FORWARD}:
            raise InputError("Qwen3 has no biases in its feed-forward networks; those of this model are not zero.")
        return "qwen3", {*_ATTENTION} if model.use_bias else set()
    if model.use_bias and used <= {*_QKV}:
        return "qwen2", {*_QKV}
    attention = {*_ATTENTION} if used & {*_ATTENTION} else set()
    return "llama", attention | ({*_FEED_FORWARD} if used & {*_FEED_FORWARD} else set())


_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_ATTENTION = (*_QKV, "self_attn.o_proj")
_FEED_FORWARD = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def _maps(model: Any) -> dict[str, list[Any]]:
    """Returns the maps of all blocks, by what they are called in a block of Llama."""
    maps: dict[str, list[Any]] = {name: [] for name in (*_ATTENTION, *_FEED_FORWARD)}
    for block in model.blocks:
        attention, feed_forward = block.attention, block.feed_forward
        layers = (attention.query_dense, attention.key_dense, attention.value_dense, attention.output_dense)
        gated = (feed_forward.intermediate_dense, feed_forward.linear_dense, feed_forward.output_dense)
        for name, layer in zip(maps, (*layers, *gated), strict=True):
            maps[name].append(layer)
    return maps


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    maps = _maps(model)
    biased = {name for name in maps if checkpoint.has(f"model.layers.0.{name}.bias")}
    yield from read_mapped(checkpoint, tensors(model, order, checkpoint.option("vocab_size", 32000), biased))
    for name in maps if model.use_bias else ():
        for layer in maps[name] if name not in biased else ():
            yield layer.bias, np.zeros(layer.bias.shape, "float32")
    if model.tied_embeddings:
        checkpoint.ignore("lm_head.weight")
    checkpoint.ignore(*(f"model.layers.{index}.self_attn.rotary_emb.inv_freq" for index in range(len(model.blocks))))


def tensors(model: Any, order: Arrangement, size: int, biased: Collection[str]) -> Iterator[Mapped]:
    """Yields the tensors of a Llama with what each holds of a model, to be read or written.

    Args:
        model: The model.
        order: The order of its tokens.
        size: The number of tokens in the checkpoint.
        biased: The maps that have biases, as they are called in a block.
    """
    yield from tables(model, order, size, *TABLES)
    yield from maps_of_blocks(model, biased)
    for index, block in enumerate(model.blocks):
        layer = f"model.layers.{index}."
        if model.qk_norm:
            head = model.options.head_dim
            halves = Reordered(paired(np.arange(head), head), 0, Columns())
            yield from normalization(f"{layer}self_attn.q_norm", block.attention.query_norm, halves)
            yield from normalization(f"{layer}self_attn.k_norm", block.attention.key_norm, halves)
        for norm, name in zip(block.norms, ("input_layernorm", "post_attention_layernorm"), strict=True):
            yield from normalization(f"{layer}{name}", norm)
    yield from normalization("model.norm", model.final_norm)


def maps_of_blocks(model: Any, biased: Collection[str] = ()) -> Iterator[Mapped]:
    """Yields the tensors of the maps in the blocks of a Llama-like decoder.

    Args:
        model: The model.
        biased: The maps that have biases, as they are called in a block.
    """
    head = model.options.head_dim
    for name, layers in _maps(model).items():
        for index, layer in enumerate(layers):
            rotated = name in ("self_attn.q_proj", "self_attn.k_proj")
            outputs = paired(np.arange(layer.kernel.shape[1]), head) if rotated else None
            yield from linear(f"model.layers.{index}.{name}", layer, outputs=outputs, bias=name in biased)
