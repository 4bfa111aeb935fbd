"""OLMo 2 (`olmo2`): Llama with norms after the parts of a block, and queries and keys normalised across heads."""

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
    FREE,
    QK_EPSILON,
    block_tensors,
    block_weights,
    check_epsilon,
    decoder,
    decoder_config,
    decoder_tokenizer,
    used_biases,
    whole_rotary,
)
from zoo.checkpoints.families.layouts import write_mapped
from zoo.checkpoints.families.rotary import check_scaling
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError

_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
_DEFAULTS = {**DEFAULTS, "vocab_size": 50304, "rms_norm_eps": 1e-5, "eos_token_id": 50279, "pad_token_id": 1}


@register_family("olmo2")
def olmo2(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of OLMo 2 as one of our models.

    Raises:
        InputError: If it has options that our models do not support.
    """
    checkpoint.defaults = _DEFAULTS
    checkpoint.option("rms_norm_eps", only=QK_EPSILON)
    options = {
        "activation": checkpoint.option("hidden_act"),
        "normalize_first": False,
        "res_post_norm": True,
        "qk_norm": True,
        "qk_norm_across_heads": True,
        "use_bias": bool(_biased(checkpoint)),
        "scale_embeddings": False,
        **whole_rotary(checkpoint),
    }
    return decoder(checkpoint, options, _weights)


def _biased(checkpoint: Checkpoint) -> set[str]:
    return {*ATTENTION} if checkpoint.option("attention_bias", False) else set()


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="causal_lm_modern")
def to_olmo2(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of OLMo 2.

    Raises:
        InputError: If OLMo 2 does not support an option or the tokenizer.
    """
    model, options = trained.model, trained.options
    fixed = {"normalize_first": False, "res_post_norm": True, "qk_norm_across_heads": True, "scale_embeddings": False}
    trained.check("OLMo 2", {*FREE, "use_bias", "start_symbol", "feed_forward_dropout"}, **fixed)
    check_scaling("OLMo 2", options)
    check_epsilon("OLMo 2", options["epsilon"])
    biased = {*ATTENTION} if used_biases(model) else set()
    if used_biases(model) - biased:
        raise InputError("OLMo 2 has no biases in its feed-forward networks; those of this model are not zero.")
    files, order = decoder_tokenizer(trained, "OLMo 2")
    config = {
        **decoder_config(trained, order),
        "architectures": ["Olmo2ForCausalLM"],
        "model_type": "olmo2",
        "hidden_act": activation_name("OLMo 2", options["activation"]),
        "attention_bias": bool(biased),
    }
    return Exported(config, write_mapped(block_tensors(model, order, order.size, biased, _NORMS)), files)


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    return block_weights(checkpoint, model, order, _biased(checkpoint), _NORMS)
