"""Encoder-decoders of CTranslate2 (`TransformerSpec`, and `TransformerBase` and `TransformerBig` of OpenNMT-tf)."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.checkpoints.ctranslate2_file import MODEL_TYPE, CTranslate2Checkpoint
from zoo.checkpoints.families.base import Imported, Weights, dense, register_family
from zoo.checkpoints.tokenizers import mapped_subwords
from zoo.checkpoints.vocabulary import NEW, Arrangement, arrange
from zoo.errors import InputError
from zoo.text import CharTokenizer, Tokenizer

SIDES = {"source": "encoder", "target": "decoder"}
"""The half of a model that reads each of the vocabularies."""
ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu", 5: "tanh", 6: "sigmoid"}
"""Our names of the activations."""
UNWRITTEN = -1e4
"""Bias of the logit of a symbol that the checkpoint does not have: it takes no probability from the others."""
_REVISIONS = range(2, 8)
# What the names of revision 2 say of a model.
_HEADS = {"TransformerBase": 8, "TransformerBig": 16}
_EPSILON = 1e-5
# Symbols that are read, and the end, where positions have a formula and no table.
_LENGTH = 513
_SPM = ("{side}.spm", "spm.model", "sentencepiece.model", "sentencepiece.bpe.model")
_IGNORED = ("embeddings_merge", "alignment_layer", "alignment_heads", "alibi_use_positive_positions", "scale_alibi")


@register_family(*(f"{MODEL_TYPE} {name}" for name in ("TransformerSpec", *_HEADS)))
def ctranslate2(checkpoint: CTranslate2Checkpoint) -> Imported:
    """Returns an encoder-decoder of CTranslate2, with full attention and layer normalisation.

    Sources end with the end symbol where the folder says so (`add_source_eos`), and in models of Marian, which are
    those that start from a vector of zeros; the folder does not say it of others, whose users add it themselves. A
    table of positions that are not our sinusoids, such as the formula of OpenNMT-tf, which counts from 1, becomes a
    learned one.

    Raises:
        InputError: If it differs in what we do not have, or its symbols are pieces without the SentencePiece model that
            makes them.
    """
    revision = checkpoint.config["revision"]
    if revision not in _REVISIONS:
        raise InputError(
            f"{checkpoint.files[0]}: revisions {_REVISIONS[0]} to {_REVISIONS[-1]} are read. Received: {revision}."
        )
    orders, tokenizers = {}, {}
    for side in SIDES:
        orders[side] = _order(checkpoint, side)
        tokenizers[side] = _tokenizer(checkpoint, side, orders[side])
    has_end = checkpoint.option("add_source_eos", False) or _starts_from_zeros(checkpoint)
    if not has_end:
        tokenizers["source"] = tokenizers["source"].without_end()
    weights = functools.partial(_weights, checkpoint, orders)
    return Imported("transformer_base", _options(checkpoint, orders), tokenizers, weights)


def _starts_from_zeros(checkpoint: CTranslate2Checkpoint) -> bool:
    return bool(checkpoint.scalar("decoder/start_from_zero_embedding", "start_from_zero_embedding", default=0))


def _order(checkpoint: CTranslate2Checkpoint, side: str) -> Arrangement:
    symbols, rows = checkpoint.symbols(side), checkpoint.shape(table_name(checkpoint, side))[0]
    places = {symbol: place for place, symbol in enumerate(symbols)}
    named = {name: checkpoint.option(f"{name}_token", usual) or usual for name, usual in _SPECIAL.items()}
    end, unknown = places.get(named["eos"]), places.get(named["unk"])
    start = places.get(checkpoint.option("decoder_start_token", named["bos"]) or named["bos"])
    if unknown is None and rows == len(symbols) + 1:
        unknown = len(symbols)  # as OpenNMT-tf has it
    if side == "source":
        start = places.get(named["bos"], NEW)  # which no source has
    elif _starts_from_zeros(checkpoint):
        start = NEW
    if start is None or end is None or rows < len(symbols):
        raise InputError(
            f"{checkpoint.path}: the vocabulary of the {side} must have {named['eos']} and the start of translations, "
            f"and at most {rows} symbols, the rows of the embeddings. Received: {len(symbols)} symbols."
        )
    pad = next((places[name] for name in ("<blank>", "<pad>") if name in places), None)
    return arrange(rows, start, end, pad, unknown)


_SPECIAL = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}


def _tokenizer(checkpoint: CTranslate2Checkpoint, side: str, order: Arrangement) -> Tokenizer:
    symbols = checkpoint.symbols(side)
    names = [name.format(side=side) for name in _SPM]
    found = next((name for name in names if (checkpoint.path / name).is_file()), None)
    if found is not None:
        return mapped_subwords(checkpoint, found, {symbol: place for place, symbol in enumerate(symbols)}, order)
    ordinary = order.pieces([*symbols, *[""] * (max(order.original_ids) + 1 - len(symbols))])[4:]
    if any(len(symbol) != 1 for symbol in ordinary):
        raise InputError(
            f"{checkpoint.path}: the {side} has symbols of several characters, and the SentencePiece model that makes "
            f"them is not there: {', '.join(names)}."
        )
    return CharTokenizer(ordinary)


def _options(checkpoint: CTranslate2Checkpoint, orders: Mapping[str, Arrangement]) -> dict[str, Any]:
    for half in SIDES.values():
        checkpoint.ignore(*(f"{prefix}{name}" for name in _IGNORED for prefix in (f"{half}/", "")))
        for name in ("alibi", "multi_query_attention"):
            if checkpoint.scalar(f"{half}/{name}", default=0):
                raise InputError(f"{checkpoint.files[0]}: {half}/{name} must be false to be imported. Received: true.")
    inner, dim = checkpoint.shape("encoder/layer_0/ffn/linear_0/weight")
    activation = _of_both(checkpoint, "activation", 0)
    if activation not in ACTIVATIONS:
        raise InputError(f"{checkpoint.files[0]}: the activation number {activation} is not supported.")
    tables = [_table(checkpoint, half, dim) for half in SIDES.values()]
    plain = all(table.shape == tables[0].shape and is_ours(table) for table in tables)
    return {
        "source_vocab_size": len(orders["source"].original_ids),
        "target_vocab_size": len(orders["target"].original_ids),
        "num_layers": _blocks(checkpoint, "encoder"),
        "decoder_layers": _blocks(checkpoint, "decoder"),
        "num_heads": _of_both(checkpoint, "num_heads", _HEADS.get(checkpoint.config["model_type"].split()[1], 8)),
        "model_dim": dim,
        "intermediate_dim": inner,
        "max_length": max(len(table) for table in tables),
        "positions": "sinusoidal" if plain else "learned",
        "normalize_first": bool(_of_both(checkpoint, "pre_norm", 1)),
        "epsilon": checkpoint.option("layer_norm_epsilon") or _EPSILON,
        "activation": ACTIVATIONS[activation],
        "gated": checkpoint.has("encoder/layer_0/ffn/linear_0_noact/weight"),
        "scale_embeddings": _scales(checkpoint, dim),
        "tied_embeddings": _tied(checkpoint, orders),
        "output_bias": checkpoint.has("decoder/projection/bias") or NEW in orders["target"].original_ids,
    }


def _of_both(checkpoint: CTranslate2Checkpoint, name: str, default: int) -> int:
    """Returns a number that both halves share."""
    values = {checkpoint.scalar(f"{half}/{name}", name, default=default) for half in SIDES.values()}
    if len(values) > 1:
        raise InputError(f"{checkpoint.files[0]}: {name} must be the same in encoder and decoder. Received: {values}.")
    return int(values.pop())


def _scales(checkpoint: CTranslate2Checkpoint, dim: int) -> bool:
    """Returns whether embeddings are multiplied by √D: what is stored is whether they are, or by what they are."""
    values = set()
    for half in SIDES.values():
        names = (f"{half}/scale_embeddings", f"{half}/embeddings/multiply_by_sqrt_depth")
        value = checkpoint.scalar(*names, default=1)
        values.add((dim**0.5 if value else 1.0) if isinstance(value, int) else value)
    factor = values.pop()
    if values or not any(np.isclose(factor, known) for known in (1.0, dim**0.5)):
        raise InputError(
            f"{checkpoint.files[0]}: embeddings must be multiplied by 1 or √{dim}, those of both sides. "
            f"Received: {factor}{''.join(f' and {other}' for other in values)}."
        )
    return not np.isclose(factor, 1.0)


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


def _blocks(checkpoint: CTranslate2Checkpoint, half: str) -> int:
    return next(n for n in range(1000) if not checkpoint.has(f"{half}/layer_{n}/ffn/linear_0/weight"))


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


def is_ours(table: np.ndarray) -> bool:
    """Returns whether positions [L, D] are our sinusoids: sine and cosine of `p · 10000^(−2i/D)` in turn, p from 0."""
    length, dim = table.shape
    phases = np.arange(length)[:, None] * 10000.0 ** -(np.arange(dim // 2) * 2 / dim)
    ours = np.stack([np.sin(phases), np.cos(phases)], axis=-1).reshape(length, -1)
    return bool(np.allclose(table, ours, atol=1e-3))


def _weights(checkpoint: CTranslate2Checkpoint, orders: Mapping[str, Arrangement], model: Any) -> Weights:
    dim, inner = model.model_dim, model.intermediate_dim

    def norm(layer: Any, name: str) -> Weights:
        yield layer.gamma, checkpoint.read(f"{name}/layer_norm/gamma", (dim,))
        yield layer.beta, checkpoint.read(f"{name}/layer_norm/beta", (dim,))

    def linear(name: str, inputs: int, outputs: int, parts: int = 1) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns matrix and bias of each of the maps that stand there side by side."""
        kernel = checkpoint.read(f"{name}/weight", (parts * outputs, inputs)).T
        bias = checkpoint.read(f"{name}/bias", (parts * outputs,))
        return list(zip(np.split(kernel, parts, axis=1), np.split(bias, parts), strict=True))

    def attention(layer: Any, name: str, shared: int) -> Weights:
        """Yields the weights of an attention whose first map gives `shared` of query, key and value."""
        maps = linear(f"{name}/linear_0", dim, dim, shared)
        maps += [] if shared == 3 else linear(f"{name}/linear_1", dim, dim, 2)
        maps += linear(f"{name}/linear_{1 if shared == 3 else 2}", dim, dim)
        layers = (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense)
        for part, (kernel, bias) in zip(layers, maps, strict=True):
            yield from dense(part, kernel, bias)

    for side, half in SIDES.items():
        if model.positions == "learned":
            table = getattr(model, f"{side}_positions").positions.embeddings
            yield table, _longest(_table(checkpoint, half, dim), table.shape[0])
        order = orders[side]
        if side == "target" or model.tied_embeddings != "all":
            embeddings = getattr(model, f"{side}_embedding").embeddings
            name = table_name(checkpoint, side)
            yield embeddings, order.rows(checkpoint.read(name, checkpoint.shape(name)[:1] + (dim,)))
        for index, block in enumerate(getattr(model, f"{half}_blocks")):
            name = f"{half}/layer_{index}"
            attentions = [("attention" if half == "encoder" else "self_attention", "self_attention", 3)]
            attentions += [] if half == "encoder" else [("cross_attention", "attention", 1)]
            for (layer, part, shared), layer_norm in zip(attentions, block.norms, strict=False):
                yield from norm(layer_norm, f"{name}/{part}")
                yield from attention(getattr(block, layer), f"{name}/{part}", shared)
            yield from norm(block.norms[-1], f"{name}/ffn")
            feed_forward = block.feed_forward
            maps = [("intermediate_dense", "linear_0", dim, inner), ("output_dense", "linear_1", inner, dim)]
            maps += [("linear_dense", "linear_0_noact", dim, inner)] if model.gated else []
            for layer, part, inputs, outputs in maps:
                ((kernel, bias),) = linear(f"{name}/ffn/{part}", inputs, outputs)
                yield from dense(getattr(feed_forward, layer), kernel, bias)
        if model.normalize_first:
            yield from norm(getattr(model, f"{half}_norm"), half)
    order = orders["target"]
    size = checkpoint.shape(table_name(checkpoint, "target"))[0]
    if model.tied_embeddings == "none":
        kernel = order.rows(checkpoint.read("decoder/projection/weight", (size, dim))).T
        yield model.target_embedding.reverse_embeddings, kernel
    if model.output_bias:
        name = "decoder/projection/bias"
        bias = checkpoint.read(name, (size,)) if checkpoint.has(name) else np.zeros(size, "float32")
        yield model.output_layer.bias, order.rows(bias, UNWRITTEN)


def _longest(table: np.ndarray, length: int) -> np.ndarray:
    """Returns a table with its last row once more for each that it lacks."""
    return table[np.minimum(np.arange(length), len(table) - 1)]
