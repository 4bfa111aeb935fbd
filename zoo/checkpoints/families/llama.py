"""Llama and its relatives (`llama`, `mistral`, `qwen2`, `qwen3`, `smollm3`).

They have RMS norm, rotary positions, gated feed-forward networks and grouped heads.
"""

from collections.abc import Mapping
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import (
    Exported,
    Imported,
    Trained,
    Weights,
    activation_name,
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
    WINDOW_OPTIONS,
    block_tensors,
    block_weights,
    check_epsilon,
    decoder,
    decoder_config,
    decoder_tokenizer,
    used_biases,
    whole_rotary,
    window_config,
    windows,
)
from zoo.checkpoints.families.layouts import write_mapped
from zoo.checkpoints.families.rotary import check_scaling
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError

_QWEN = {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
}
_NORMS = ("input_layernorm", "post_attention_layernorm")
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"bos_token_id": 1, "eos_token_id": 2},
    "mistral": {
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, "head_dim": 128},
    "smollm3": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rope_theta": 2000000.0,
        "pad_token_id": 128004,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "tie_word_embeddings": True,
    },
}
_ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
_NO_CHOICE = "read where the family has the choice"


@register_family(
    *_DEFAULTS,
    without_influence={
        "attention_bias": _NO_CHOICE,
        "mlp_bias": _NO_CHOICE,
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
    without_positions = _layers_without_positions(checkpoint, layers) if kind == "smollm3" else [False] * layers
    if kind == "llama" or not checkpoint.option("use_sliding_window", kind == "mistral"):
        windowed = [False] * layers
    elif kind == "smollm3":
        windowed = without_positions if checkpoint.option("sliding_window") else [False] * layers
    else:
        first = 0 if kind == "mistral" else checkpoint.option("max_window_layers", 28)
        windowed = [index >= first for index in range(layers)]
    options = {
        "activation": checkpoint.option("hidden_act"),
        "qk_norm": kind == "qwen3",
        "use_bias": bool(_biased(checkpoint)),
        "scale_embeddings": False,
        "no_positions_every": without_positions.index(True) + 1 if True in without_positions else 0,
        **whole_rotary(checkpoint),
        **windows(checkpoint, windowed),
    }
    return decoder(checkpoint, options, _weights)


def _biased(checkpoint: Checkpoint) -> set[str]:
    """Returns the names of the projections that have biases."""
    kind = checkpoint.config["model_type"]
    if kind in ("mistral", "qwen2"):
        return {*QKV} if kind == "qwen2" else set()
    biased = {*ATTENTION} if checkpoint.option("attention_bias", False) else set()
    return biased | ({*FEED_FORWARD} if kind != "qwen3" and checkpoint.option("mlp_bias", False) else set())


def _layers_without_positions(checkpoint: Checkpoint, layers: int) -> list[bool]:
    """Returns which layers of a SmolLM3 have no rotary positions; raises InputError unless it is each n-th one."""
    file, interval = checkpoint.config_file, checkpoint.option("no_rope_layer_interval", 4)
    uses_rope = checkpoint.option("no_rope_layers")  # 1 for layers with rotary positions, against its name
    if uses_rope is None:
        if not isinstance(interval, int) or interval < 1:
            raise InputError(f"{file}: no_rope_layer_interval must be a positive integer. Received: {interval!r}.")
        return _each_nth(interval, layers)
    without = [not uses for uses in uses_rope[:layers]]
    if without not in (_each_nth(every, layers) for every in range(1, layers + 2)):
        raise InputError(
            f"{file}: no_rope_layers must be 0 for each n-th of {layers} layers, and 1 for the others. "
            f"Received: {uses_rope}."
        )
    return without


def _each_nth(every: int, layers: int) -> list[bool]:
    return [number % every == 0 for number in range(1, layers + 1)]


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="causal_lm_modern")
def to_llama(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of Llama, Mistral, Qwen2, Qwen3 or SmolLM3.

    It is Qwen3 with `qk_norm`, SmolLM3 with `no_positions_every`, Qwen2 if only the projections of queries, keys and
    values have biases that are not zero, Mistral if all layers have windows, and else Llama.

    Raises:
        InputError: If none of them supports an option or the tokenizer.
    """
    model, options = trained.model, trained.options
    free = {*FREE, "qk_norm", "use_bias", "start_symbol", "feed_forward_dropout", "no_positions_every"}
    free |= WINDOW_OPTIONS if options["visibility"] == "window" else set()
    trained.check("Llama", free, scale_embeddings=False)
    check_scaling("Llama", options)
    if options["qk_norm"]:
        check_epsilon("Qwen3", options["epsilon"])
    kind, biased = _kind(model)
    if kind == "llama" and options["visibility"] == "window":
        if biased or options["full_attention_every"]:
            raise InputError("Llama supports only visibility='full', Mistral only windows in all layers and no biases.")
        kind = "mistral"
    files, order = decoder_tokenizer(trained, "Llama")
    config = {
        **decoder_config(trained, order),
        "architectures": [_ARCHITECTURES[kind]],
        "model_type": kind,
        "hidden_act": activation_name("Llama", options["activation"]),
        "attention_bias": set(ATTENTION) <= biased,
        "mlp_bias": set(FEED_FORWARD) <= biased,
    }
    if kind == "smollm3":
        without = _each_nth(options["no_positions_every"], options["num_layers"])
        config |= {"no_rope_layers": [int(not is_without) for is_without in without], **window_config(options)}
    if options["visibility"] == "window":
        windowed = window_config(options)
        if kind == "mistral":  # has windows in all layers
            config["sliding_window"] = windowed["sliding_window"]
        else:
            config |= {**windowed, "use_sliding_window": True}
    return Exported(config, write_mapped(block_tensors(model, order, order.size, biased, _NORMS)), files)


def _kind(model: Any) -> tuple[str, set[str]]:
    """Returns the model type for one of our models, and the names of the projections that have biases in it."""
    used = used_biases(model)
    if model.qk_norm:
        if used & {*FEED_FORWARD}:
            raise InputError("Qwen3 has no biases in its feed-forward networks; those of this model are not zero.")
        if model.no_positions_every:
            raise InputError("SmolLM3 supports only qk_norm=False. Received: qk_norm=True.")
        return "qwen3", {*ATTENTION} if model.use_bias else set()
    if model.use_bias and used <= {*QKV} and not model.no_positions_every:
        return "qwen2", {*QKV}
    biased = {*ATTENTION} if used & {*ATTENTION} else set()
    biased |= {*FEED_FORWARD} if used & {*FEED_FORWARD} else set()
    return "smollm3" if model.no_positions_every else "llama", biased


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    return block_weights(checkpoint, model, order, _biased(checkpoint), _NORMS)
