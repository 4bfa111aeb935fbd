"""Gemma and Gemma 2 (`gemma`, `gemma2`): Llama's blocks with GEGLU; in Gemma 2 also limits and windows."""

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
from zoo.checkpoints.families.llama import (
    DECODER_FREE,
    TABLES,
    decoder,
    decoder_config,
    maps_of_blocks,
    window_config,
    windows,
)
from zoo.checkpoints.tokenizers import decoder_files
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError

_NORMS = {
    False: (("input_layernorm", "post_attention_layernorm"), ()),
    True: (
        ("input_layernorm", "pre_feedforward_layernorm"),
        ("post_attention_layernorm", "post_feedforward_layernorm"),
    ),
}
"""The normalisations before and after the parts of a block, with and without `sandwich_norm`."""


@register_family("gemma", "gemma2")
def gemma(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of Gemma or of Gemma 2.

    Normalisations multiply by 1 + w there, and by that sum here. Where scores are not divided by the root of the size
    of a head (`query_pre_attn_scalar`), the matrix of the queries makes up for it.

    Raises:
        InputError: If it differs in what we do not have.
    """
    checkpoint.option("attention_bias", False, only=False)
    if checkpoint.option("use_bidirectional_attention"):
        raise InputError(f"{checkpoint.path / 'config.json'}: use_bidirectional_attention is not supported.")
    second = checkpoint.config["model_type"] == "gemma2"
    layers = checkpoint.option("num_hidden_layers", 26 if second else 28)
    former = checkpoint.option("hidden_act", "gelu_pytorch_tanh")  # which files of Gemma 2 have besides
    activation = checkpoint.option("hidden_activation") or former
    options = {
        # The first Gemma once had the wrong name of the approximation.
        "activation": "gelu_tanh" if activation == "gelu" and not second else activation,
        "qk_norm": False,
        "scale_embeddings": True,
        "tied_embeddings": checkpoint.tied(True, *TABLES),
        "attention_dropout": checkpoint.option("attention_dropout", 0.0),
    }
    if second:
        options |= {
            "sandwich_norm": True,
            "logit_softcap": checkpoint.option("attn_logit_softcapping", 50.0) or 0.0,
            "output_softcap": checkpoint.option("final_logit_softcapping", 30.0) or 0.0,
            **windows(checkpoint, [index % 2 == 0 for index in range(layers)]),
        }
    return decoder(checkpoint, options, _weights)


def _weights(checkpoint: Checkpoint, model: Any, order: Arrangement) -> Weights:
    head = model.options.head_dim
    scalar = checkpoint.option("query_pre_attn_scalar", 256) if model.sandwich_norm else head
    found = tensors(model, order, checkpoint.option("vocab_size", 256000), (head / scalar) ** 0.5)
    yield from read_mapped(checkpoint, found)
    if model.tied_embeddings:
        checkpoint.ignore("lm_head.weight")


_SECOND = {"sandwich_norm", "logit_softcap", "output_softcap", "visibility", "window", "full_attention_every"}


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="causal_lm_modern")
def to_gemma(trained: Trained) -> Exported:
    """Returns a language model as a checkpoint of Gemma 2 if it has `sandwich_norm`, and else of Gemma.

    Raises:
        InputError: If that has no such option or tokenizer.
    """
    model, options = trained.model, trained.options
    second = options["sandwich_norm"]
    family = "Gemma 2" if second else "Gemma"
    trained.check(family, DECODER_FREE | _SECOND if second else DECODER_FREE, qk_norm=False)
    if options["visibility"] not in ("full", "window"):
        raise InputError(f"{family} has visibility full or window. Received: visibility={options['visibility']!r}.")
    files, order, begins = decoder_files(trained.tokenizers["text"], rows_of_tokens(model), family)
    if not begins:
        kind = trained.tokenizers["text"].kind
        raise InputError(f"The tokenizer of {family} is one of SentencePiece. Received: tokenizer={kind!r}.")
    files["tokenizer_config.json"]["tokenizer_class"] = "GemmaTokenizer"
    if options["activation"] == "gelu" and not second:
        raise InputError("Gemma has no exact GELU. Received: activation='gelu'.")
    approximate = options["activation"] == "gelu_tanh"
    activation = "gelu_pytorch_tanh" if approximate else activation_name(family, options["activation"])
    config = {
        **decoder_config(trained, order),
        "architectures": ["Gemma2ForCausalLM" if second else "GemmaForCausalLM"],
        "model_type": "gemma2" if second else "gemma",
        "hidden_act": activation,
        "hidden_activation": activation,
    }
    if second:
        config |= {
            "query_pre_attn_scalar": model.options.head_dim,
            "attn_logit_softcapping": options["logit_softcap"] or None,
            "final_logit_softcapping": options["output_softcap"] or None,
            **_windows(options),
        }
    return Exported(config, write_mapped(tensors(model, order, order.size)), files)


def _windows(options: Any) -> dict[str, Any]:
    if options["visibility"] == "window":
        return window_config(options)
    return {"layer_types": ["full_attention"] * options["num_layers"]}


def tensors(model: Any, order: Arrangement, size: int, query_factor: float = 1.0) -> Iterator[Mapped]:
    """Yields the tensors of a Gemma with what each holds of a model, to be read or written.

    Args:
        model: The model.
        order: The order of its tokens.
        size: The number of tokens in the checkpoint.
        query_factor: What our queries are in comparison with those of the checkpoint.
    """
    yield from tables(model, order, size, *TABLES)
    for each in maps_of_blocks(model):
        is_query = query_factor != 1.0 and each.name.endswith("q_proj.weight")
        yield replace(each, layout=Scaled(query_factor, each.layout)) if is_query else each
    before, after = _NORMS[model.sandwich_norm]
    for index, block in enumerate(model.blocks):
        for norms, names in ((block.norms, before), (block.output_norms, after)):
            for norm, name in zip(norms, names, strict=True):
                yield from normalization(f"model.layers.{index}.{name}", norm, Shifted(1.0))
    yield from normalization("model.norm", model.final_norm, Shifted(1.0))
