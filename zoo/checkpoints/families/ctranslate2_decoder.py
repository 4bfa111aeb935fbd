"""Language models of CTranslate2 (`TransformerDecoderSpec`)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zoo.checkpoints.ctranslate2_file import MODEL_TYPE
from zoo.checkpoints.decoder_tokenizers import decoder_files
from zoo.checkpoints.families.base import Exported, Trained, register_writer
from zoo.checkpoints.families.ctranslate2_layers import (
    FREE,
    blocks,
    lowercase_of,
    norm,
    numbers_of_decoder,
    numbers_of_half,
    order_of,
    scalars,
    special_names,
    table_of,
    tokens_of,
    under,
)
from zoo.checkpoints.families.decoders import QK_EPSILON
from zoo.checkpoints.families.layouts import Mapped, Rows, rows_of_tokens, tables, write_mapped
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer, ReorderedSubwordTokenizer
from zoo.text.reordered_subwords import UNUSED
from zoo.text.subwords import read_model

_NAME, _REVISION = "TransformerDecoderSpec", 8
_TABLES = ("sinusoidal", "learned")
_SCALINGS = {"none": None, "linear": 0, "llama3": 2}
"""The numbers of rope scalings."""
_USED = {
    *FREE,
    *("vocab_size", "positions", "parallel_residual", "qk_norm", "num_key_value_heads", "key_dim", "start_symbol"),
    *("max_wavelength", "rotary_fraction", "rope_scaling", "rope_factor", "rope_original_length"),
}


@register_writer("zoo.models.language_models.causal_transformer:CausalLM", usual="gpt2", kind=MODEL_TYPE)
def to_ctranslate2(trained: Trained) -> Exported:
    """Returns a language model as one of CTranslate2.

    If our texts begin with the start token, prompts there must begin with `bos_token`, which CTranslate2 does not add.

    Raises:
        InputError: If CTranslate2 does not support an option, or the names of the tokens.
    """
    model, options = trained.model, trained.options
    trained.check("CTranslate2", _USED)
    for name, known in (("positions", (*_TABLES, "rotary")), ("rope_scaling", tuple(_SCALINGS))):
        if options[name] not in known:
            received = f"{name}={options[name]!r}"
            raise InputError(f"CTranslate2 supports only {name} {', '.join(known)}. Received: {received}.")
    if options["qk_norm"] and options["epsilon"] != QK_EPSILON:
        received = f"epsilon={options['epsilon']}"
        raise InputError(f"With qk_norm CTranslate2 supports only epsilon={QK_EPSILON}. Received: {received}.")
    files, order, tokens, named = _vocabulary(trained, rows_of_tokens(model))
    config = {
        "model_type": f"{MODEL_TYPE} {_NAME}",
        "revision": _REVISION,
        **named,
        "layer_norm_epsilon": options["epsilon"],
        "multi_query_attention": bool(options["num_key_value_heads"]),
        "lowercase": lowercase_of(trained.tokenizers),
    }
    return Exported(config, _written(trained, order), {**files, "vocabulary.json": tokens}, aliases=_aliases(model))


def _vocabulary(
    trained: Trained, rows: list[np.ndarray]
) -> tuple[dict[str, Any], Arrangement, list[str], dict[str, str]]:
    """Returns the files of a tokenizer, the order of ids, the token of each id, and the names of special tokens."""
    tokenizer = trained.tokenizers["text"]
    if not isinstance(tokenizer, ByteLevelBPETokenizer | ReorderedSubwordTokenizer):
        order = order_of(tokenizer, "text").complete().with_start(rows)
        tokens, model = tokens_of(tokenizer, order), getattr(tokenizer, "model", None)
        return {} if model is None else {"text.spm": model}, order, tokens, special_names(tokens, order)
    files, order = decoder_files(tokenizer, rows, "CTranslate2", trained.options["start_symbol"])
    config = files["tokenizer_config.json"]
    if isinstance(tokenizer, ByteLevelBPETokenizer):
        described = files["tokenizer.json"]
        pieces = {i: piece for piece, i in described["model"]["vocab"].items()}
        pieces |= {token["id"]: token["content"] for token in described["added_tokens"]}
    else:
        model = read_model(tokenizer.model)
        pieces = {i: model.id_to_piece(i) for i in range(model.vocab_size())}
        pieces |= {int(i): token["content"] for i, token in config.get("added_tokens_decoder", {}).items()}
    tokens = [pieces.get(i, UNUSED) for i in range(order.size)]
    names = ("bos_token", "eos_token", "unk_token")
    return files, order, tokens, {name: config.get(name, config["eos_token"]) for name in names}


def _written(trained: Trained, order: Arrangement) -> dict[str, Callable[[], np.ndarray]]:
    model, options = trained.model, trained.options
    written = numbers_of_half(options) | numbers_of_decoder()
    if options["positions"] in _TABLES:
        written["position_encodings/encodings"] = lambda: table_of(model, model.input_positions)
    for index in range(len(model.blocks)):
        written |= under(f"layer_{index}/self_attention", _numbers_of_attention(model))
    return under("decoder", written) | write_mapped(_tensors(model, order))


def _numbers_of_attention(model: Any) -> dict[str, Callable[[], np.ndarray]]:
    """Returns the sizes of an attention that differ from the defaults, and the options of rotary positions."""
    options = model.options
    written: dict[str, Callable[[], np.ndarray]] = {}
    if options.num_key_value_heads:
        written |= scalars("int32", num_heads_kv=options.num_key_value_heads)
    if options.head_dim * options.num_heads != options.model_dim:
        written |= scalars("int32", head_dim=options.head_dim)
    if options.positions != "rotary":
        return written
    written |= scalars("int32", rotary_dim=options.rotated_dim, max_position_embeddings=options.max_length)
    written |= scalars("int8", rotary_interleave=1)  # neighbours are a pair
    written |= scalars("float32", rotary_base=options.max_wavelength)
    scaling = options.rope_parameters(options.max_length)
    if scaling is None:
        return written
    written |= scalars("int8", rotary_scaling_type=_SCALINGS[scaling["rope_type"]] or 0)
    written |= scalars("float32", rotary_scaling_factor=scaling["factor"])
    if scaling["rope_type"] == "llama3":
        written |= scalars("int32", original_max_position_embeddings=scaling["original_max_position_embeddings"])
        factors = {f"rotary_{part}_freq_factor": scaling[f"{part}_freq_factor"] for part in ("low", "high")}
        written |= scalars("float32", **factors)
    return written


def _tensors(model: Any, order: Arrangement) -> Iterator[Mapped]:
    """Yields the tensors of a language model except positions, and the variables that they are composed of."""
    yield from tables(model, order, order.size, _EMBEDDINGS, _PROJECTION)
    yield from blocks("decoder", model.blocks, model.options.parallel_residual)
    if model.final_norm is not None:
        yield from norm("decoder/layer_norm", model.final_norm)
    if model.output_layer is not None:
        yield Mapped("decoder/projection/bias", (model.output_layer.bias,), Rows(order, order.size))


_EMBEDDINGS, _PROJECTION = "decoder/embeddings/weight", "decoder/projection/weight"


def _aliases(model: Any) -> dict[str, str]:
    return {_PROJECTION: _EMBEDDINGS} if model.tied_embeddings else {}
