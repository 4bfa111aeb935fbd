"""Encoder-decoders of CTranslate2 (`TransformerSpec`, and `TransformerBase` and `TransformerBig` of OpenNMT-tf)."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zoo.checkpoints.ctranslate2_file import MODEL_TYPE, CTranslate2Checkpoint
from zoo.checkpoints.families.base import (
    SIDES,
    Exported,
    Imported,
    Trained,
    Weights,
    register_family,
    register_writer,
)
from zoo.checkpoints.families.ctranslate2_layers import (
    EPSILON,
    FREE,
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
from zoo.checkpoints.families.layouts import UNWRITTEN, Mapped, Rows, read_mapped, write_mapped
from zoo.checkpoints.vocabulary import NEW, Arrangement, arrange
from zoo.errors import InputError

_NAME = "TransformerSpec"
_REVISIONS = range(2, 8)
# Heads of the models of revision 2, by name.
_HEADS = {"TransformerBase": 8, "TransformerBig": 16}
# Positions of the table that replaces a formula.
_LENGTH = 513


@register_family(*(f"{MODEL_TYPE} {name}" for name in (_NAME, *_HEADS)))
def ctranslate2(checkpoint: CTranslate2Checkpoint) -> Imported:
    """Returns an encoder-decoder of CTranslate2 with full attention as one of our models.

    Sources end with the end token if `config.json` has `add_source_eos`, and in models of Marian, which start from a
    vector of zeros. Positions that are not our sinusoids, such as those of OpenNMT-tf, which count from 1, become a
    learned table.

    Raises:
        InputError: If it has options that our models do not support, or its tokens are pieces and the SentencePiece
            model is missing.
    """
    revision = checkpoint.config["revision"]
    if revision not in _REVISIONS:
        raise InputError(
            f"{checkpoint.files[0]}: revisions {_REVISIONS[0]} to {_REVISIONS[-1]} are supported. Received: {revision}."
        )
    orders, tokenizers = {}, {}
    for side in SIDES:
        orders[side] = _order(checkpoint, side)
        tokenizers[side] = pieces_tokenizer(checkpoint, side, checkpoint.tokens(side), orders[side])
    has_end = checkpoint.option("add_source_eos", False) or _starts_from_zeros(checkpoint)
    if not has_end:
        tokenizers["source"] = tokenizers["source"].without_end()
    weights = functools.partial(_weights, checkpoint, orders)
    return Imported("transformer_base", _options(checkpoint, orders), tokenizers, weights)


def _starts_from_zeros(checkpoint: CTranslate2Checkpoint) -> bool:
    return bool(checkpoint.scalar("decoder/start_from_zero_embedding", "start_from_zero_embedding", default=0))


def _order(checkpoint: CTranslate2Checkpoint, side: str) -> Arrangement:
    tokens, rows = checkpoint.tokens(side), checkpoint.shape(table_name(checkpoint, side))[0]
    places = {token: place for place, token in enumerate(tokens)}
    bos, eos, unk = read_names(checkpoint)
    end, unknown = places.get(eos), places.get(unk)
    start = places.get(checkpoint.option("decoder_start_token", bos) or bos)
    if unknown is None and rows == len(tokens) + 1:
        unknown = len(tokens)  # the convention of OpenNMT-tf
    if side == "source":
        start = places.get(bos, NEW)  # sources have none
    elif _starts_from_zeros(checkpoint):
        start = NEW
    if start is None or end is None or rows < len(tokens):
        raise InputError(
            f"{checkpoint.path}: the vocabulary of the {side} must have {eos} and the start of translations, "
            f"and at most {rows} tokens, the rows of the embeddings. Received: {len(tokens)} tokens."
        )
    return arrange(rows, start, end, padding_of(places), unknown)


def _options(checkpoint: CTranslate2Checkpoint, orders: Mapping[str, Arrangement]) -> dict[str, Any]:
    for half in SIDES.values():
        ignore_numbers(checkpoint, half, "alibi", "multi_query_attention")
    inner, dim = checkpoint.shape("encoder/layer_0/ffn/linear_0/weight")
    tables = [_table(checkpoint, half, dim) for half in SIDES.values()]
    plain = all(table.shape == tables[0].shape and is_ours(table) for table in tables)
    return {
        "source_vocab_size": len(orders["source"].original_ids),
        "target_vocab_size": len(orders["target"].original_ids),
        "num_layers": num_blocks(checkpoint, "encoder"),
        "decoder_layers": num_blocks(checkpoint, "decoder"),
        "num_heads": _of_both(checkpoint, "num_heads", _HEADS.get(checkpoint.config["model_type"].split()[1], 8)),
        "model_dim": dim,
        "intermediate_dim": inner,
        "max_length": max(len(table) for table in tables),
        "positions": "sinusoidal" if plain else "learned",
        "normalize_first": bool(_of_both(checkpoint, "pre_norm", 1)),
        "normalization": "layer_norm" if checkpoint.has("encoder/layer_0/ffn/layer_norm/beta") else "rms_norm",
        "epsilon": checkpoint.option("layer_norm_epsilon") or EPSILON,
        "activation": activation_of(checkpoint, _of_both(checkpoint, "activation", 0)),
        "gated": checkpoint.has("encoder/layer_0/ffn/linear_0_noact/weight"),
        "use_bias": checkpoint.has("encoder/layer_0/ffn/linear_0/bias"),
        "scale_embeddings": scales_embeddings(checkpoint, SIDES.values(), dim),
        "tied_embeddings": _tied(checkpoint, orders),
        "output_bias": checkpoint.has("decoder/projection/bias") or NEW in orders["target"].original_ids,
    }


def _of_both(checkpoint: CTranslate2Checkpoint, name: str, default: int) -> int:
    """Returns a number that must be the same in encoder and decoder."""
    values = {checkpoint.scalar(f"{half}/{name}", name, default=default) for half in SIDES.values()}
    if len(values) > 1:
        raise InputError(f"{checkpoint.files[0]}: {name} must be the same in encoder and decoder. Received: {values}.")
    return int(values.pop())


def table_name(checkpoint: CTranslate2Checkpoint, side: str) -> str:
    """Returns the name of the embeddings of a side."""
    name = f"{SIDES[side]}/embeddings_0/weight"
    return name if checkpoint.has(name) else f"{SIDES[side]}/embeddings/weight"


def _tied(checkpoint: CTranslate2Checkpoint, orders: Mapping[str, Arrangement]) -> str:
    names = table_name(checkpoint, "source"), table_name(checkpoint, "target"), "decoder/projection/weight"
    source, target, projection = (checkpoint.aliases.get(name, name) for name in names)
    if target != projection:
        return "none"
    return "all" if source == target and orders["source"] == orders["target"] else "target"


def _table(checkpoint: CTranslate2Checkpoint, half: str, dim: int) -> np.ndarray:
    """Returns the positions that are added to embeddings, [L, D].

    Without a table those of OpenNMT-tf: `sin(p · 10000^(−i/(D/2 − 1)))` for p from 1, then the cosines.
    """
    name = f"{half}/position_encodings/encodings"
    if checkpoint.has(name):
        return checkpoint.read(name, (checkpoint.shape(name)[0], dim))
    rates = 10000.0 ** -(np.arange(dim // 2) / (dim // 2 - 1))
    phases = np.arange(1, _LENGTH + 1)[:, None] * rates
    return np.concatenate([np.sin(phases), np.cos(phases)], axis=1).astype("float32")


def _weights(checkpoint: CTranslate2Checkpoint, orders: Mapping[str, Arrangement], model: Any) -> Weights:
    names = {side: table_name(checkpoint, side) for side in SIDES}
    sizes = {side: checkpoint.shape(name)[0] for side, name in names.items()}
    yield from read_mapped(checkpoint, tensors(model, orders, sizes, names))
    for side, half in SIDES.items() if model.positions == "learned" else ():
        table = getattr(model, f"{side}_positions").positions.embeddings
        yield table, _longest(_table(checkpoint, half, model.model_dim), table.shape[0])


_BIAS = "decoder/projection/bias"
_PROJECTION = "decoder/projection/weight"


def tensors(
    model: Any, orders: Mapping[str, Arrangement], sizes: Mapping[str, int], names: Mapping[str, str]
) -> Iterator[Mapped]:
    """Yields the tensors of an encoder-decoder, but for positions and the variables that they are composed of.

    Args:
        model: The model.
        orders: The order of the tokens of each side.
        sizes: The number of tokens of each side in the checkpoint.
        names: The name of the embeddings of each side.
    """
    for side, half in SIDES.items():
        if side == "target" or model.tied_embeddings != "all":
            embeddings = getattr(model, f"{side}_embedding").embeddings
            yield Mapped(names[side], (embeddings,), Rows(orders[side], sizes[side]))
        yield from blocks(half, getattr(model, f"{half}_blocks"))
        if model.normalize_first:
            yield from norm(f"{half}/layer_norm", getattr(model, f"{half}_norm"))
    order, size = orders["target"], sizes["target"]
    if model.tied_embeddings == "none":
        yield Mapped(_PROJECTION, (model.target_embedding.reverse_embeddings,), Rows(order, size, columns=True))
    if model.output_bias:
        yield Mapped(_BIAS, (model.output_layer.bias,), Rows(order, size, new=UNWRITTEN), may_lack=True)


def _longest(table: np.ndarray, length: int) -> np.ndarray:
    """Returns a table with `length` rows, of which those that it lacks repeat its last one."""
    return table[np.minimum(np.arange(length), len(table) - 1)]


_USED = {*FREE, "decoder_layers", "source_vocab_size", "target_vocab_size", "positions"}
_POSITIONS = ("sinusoidal", "learned")


@register_writer("zoo.models.seq2seq.transformer:Transformer", usual="transformer_base", kind=MODEL_TYPE)
def to_ctranslate2(trained: Trained) -> Exported:
    """Returns a Transformer as an encoder-decoder of CTranslate2.

    Positions are a table of `max_length` rows, beyond which CTranslate2 reads no token.

    Raises:
        InputError: If CTranslate2 does not support an option, or the names of the tokens.
    """
    model, options = trained.model, trained.options
    trained.check("CTranslate2", _USED)
    if options["positions"] not in _POSITIONS:
        known, received = " and ".join(_POSITIONS), f"positions={options['positions']!r}"
        raise InputError(
            f"An encoder-decoder of CTranslate2 supports only the positions {known}. Received: {received}."
        )
    orders = _orders(trained)
    tokens = {side: tokens_of(trained.tokenizers[side], order) for side, order in orders.items()}
    target = special_names(tokens["target"], orders["target"])
    config = {
        "model_type": f"{MODEL_TYPE} {_NAME}",
        "revision": _REVISIONS[-1],
        "add_source_bos": False,
        "add_source_eos": trained.tokenizers["source"].has_end,
        **special_names(tokens["source"], orders["source"]),
        "decoder_start_token": target["bos_token"],
        "layer_norm_epsilon": options["epsilon"],
        "multi_query_attention": False,
        "lowercase": lowercase_of(trained.tokenizers),
    }
    return Exported(config, _written(trained, orders), _files(trained, tokens), aliases=_aliases(model))


def _orders(trained: Trained) -> dict[str, Arrangement]:
    model = trained.model
    tables = {side: [np.asarray(getattr(model, f"{side}_embedding").embeddings)] for side in SIDES}
    if model.tied_embeddings == "none":
        tables["target"].append(np.asarray(model.target_embedding.reverse_embeddings).T)
    if model.output_layer is not None:
        tables["target"].append(np.asarray(model.output_layer.bias))
    orders = {side: order_of(trained.tokenizers[side], side).complete() for side in SIDES}
    if model.tied_embeddings == "all":
        if orders["source"] != orders["target"]:
            raise InputError("With tied_embeddings='all' CTranslate2 needs one vocabulary for both sides.")
        tables["source"] = tables["target"]
    return {side: order.with_start(tables[side]) for side, order in orders.items()}


def _written(trained: Trained, orders: Mapping[str, Arrangement]) -> dict[str, Any]:
    model, options = trained.model, trained.options
    sizes, names = {side: order.size for side, order in orders.items()}, {}
    written: dict[str, Any] = {}
    for side, half in SIDES.items():
        names[side] = _EMBEDDINGS[side]
        written |= under(half, numbers_of_half(options))
        written[f"{half}/position_encodings/encodings"] = lambda side=side: table_of(
            model, getattr(model, f"{side}_positions")
        )
    others = dict.fromkeys(("embeddings_merge", "multi_query_attention"), 0)
    written |= under("encoder", scalars("int8", **others))
    written |= under("decoder", numbers_of_decoder())
    return {**written, **write_mapped(tensors(model, orders, sizes, names))}


_EMBEDDINGS = {"source": "encoder/embeddings_0/weight", "target": "decoder/embeddings/weight"}


def _aliases(model: Any) -> dict[str, str]:
    """Returns the names of the matrices that are the embeddings of the target."""
    names = {"all": [_PROJECTION, _EMBEDDINGS["source"]], "target": [_PROJECTION], "none": []}
    return dict.fromkeys(names[model.tied_embeddings], _EMBEDDINGS["target"])


def _files(trained: Trained, tokens: Mapping[str, list[str]]) -> dict[str, Any]:
    """Returns the vocabularies, and the SentencePiece models where there are any."""
    models = {f"{side}.spm": getattr(tokenizer, "model", None) for side, tokenizer in trained.tokenizers.items()}
    files: dict[str, Any] = {name: model for name, model in models.items() if model is not None}
    if getattr(trained.tokenizers["target"], "tidy", False):
        files["tokenizer_config.json"] = {"clean_up_tokenization_spaces": True}
    if tokens["source"] == tokens["target"]:
        return {**files, "shared_vocabulary.json": tokens["source"]}
    return {**files, **{f"{side}_vocabulary.json": tokens[side] for side in SIDES}}
