"""Llama and its relatives (`llama`, `mistral`, `qwen2`, `qwen3`): RMS norm, rotary positions, gates, grouped heads."""

from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import Imported, Weights, dense, paired, register_family
from zoo.checkpoints.tokenizers import text_tokenizer
from zoo.checkpoints.vocabulary import Arrangement, arrange
from zoo.errors import InputError

# Kinds of `rope_scaling` that need no more than our options say.
_SCALINGS = {"default": "none", "linear": "linear", "llama3": "llama3"}


@register_family("llama", "mistral", "qwen2", "qwen3")
def llama(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of a Llama-like decoder.

    Rotary positions pair neighbours here and features half a head apart there: the columns of queries and keys are put
    in another order. Where some maps have biases (Qwen2), those of the others are zero.

    Raises:
        InputError: If it differs in what we do not have, such as a window that is shorter than its texts.
    """
    heads, dim = checkpoint.option("num_attention_heads", 32), checkpoint.option("hidden_size", 4096)
    head_dim = checkpoint.option("head_dim") or dim // heads
    length, size = checkpoint.option("max_position_embeddings", 2048), checkpoint.option("vocab_size", 32000)
    _check_window(checkpoint, length)
    start, end = checkpoint.option("bos_token_id"), checkpoint.option("eos_token_id", 2)
    end = end[0] if isinstance(end, list) else end
    unknown = 0 if (checkpoint.path / "tokenizer.model").is_file() else None
    pad = checkpoint.option("pad_token_id")
    pad = None if pad in (start, end, unknown, -1) else pad
    order = arrange(size, end if start is None else start, end, pad, unknown)
    options = {
        "vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("num_hidden_layers", 32),
        "num_heads": heads,
        "num_key_value_heads": _grouped(checkpoint.option("num_key_value_heads") or heads, heads),
        "model_dim": dim,
        "key_dim": head_dim,
        "intermediate_dim": checkpoint.option("intermediate_size", 11008),
        "max_length": length,
        "activation": checkpoint.option("hidden_act", "silu"),
        "epsilon": checkpoint.option("rms_norm_eps", 1e-6),
        "qk_norm": checkpoint.config["model_type"] == "qwen3",
        "use_bias": _has_bias(checkpoint),
        "scale_embeddings": False,
        "tied_embeddings": checkpoint.option("tie_word_embeddings", False),
        "dropout": 0.0,
        "start_symbol": unknown is not None,
        **_rotary(checkpoint),
    }
    tokenizers = {"text": text_tokenizer(checkpoint, order)}
    return Imported("causal_lm_modern", options, tokenizers, lambda model: _weights(checkpoint, model, order))


def _grouped(groups: int, heads: int) -> int:
    return 0 if groups == heads else groups


def _has_bias(checkpoint: Checkpoint) -> bool:
    return checkpoint.has("model.layers.0.self_attn.q_proj.bias") or checkpoint.has("model.layers.0.mlp.up_proj.bias")


def _check_window(checkpoint: Checkpoint, length: int) -> None:
    window = checkpoint.option("sliding_window")
    if window and checkpoint.option("use_sliding_window", True) and window < length:
        raise InputError(
            f"{checkpoint.path / 'config.json'}: a sliding_window below max_position_embeddings is not supported. "
            f"Received: sliding_window={window}, max_position_embeddings={length}."
        )


def _rotary(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the options of rotary positions, which newer files keep in `rope_parameters`."""
    parameters = checkpoint.option("rope_parameters") or checkpoint.option("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    known = kind in _SCALINGS and (parameters.get("low_freq_factor", 1.0), parameters.get("high_freq_factor", 4.0)) == (
        1.0,
        4.0,
    )
    if not known or parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise InputError(
            f"{checkpoint.path / 'config.json'}: rotary positions must be of whole heads and of the types "
            f"{', '.join(_SCALINGS)}. Received: {parameters}."
        )
    options = {
        "max_wavelength": float(parameters.get("rope_theta", checkpoint.option("rope_theta", 10000.0))),
        "rope_scaling": _SCALINGS[kind],
    }
    if kind != "default":
        options["rope_factor"] = float(parameters["factor"])
    if kind == "llama3":
        options["rope_original_length"] = parameters["original_max_position_embeddings"]
    return options


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    dim, inner, head = model.model_dim, model.intermediate_dim, model.key_dim
    size = checkpoint.option("vocab_size", 32000)
    inside, memory = model.num_heads * head, (model.num_key_value_heads or model.num_heads) * head
    yield model.embedding.embeddings, order.rows(checkpoint.read("model.embed_tokens.weight", (size, dim)))
    if model.tied_embeddings:
        checkpoint.ignore("lm_head.weight")
    else:
        yield model.embedding.reverse_embeddings, order.rows(checkpoint.read("lm_head.weight", (size, dim))).T

    for index, block in enumerate(model.blocks):
        layer, attention, feed_forward = f"model.layers.{index}.", block.attention, block.feed_forward
        for part, name, sizes, rotated in (
            (attention.query_dense, "self_attn.q_proj", (dim, inside), True),
            (attention.key_dense, "self_attn.k_proj", (dim, memory), True),
            (attention.value_dense, "self_attn.v_proj", (dim, memory), False),
            (attention.output_dense, "self_attn.o_proj", (inside, dim), False),
            (feed_forward.intermediate_dense, "mlp.gate_proj", (dim, inner), False),
            (feed_forward.linear_dense, "mlp.up_proj", (dim, inner), False),
            (feed_forward.output_dense, "mlp.down_proj", (inner, dim), False),
        ):
            kernel = checkpoint.read(f"{layer}{name}.weight", sizes[::-1]).T
            bias = None
            if model.use_bias:
                has = checkpoint.has(f"{layer}{name}.bias")
                bias = checkpoint.read(f"{layer}{name}.bias", sizes[1:]) if has else np.zeros(sizes[1], "float32")
            if rotated:
                kernel, bias = paired(kernel, head), None if bias is None else paired(bias, head)
            yield from dense(part, kernel, bias)
        if model.qk_norm:
            for norm, name in ((attention.query_norm, "q_norm"), (attention.key_norm, "k_norm")):
                yield norm.scale, paired(checkpoint.read(f"{layer}self_attn.{name}.weight", (head,)), head)
        for norm, name in zip(block.norms, ("input_layernorm", "post_attention_layernorm"), strict=True):
            yield norm.scale, checkpoint.read(f"{layer}{name}.weight", (dim,))
        checkpoint.ignore(f"{layer}self_attn.rotary_emb.inv_freq")
    yield model.final_norm.scale, checkpoint.read("model.norm.weight", (dim,))
