"""Gemma, Gemma 2 and the text models of Gemma 3 (`gemma`, `gemma2`, `gemma3_text`).

They are Llama's blocks with GEGLU; Gemma 2 and 3 also have windows and norms before and after each part, Gemma 2 soft
caps, and Gemma 3 normalised queries and keys and two wavelengths of rotary positions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.decoder_tokenizers import decoder_files
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
    FULL,
    QK_EPSILON,
    TABLES,
    WINDOW_OPTIONS,
    WINDOWED,
    check_epsilon,
    decoder,
    decoder_config,
    ignore_repeated,
    projection_tensors,
    qk_norm_tensors,
    whole_rotary,
    window_config,
    windows,
)
from zoo.checkpoints.families.layouts import (
    Columns,
    Mapped,
    Scaled,
    Shifted,
    normalization,
    read_mapped,
    rows_of_tokens,
    tables,
    write_mapped,
)
from zoo.checkpoints.families.rotary import rotary_options
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.text import ReorderedSubwordTokenizer

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
_THIRD = {
    **_SECOND,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
}
_NORMS = {
    False: (("input_layernorm", "post_attention_layernorm"), ()),
    True: (
        ("input_layernorm", "pre_feedforward_layernorm"),
        ("post_attention_layernorm", "post_feedforward_layernorm"),
    ),
}
"""The normalisations before and after the parts of a block, without and with `sandwich_norm`."""


@register_family("gemma")
def gemma(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of the first Gemma as one of our models.

    The normalisations of all Gemmas multiply by 1 + w, which is one variable here.

    Raises:
        InputError: If it has options that our models do not support.
    """
    checkpoint.defaults = _DEFAULTS
    former = checkpoint.option("hidden_act")
    activation = checkpoint.option("hidden_activation") or former
    # Its files name the exact GELU where its models have the approximation.
    return _gemma(checkpoint, "gelu_tanh" if activation == "gelu" else activation, whole_rotary(checkpoint))


_HIDDEN_ACT = {"hidden_act": "hidden_activation counts"}


@register_family("gemma2", without_influence=_HIDDEN_ACT)
def gemma2(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of Gemma 2 as one of our models.

    If its scores are not divided by the root of the size of a head (`query_pre_attn_scalar`), the projection of queries
    is multiplied by the quotient.

    Raises:
        InputError: If it has options that our models do not support.
    """
    checkpoint.defaults = {**_DEFAULTS, **_SECOND}
    layers = checkpoint.option("num_hidden_layers")
    options = {
        "sandwich_norm": True,
        "logit_softcap": checkpoint.option("attn_logit_softcapping") or 0.0,
        "output_softcap": checkpoint.option("final_logit_softcapping") or 0.0,
        **whole_rotary(checkpoint),
        **windows(checkpoint, [index % 2 == 0 for index in range(layers)]),
    }
    return _gemma(checkpoint, checkpoint.option("hidden_activation", "gelu_pytorch_tanh"), options)


@register_family(
    "gemma3_text", without_influence={**_HIDDEN_ACT, "_sliding_window_pattern": "layer_types has what it gives"}
)
def gemma3(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of a text model of Gemma 3 as one of our models.

    If its scores are not divided by the root of the size of a head (`query_pre_attn_scalar`), the scale of the
    normalised queries is multiplied by the quotient.

    Raises:
        InputError: If it has options that our models do not support.
    """
    checkpoint.defaults = {**_DEFAULTS, **_THIRD}
    layers = checkpoint.option("num_hidden_layers")
    checkpoint.option("attn_logit_softcapping", only=None)  # transformers reads it and does not cap
    checkpoint.option("rms_norm_eps", only=QK_EPSILON)
    pattern = checkpoint.option("sliding_window_pattern", 6)
    if not isinstance(pattern, int) or pattern < 1:
        raise InputError(
            f"{checkpoint.config_file}: sliding_window_pattern must be a positive integer. Received: {pattern!r}."
        )
    options = {
        "qk_norm": True,
        "sandwich_norm": True,
        "output_softcap": checkpoint.option("final_logit_softcapping") or 0.0,
        **windows(checkpoint, [(index + 1) % pattern != 0 for index in range(layers)], always=True),
    }
    options |= _rotary_by_layer(checkpoint, "visibility" in options)
    return _gemma(checkpoint, checkpoint.option("hidden_activation", "gelu_pytorch_tanh"), options)


def _rotary_by_layer(checkpoint: Checkpoint, has_windows: bool) -> dict[str, Any]:
    """Returns the options of rotary positions that differ between layers with and without a window."""
    file, kinds = checkpoint.config_file, (FULL, WINDOWED)
    described, scaling = (checkpoint.option(name) or {} for name in ("rope_parameters", "rope_scaling"))
    wavelengths = checkpoint.option("rope_theta"), checkpoint.option("rope_local_base_freq", 10000.0)
    if described and scaling:
        raise InputError(f"{file}: rope_scaling must be left out beside rope_parameters. Received: {scaling!r}.")
    if not isinstance(described, dict) or {*described} - {*kinds}:
        raise InputError(f"{file}: rope_parameters must hold {' and '.join(kinds)}. Received: {described!r}.")
    full, windowed = (
        rotary_options(f"{file}: rope_parameters of {kind}", described.get(kind) or former, wavelength)
        for kind, former, wavelength in zip(kinds, (scaling, {}), wavelengths, strict=True)
    )
    for kind, options in zip(kinds, (full, windowed), strict=True):
        if options.pop("rotary_fraction") != 1.0:
            raise InputError(f"{file}: rope_parameters of {kind} must have no partial_rotary_factor. Received: one.")
    if not has_windows or windowed == full:
        return full
    if windowed["rope_scaling"] != "none":
        raise InputError(
            f"{file}: rope_parameters of {WINDOWED} must be of the type default. "
            f"Received: {windowed['rope_scaling']!r}."
        )
    return {**full, "window_wavelength": windowed["max_wavelength"]}


def _gemma(checkpoint: Checkpoint, activation: str, options: Mapping[str, Any]) -> Imported:
    """Returns a checkpoint of a Gemma; the options are those that differ between the three."""
    checkpoint.option("attention_bias", False, only=False)
    if checkpoint.option("use_bidirectional_attention"):
        raise InputError(f"{checkpoint.config_file}: use_bidirectional_attention is not supported.")
    return decoder(
        checkpoint, {"activation": activation, "qk_norm": False, "scale_embeddings": True, **options}, _weights
    )


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    head_dim = model.options.head_dim
    scalar = checkpoint.option("query_pre_attn_scalar") if model.sandwich_norm else head_dim
    factor = (head_dim / scalar) ** 0.5
    yield from read_mapped(checkpoint, tensors(model, order, checkpoint.option("vocab_size"), factor))
    ignore_repeated(checkpoint, model)


_VERSIONS = {
    1: ("Gemma", "gemma", "GemmaForCausalLM"),
    2: ("Gemma 2", "gemma2", "Gemma2ForCausalLM"),
    3: ("Gemma 3", "gemma3_text", "Gemma3ForCausalLM"),
}


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="causal_lm_modern")
def to_gemma(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of Gemma, with `sandwich_norm` Gemma 2, with `qk_norm` as well Gemma 3.

    Raises:
        InputError: If that does not support an option or the tokenizer.
    """
    model, options = trained.model, trained.options
    version = 3 if options["qk_norm"] and options["sandwich_norm"] else 2 if options["sandwich_norm"] else 1
    family, model_type, architecture = _VERSIONS[version]
    free = {"sandwich_norm", "output_softcap", *WINDOW_OPTIONS} if version > 1 else set()
    free.add("start_symbol")
    free |= {1: set(), 2: {"logit_softcap"}, 3: {"window_wavelength"}}[version]
    trained.check(family, FREE | free, qk_norm=version == 3)
    if version == 3:
        check_epsilon(family, options["epsilon"])
    if options["visibility"] not in ("full", "window"):
        raise InputError(
            f"{family} supports only visibility full or window. Received: visibility={options['visibility']!r}."
        )
    tokenizer = trained.tokenizers["text"]
    if not isinstance(tokenizer, ReorderedSubwordTokenizer):
        raise InputError(
            f"The tokenizer of {family} must be one of SentencePiece. Received: tokenizer={tokenizer.kind!r}."
        )
    files, order = decoder_files(tokenizer, rows_of_tokens(model), family, options["start_symbol"])
    files["tokenizer_config.json"]["tokenizer_class"] = "GemmaTokenizer"
    if options["activation"] == "gelu" and version == 1:
        raise InputError("Gemma has no exact GELU. Received: activation='gelu'.")
    is_approximate = options["activation"] == "gelu_tanh"
    activation = "gelu_pytorch_tanh" if is_approximate else activation_name(family, options["activation"])
    config = {
        **decoder_config(trained, order),
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_act": activation,
        "hidden_activation": activation,
    }
    if version > 1:
        config |= {
            "query_pre_attn_scalar": model.options.head_dim,
            "attn_logit_softcapping": options["logit_softcap"] or None,
            "final_logit_softcapping": options["output_softcap"] or None,
            **window_config(options),
        }
    if version == 3:
        wavelength = options["window_wavelength"]
        windowed = {"rope_type": "default", "rope_theta": wavelength} if wavelength else config["rope_parameters"]
        config["rope_parameters"] = {FULL: config["rope_parameters"], WINDOWED: windowed}
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
    yield from qk_norm_tensors(model, Shifted(1.0, Scaled(query_factor, Columns())), Shifted(1.0))
    for mapped in projection_tensors(model):
        is_scaled = query_factor != 1.0 and not model.qk_norm and mapped.name.endswith("q_proj.weight")
        yield replace(mapped, layout=Scaled(query_factor, mapped.layout)) if is_scaled else mapped
    before, after = _NORMS[model.sandwich_norm]
    for index, block in enumerate(model.blocks):
        for norms, names in ((block.norms, before), (block.output_norms, after)):
            for norm, name in zip(norms, names, strict=True):
                yield from normalization(f"model.layers.{index}.{name}", norm, Shifted(1.0))
    yield from normalization("model.norm", model.final_norm, Shifted(1.0))
