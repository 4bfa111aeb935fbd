"""Gemma and Gemma 2 (`gemma`, `gemma2`): Llama's blocks with GEGLU; Gemma 2 also has soft caps and windows."""

from collections.abc import Iterator
from dataclasses import replace
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
    DEFAULTS,
    FREE,
    TABLES,
    WINDOW_OPTIONS,
    decoder,
    decoder_config,
    ignore_repeated,
    projection_tensors,
    whole_rotary,
    window_config,
    windows,
)
from zoo.checkpoints.families.layouts import (
    Mapped,
    Scaled,
    Shifted,
    normalization,
    read_mapped,
    rows_of_tokens,
    tables,
    write_mapped,
)
from zoo.checkpoints.tokenizers import decoder_files
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError

_DEFAULTS = {
    **DEFAULTS,
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "tie_word_embeddings": True,
}
_SECOND = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_NORMS = {
    False: (("input_layernorm", "post_attention_layernorm"), ()),
    True: (
        ("input_layernorm", "pre_feedforward_layernorm"),
        ("post_attention_layernorm", "post_feedforward_layernorm"),
    ),
}
"""The normalisations before and after the parts of a block, without and with `sandwich_norm`."""


@register_family("gemma", "gemma2")
def gemma(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of Gemma or Gemma 2 as one of our models.

    Its normalisations multiply by 1 + w, which is one variable here. If its scores are not divided by the root of the
    size of a head (`query_pre_attn_scalar`), the projection of queries is multiplied by the quotient.

    Raises:
        InputError: If it has options that our models do not support.
    """
    is_second = checkpoint.config["model_type"] == "gemma2"
    checkpoint.defaults = {**_DEFAULTS, **(_SECOND if is_second else {})}
    checkpoint.option("attention_bias", False, only=False)
    if checkpoint.option("use_bidirectional_attention"):
        raise InputError(f"{checkpoint.config_file}: use_bidirectional_attention is not supported.")
    former = checkpoint.option("hidden_act")  # files of Gemma 2 may have both keys
    activation = checkpoint.option("hidden_activation") or former
    options = {
        # The files of the first Gemma name the exact GELU where its models have the approximation.
        "activation": "gelu_tanh" if activation == "gelu" and not is_second else activation,
        "qk_norm": False,
        "scale_embeddings": True,
        **whole_rotary(checkpoint),
    }
    if is_second:
        layers = checkpoint.option("num_hidden_layers")
        options |= {
            "sandwich_norm": True,
            "logit_softcap": checkpoint.option("attn_logit_softcapping") or 0.0,
            "output_softcap": checkpoint.option("final_logit_softcapping") or 0.0,
            **windows(checkpoint, [index % 2 == 0 for index in range(layers)]),
        }
    return decoder(checkpoint, options, _weights)


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    head_dim = model.options.head_dim
    scalar = checkpoint.option("query_pre_attn_scalar") if model.sandwich_norm else head_dim
    factor = (head_dim / scalar) ** 0.5
    yield from read_mapped(checkpoint, tensors(model, order, checkpoint.option("vocab_size"), factor))
    ignore_repeated(checkpoint, model)


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="causal_lm_modern")
def to_gemma(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of Gemma 2 if it has `sandwich_norm`, and else of Gemma.

    Raises:
        InputError: If that does not support an option or the tokenizer.
    """
    model, options = trained.model, trained.options
    is_second = options["sandwich_norm"]
    family = "Gemma 2" if is_second else "Gemma"
    of_second = {"sandwich_norm", "logit_softcap", "output_softcap", *WINDOW_OPTIONS} if is_second else set()
    trained.check(family, FREE | of_second, qk_norm=False)
    if options["visibility"] not in ("full", "window"):
        raise InputError(
            f"{family} supports only visibility full or window. Received: visibility={options['visibility']!r}."
        )
    files, order, begins = decoder_files(trained.tokenizers["text"], rows_of_tokens(model), family)
    if not begins:
        kind = trained.tokenizers["text"].kind
        raise InputError(f"The tokenizer of {family} must be one of SentencePiece. Received: tokenizer={kind!r}.")
    files["tokenizer_config.json"]["tokenizer_class"] = "GemmaTokenizer"
    if options["activation"] == "gelu" and not is_second:
        raise InputError("Gemma has no exact GELU. Received: activation='gelu'.")
    is_approximate = options["activation"] == "gelu_tanh"
    activation = "gelu_pytorch_tanh" if is_approximate else activation_name(family, options["activation"])
    config = {
        **decoder_config(trained, order),
        "architectures": ["Gemma2ForCausalLM" if is_second else "GemmaForCausalLM"],
        "model_type": "gemma2" if is_second else "gemma",
        "hidden_act": activation,
        "hidden_activation": activation,
    }
    if is_second:
        config |= {
            "query_pre_attn_scalar": model.options.head_dim,
            "attn_logit_softcapping": options["logit_softcap"] or None,
            "final_logit_softcapping": options["output_softcap"] or None,
            **window_config(options),
        }
    return Exported(config, write_mapped(tensors(model, order, order.size)), files)


def tensors(model: Any, order: Arrangement, size: int, query_factor: float = 1.0) -> Iterator[Mapped]:
    """Yields the tensors of a Gemma and the variables that they are composed of.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
        query_factor: Factor from the queries of the checkpoint to ours.
    """
    yield from tables(model, order, size, *TABLES)
    for mapped in projection_tensors(model):
        is_scaled = query_factor != 1.0 and mapped.name.endswith("q_proj.weight")
        yield replace(mapped, layout=Scaled(query_factor, mapped.layout)) if is_scaled else mapped
    before, after = _NORMS[model.sandwich_norm]
    for index, block in enumerate(model.blocks):
        for norms, names in ((block.norms, before), (block.output_norms, after)):
            for norm, name in zip(norms, names, strict=True):
                yield from normalization(f"model.layers.{index}.{name}", norm, Shifted(1.0))
    yield from normalization("model.norm", model.final_norm, Shifted(1.0))
