"""Phi-3 (`phi3`): Llama with fused projections, and heads of which a part may be rotated."""

from collections.abc import Iterator
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
    DEFAULTS,
    FREE,
    TABLES,
    WINDOW_OPTIONS,
    decoder,
    decoder_config,
    decoder_tokenizer,
    ignore_repeated,
    window_config,
    windows,
)
from zoo.checkpoints.families.layouts import Mapped, linear, normalization, read_mapped, tables, write_mapped
from zoo.checkpoints.families.rotary import rotary
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError

_DEFAULTS = {
    **DEFAULTS,
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 32000,
    "pad_token_id": 32000,
}


@register_family(
    "phi3",
    without_influence={
        "original_max_position_embeddings": "belongs to scalings that are not supported",
        "resid_pdrop": "acts in training alone",
    },
)
def phi3(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of Phi-3 as one of our models.

    Raises:
        InputError: If it has options that our models do not support.
    """
    checkpoint.defaults = _DEFAULTS
    file = checkpoint.config_file
    checkpoint.option("layer_types", only=None)  # Phi-3 has windows in all layers or in none
    positions = rotary(checkpoint, checkpoint.option("rope_theta"), checkpoint.option("partial_rotary_factor", 1.0))
    if positions["rope_scaling"] != "none":
        raise InputError(
            f"{file}: the rope_type of Phi-3 must be default to be imported. Received: {positions['rope_scaling']!r}."
        )
    options = {
        "activation": checkpoint.option("hidden_act"),
        "qk_norm": False,
        "scale_embeddings": False,
        **positions,
        **windows(checkpoint, [True] * checkpoint.option("num_hidden_layers")),
    }
    imported = decoder(checkpoint, options, _weights)
    rotated = int(imported.options["key_dim"] * positions["rotary_fraction"])
    if rotated % 2:
        raise InputError(f"{file}: partial_rotary_factor must rotate pairs of features. Received: {rotated} features.")
    return imported


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="causal_lm_modern")
def to_phi3(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of Phi-3.

    Raises:
        InputError: If Phi-3 does not support an option or the tokenizer.
    """
    model, options = trained.model, trained.options
    free = {*FREE, "rotary_fraction", "start_symbol", "feed_forward_dropout"}
    free |= WINDOW_OPTIONS if options["visibility"] == "window" else set()
    trained.check("Phi-3", free, qk_norm=False, scale_embeddings=False)
    for name, only in (("rope_scaling", "none"), ("full_attention_every", 0)):
        if options[name] != only:
            raise InputError(f"Phi-3 supports only {name}={only!r}. Received: {name}={options[name]!r}.")
    files, order = decoder_tokenizer(trained, "Phi-3")
    config = {
        **decoder_config(trained, order),
        "architectures": ["Phi3ForCausalLM"],
        "model_type": "phi3",
        "hidden_act": activation_name("Phi-3", options["activation"]),
        "sliding_window": window_config(options).get("sliding_window"),
    }
    config["rope_parameters"] |= {"partial_rotary_factor": options["rotary_fraction"]}
    return Exported(config, write_mapped(tensors(model, order, order.size)), files)


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    yield from read_mapped(checkpoint, tensors(model, order, checkpoint.option("vocab_size")))
    ignore_repeated(checkpoint, model)


def tensors(model: Any, order: Arrangement, size: int) -> Iterator[Mapped]:
    """Yields the tensors of a Phi-3 and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
    """
    yield from tables(model, order, size, *TABLES)
    for index, block in enumerate(model.blocks):
        layer, attention, feed_forward = f"model.layers.{index}.", block.attention, block.feed_forward
        attending = (attention.query_dense, attention.key_dense, attention.value_dense)
        gated = (feed_forward.intermediate_dense, feed_forward.linear_dense)
        for name, layers, outputs in (
            ("self_attn.qkv_proj", attending, _columns(model.options, attending)),
            ("self_attn.o_proj", (attention.output_dense,), None),
            ("mlp.gate_up_proj", gated, None),
            ("mlp.down_proj", (feed_forward.output_dense,), None),
        ):
            yield from linear(f"{layer}{name}", *layers, outputs=outputs, bias=False)
        for norm, name in zip(block.norms, ("input_layernorm", "post_attention_layernorm"), strict=True):
            yield from normalization(f"{layer}{name}", norm)
    yield from normalization("model.norm", model.final_norm)


def _columns(options: Any, attending: tuple[Any, ...]) -> np.ndarray:
    """Returns the columns of our queries, keys and values in the fused projection."""
    sizes = [layer.kernel.shape[1] for layer in attending]
    query, key, value = np.split(np.arange(sum(sizes)), np.cumsum(sizes[:-1]))
    return np.concatenate([*(paired(part, options.head_dim, options.rotated_dim) for part in (query, key)), value])
