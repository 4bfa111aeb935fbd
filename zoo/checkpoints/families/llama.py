"""Llama and its relatives (`llama`, `mistral`, `qwen2`, `qwen3`): RMS norm, rotary positions, gates, grouped heads."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import (
    Exported,
    Imported,
    Trained,
    Weights,
    activation_name,
    paired,
    register_family,
    register_writer,
)
from zoo.checkpoints.families.decoders import (
    ATTENTION,
    DEFAULTS,
    FEED_FORWARD,
    FREE,
    QK_EPSILON,
    QKV,
    TABLES,
    WINDOW_OPTIONS,
    biased_projections,
    decoder,
    decoder_config,
    ignore_repeated,
    missing_biases,
    projection_tensors,
    projections,
    whole_rotary,
    window_config,
    windows,
)
from zoo.checkpoints.families.layouts import (
    Columns,
    Mapped,
    Reordered,
    normalization,
    read_mapped,
    rows_of_tokens,
    tables,
    write_mapped,
)
from zoo.checkpoints.families.rotary import check_scaling
from zoo.checkpoints.tokenizers import decoder_files
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError

_QWEN = {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32, "max_position_embeddings": 32768}
_DEFAULTS = {
    "llama": {"bos_token_id": 1, "eos_token_id": 2},
    "mistral": {
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "qwen2": {**_QWEN, "sliding_window": 4096},
    "qwen3": {**_QWEN, "sliding_window": 4096, "head_dim": 128},
}
_OF_TENSORS = "the tensors show whether there are biases"


@register_family(
    *_DEFAULTS,
    without_influence={
        "attention_bias": _OF_TENSORS,
        "mlp_bias": _OF_TENSORS,
        "max_window_layers": "read where layers have windows",
        "sliding_window": "read where layers have windows",
    },
)
def llama(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of a Llama-like decoder as one of our models.

    If only some projections have biases (Qwen2), those of the others are zero in our model.

    Raises:
        InputError: If it has options that our models do not support.
    """
    kind = checkpoint.config["model_type"]
    checkpoint.defaults = {**DEFAULTS, **_DEFAULTS[kind]}
    layers = checkpoint.option("num_hidden_layers")
    if kind == "qwen3":
        checkpoint.option("rms_norm_eps", only=QK_EPSILON)
    if kind == "llama" or not checkpoint.option("use_sliding_window", kind == "mistral"):
        windowed = 0
    else:
        windowed = layers if kind == "mistral" else layers - checkpoint.option("max_window_layers", 28)
    options = {
        "activation": checkpoint.option("hidden_act"),
        "qk_norm": kind == "qwen3",
        "use_bias": _has_bias(checkpoint),
        "scale_embeddings": False,
        **whole_rotary(checkpoint),
        **windows(checkpoint, [index >= layers - windowed for index in range(layers)]),
    }
    return decoder(checkpoint, options, _weights)


def _has_bias(checkpoint: Checkpoint) -> bool:
    return any(checkpoint.has(f"model.layers.0.{name}.bias") for name in ("self_attn.q_proj", "mlp.up_proj"))


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="causal_lm_modern")
def to_llama(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of Llama, Mistral, Qwen2 or Qwen3.

    It is Qwen3 with `qk_norm`, Qwen2 if only the projections of queries, keys and values have biases that are not zero,
    Mistral if all layers have windows, and else Llama.

    Raises:
        InputError: If none of them supports an option or the tokenizer.
    """
    model, options = trained.model, trained.options
    free = {*FREE, "qk_norm", "use_bias", "start_symbol", "feed_forward_dropout"}
    free |= WINDOW_OPTIONS if options["visibility"] == "window" else set()
    trained.check("Llama", free, scale_embeddings=False)
    check_scaling("Llama", options)
    if options["qk_norm"] and options["epsilon"] != QK_EPSILON:
        received = f"Received: epsilon={options['epsilon']}"
        raise InputError(f"With qk_norm Qwen3 supports only epsilon={QK_EPSILON}. {received}.")
    kind, biased = _kind(model)
    if kind == "llama" and options["visibility"] == "window":
        if biased or options["full_attention_every"]:
            raise InputError("Llama supports only visibility='full', Mistral only windows in all layers and no biases.")
        kind = "mistral"
    files, order, begins = decoder_files(trained.tokenizers["text"], rows_of_tokens(model), "Llama")
    if begins != options["start_symbol"]:
        received = f"Received: start_symbol={options['start_symbol']}"
        raise InputError(f"With this tokenizer Llama supports only start_symbol={begins}. {received}.")
    config = {
        **decoder_config(trained, order),
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        "hidden_act": activation_name("Llama", options["activation"]),
        "attention_bias": set(ATTENTION) <= biased,
        "mlp_bias": set(FEED_FORWARD) <= biased,
    }
    if options["visibility"] == "window":
        windowed = window_config(options)
        if kind == "mistral":  # has windows in all layers
            config["sliding_window"] = windowed["sliding_window"]
        else:
            config |= {**windowed, "use_sliding_window": True}
    return Exported(config, write_mapped(tensors(model, order, order.size, biased)), files)


def _kind(model: Any) -> tuple[str, set[str]]:
    """Returns the model type for one of our models, and the names of the projections that have biases in it."""
    used = {
        name
        for name, layers in projections(model).items()
        if model.use_bias and any(np.any(layer.bias) for layer in layers)
    }
    if model.qk_norm:
        if used & {*FEED_FORWARD}:
            raise InputError("Qwen3 has no biases in its feed-forward networks; those of this model are not zero.")
        return "qwen3", {*ATTENTION} if model.use_bias else set()
    if model.use_bias and used <= {*QKV}:
        return "qwen2", {*QKV}
    biased = {*ATTENTION} if used & {*ATTENTION} else set()
    return "llama", biased | ({*FEED_FORWARD} if used & {*FEED_FORWARD} else set())


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    biased = biased_projections(checkpoint, model)
    yield from read_mapped(checkpoint, tensors(model, order, checkpoint.option("vocab_size"), biased))
    yield from missing_biases(model, biased)
    ignore_repeated(checkpoint, model)


def tensors(model: Any, order: Arrangement, size: int, biased: Collection[str]) -> Iterator[Mapped]:
    """Yields the tensors of a Llama and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
        biased: The names of the projections that have biases.
    """
    yield from tables(model, order, size, *TABLES)
    yield from projection_tensors(model, biased)
    for index, block in enumerate(model.blocks):
        layer = f"model.layers.{index}."
        if model.qk_norm:
            head_dim = model.options.head_dim
            halves = Reordered(paired(np.arange(head_dim), head_dim), 0, Columns())
            yield from normalization(f"{layer}self_attn.q_norm", block.attention.query_norm, halves)
            yield from normalization(f"{layer}self_attn.k_norm", block.attention.key_norm, halves)
        for norm, name in zip(block.norms, ("input_layernorm", "post_attention_layernorm"), strict=True):
            yield from normalization(f"{layer}{name}", norm)
    yield from normalization("model.norm", model.final_norm)
