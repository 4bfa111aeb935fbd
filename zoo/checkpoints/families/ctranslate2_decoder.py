"""Language models of CTranslate2 (`TransformerDecoderSpec`)."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from zoo.checkpoints.ctranslate2_file import MODEL_TYPE, CTranslate2Checkpoint
from zoo.checkpoints.decoder_tokenizers import begins_texts, decoder_files, text_tokenizer, unknown_id
from zoo.checkpoints.families.base import Exported, Imported, Trained, Weights, paired, register_family, register_writer
from zoo.checkpoints.families.ctranslate2_layers import (
    EPSILON,
    FREE,
    Places,
    activation_of,
    blocks,
    ignore_numbers,
    is_ours,
    lowercase_of,
    norm,
    num_blocks,
    numbers_of_decoder,
    numbers_of_half,
    order_of,
    padding_of,
    pieces_tokenizer,
    read_names,
    scalars,
    scales_embeddings,
    special_names,
    table_of,
    tokens_of,
    under,
)
from zoo.checkpoints.families.decoders import QK_EPSILON
from zoo.checkpoints.families.layouts import Mapped, Rows, read_mapped, rows_of_tokens, tables, write_mapped
from zoo.checkpoints.families.rotary import rotary_options
from zoo.checkpoints.vocabulary import Arrangement, arrange
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


_EMBEDDINGS, _PROJECTION, _BIAS = (
    f"decoder/{name}" for name in ("embeddings/weight", "projection/weight", "projection/bias")
)
_TABLE = "decoder/position_encodings/encodings"
_LENGTH = 2048
"""The length of texts of models with rotary positions, which have no limit there."""
_TOKENIZERS = ("tokenizer.model", "tokenizer.json", "vocab.json")


@register_family(f"{MODEL_TYPE} {_NAME}")
def ctranslate2_decoder(checkpoint: CTranslate2Checkpoint) -> Imported:
    """Returns a language model of CTranslate2 with full attention as one of our models.

    Its tokenizer is that of `tokenizer.model`, `tokenizer.json` or `vocab.json` and `merges.txt`, which the converters
    of CTranslate2 copy with `--copy_files`, or of a folder that we wrote.

    Raises:
        InputError: If it has options that our models do not support, or the files of the tokenizer are missing.
    """
    revision = checkpoint.config["revision"]
    if revision != _REVISION:
        raise InputError(f"{checkpoint.files[0]}: only revision {_REVISION} is supported. Received: {revision}.")
    tokens, rows = checkpoint.tokens(""), checkpoint.shape(_EMBEDDINGS)[0]
    places = {token: place for place, token in enumerate(tokens)}
    bos, eos, unk = read_names(checkpoint)
    if bos not in places or eos not in places or rows < len(tokens):
        raise InputError(
            f"{checkpoint.path}: the vocabulary must have {bos} and {eos}, and at most {rows} tokens, the rows of the "
            f"embeddings. Received: {len(tokens)} tokens."
        )
    start, end, pad = places[bos], places[eos], padding_of(places)
    has_files = any((checkpoint.path / name).is_file() for name in _TOKENIZERS)
    unknown = unknown_id(checkpoint) if has_files else places.get(unk)
    order = arrange(rows, start, end, None if pad in (start, end, unknown) else pad, unknown)
    if has_files:
        checkpoint.option("lowercase")
        tokenizer, begins = text_tokenizer(checkpoint, order), begins_texts(checkpoint, start)
    else:
        tokenizer, begins = pieces_tokenizer(checkpoint, "text", tokens, order), True
    options = {
        **_options(checkpoint),
        "vocab_size": len(order.original_ids),
        "start_symbol": checkpoint.option("start_symbol", begins),  # a key of ours alone
    }
    return Imported("gpt2", options, {"text": tokenizer}, functools.partial(_weights, checkpoint, order))


def _options(checkpoint: CTranslate2Checkpoint) -> dict[str, Any]:
    ignore_numbers(checkpoint, "decoder", "alibi", "start_from_zero_embedding")
    checkpoint.option("multi_query_attention")
    block, attention = "decoder/layer_0", "decoder/layer_0/self_attention"
    inner, dim = checkpoint.shape(f"{block}/ffn/linear_0/weight")
    heads = checkpoint.scalar("decoder/num_heads", default=8)
    groups, head_dim = (_of_all(checkpoint, *pair) for pair in (("num_heads_kv", heads), ("head_dim", dim // heads)))
    is_parallel, qk_norm = (
        checkpoint.has(f"{name}/gamma") for name in (f"{block}/input_layer_norm", f"{attention}/q_norm")
    )
    epsilon = checkpoint.option("layer_norm_epsilon") or EPSILON
    if qk_norm and epsilon != QK_EPSILON:
        raise InputError(
            f"{checkpoint.path / 'config.json'}: with q_norm layer_norm_epsilon must be {QK_EPSILON} to be imported. "
            f"Received: {epsilon}."
        )
    names = (checkpoint.aliases.get(name, name) for name in (_EMBEDDINGS, _PROJECTION))
    norms = f"{block}/input_layer_norm" if is_parallel else f"{block}/ffn/layer_norm"
    return {
        "num_layers": num_blocks(checkpoint, "decoder"),
        "num_heads": heads,
        "num_key_value_heads": 0 if groups == heads else groups,
        "model_dim": dim,
        "key_dim": head_dim,
        "intermediate_dim": inner,
        **_positions(checkpoint, dim, head_dim),
        "normalize_first": bool(checkpoint.scalar("decoder/pre_norm", default=1)),
        "parallel_residual": is_parallel,
        "normalization": "layer_norm" if checkpoint.has(f"{norms}/beta") else "rms_norm",
        "epsilon": epsilon,
        "qk_norm": qk_norm,
        "activation": activation_of(checkpoint, checkpoint.scalar("decoder/activation", default=0)),
        "gated": checkpoint.has(f"{block}/ffn/linear_0_noact/weight"),
        "use_bias": any(checkpoint.has(f"{name}/bias") for name in (f"{attention}/linear_0", f"{block}/ffn/linear_0")),
        "scale_embeddings": scales_embeddings(checkpoint, ["decoder"], dim),
        "tied_embeddings": len({*names}) == 1,
        "output_bias": checkpoint.has(_BIAS),
        "dropout": 0.0,
        "attention_dropout": 0.0,
    }


def _of_all(checkpoint: CTranslate2Checkpoint, name: str, default: float) -> Any:
    """Returns a number that must be the same in the attention of all blocks."""
    scopes = (f"decoder/layer_{index}/self_attention" for index in range(num_blocks(checkpoint, "decoder")))
    values = {checkpoint.scalar(f"{scope}/{name}", default=default) for scope in scopes}
    if len(values) > 1:
        raise InputError(f"{checkpoint.files[0]}: {name} must be the same in all layers. Received: {values}.")
    return values.pop()


def _positions(checkpoint: CTranslate2Checkpoint, dim: int, head_dim: int) -> dict[str, Any]:
    """Returns the options of a table of positions, or of rotary positions."""
    if checkpoint.has(_TABLE):
        table = _table(checkpoint, dim)
        return {"positions": "sinusoidal" if is_ours(table) else "learned", "max_length": len(table)}
    scaling = _of_all(checkpoint, "rotary_scaling_type", -1)
    kinds = {-1: "default"} | {number: name for name, number in _SCALINGS.items() if number is not None}
    rotated = _of_all(checkpoint, "rotary_dim", -1)
    if rotated < 0 or scaling not in kinds:
        received = f"rotary_dim={rotated}, rotary_scaling_type={scaling}"
        raise InputError(
            f"{checkpoint.files[0]}: positions must be a table, or rotary ones without scaling or with one of the "
            f"types linear and llama3. Received: {received}."
        )
    parameters: dict[str, Any] = {
        "rope_type": kinds[scaling],
        "rope_theta": _of_all(checkpoint, "rotary_base", 10000.0),
    }
    factor = _of_all(checkpoint, "rotary_scaling_factor", 1.0)
    if scaling >= 0:
        parameters["factor"] = factor
    length = _of_all(checkpoint, "original_max_position_embeddings", 0)
    if kinds[scaling] == "llama3":
        factors = ("low_freq_factor", "high_freq_factor")
        parameters |= {name: _of_all(checkpoint, f"rotary_{name}", 0.0) for name in factors}
        parameters["original_max_position_embeddings"] = length
    where = f"{checkpoint.files[0]}: rotary positions"
    return {
        "positions": "rotary",
        "max_length": _of_all(checkpoint, "max_position_embeddings", 0) or _LENGTH,
        **rotary_options(where, parameters, 10000.0, (rotated or head_dim) / head_dim),
    }


def _table(checkpoint: CTranslate2Checkpoint, dim: int) -> np.ndarray:
    return checkpoint.read(_TABLE, (checkpoint.shape(_TABLE)[0], dim))


def _weights(checkpoint: CTranslate2Checkpoint, order: Arrangement, model: Any) -> Weights:
    options, places = model.options, None
    if options.positions == "rotary" and not _of_all(checkpoint, "rotary_interleave", 1):

        def places(features: int) -> np.ndarray:
            return paired(np.arange(features), options.head_dim, options.rotated_dim)

    size = checkpoint.shape(_EMBEDDINGS)[0]
    tensors = _tensors(model, order, size, places)
    yield from read_mapped(checkpoint, (replace(tensor, may_lack=tensor.name.endswith("/bias")) for tensor in tensors))
    if options.positions == "learned":
        yield model.input_positions.positions.embeddings, _table(checkpoint, options.model_dim)


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
        "start_symbol": options["start_symbol"],
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
    return under("decoder", written) | write_mapped(_tensors(model, order, order.size))


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


def _tensors(model: Any, order: Arrangement, size: int, places: Places | None = None) -> Iterator[Mapped]:
    """Yields the tensors of a language model except positions, and the variables that they are composed of."""
    yield from tables(model, order, size, _EMBEDDINGS, _PROJECTION)
    yield from blocks("decoder", model.blocks, model.options.parallel_residual, places)
    if model.final_norm is not None:
        yield from norm("decoder/layer_norm", model.final_norm)
    if model.output_layer is not None:
        yield Mapped(_BIAS, (model.output_layer.bias,), Rows(order, size))


def _aliases(model: Any) -> dict[str, str]:
    return {_PROJECTION: _EMBEDDINGS} if model.tied_embeddings else {}
