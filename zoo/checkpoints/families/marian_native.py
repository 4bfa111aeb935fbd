"""Transformers that Marian's own software wrote (`type: transformer`)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.checkpoints.families.base import ACTIVATIONS, SIDES, Imported, Weights, attentions_of, register_family
from zoo.checkpoints.families.layouts import (
    UNWRITTEN,
    Columns,
    Copies,
    Layout,
    Mapped,
    OneRow,
    Rows,
    Transposed,
    normalization,
    read_mapped,
)
from zoo.checkpoints.marian_file import MODEL_TYPE, MarianCheckpoint
from zoo.checkpoints.tokenizers import mapped_subwords, reordered_subwords, single_characters
from zoo.checkpoints.vocabulary import NEW, Arrangement, arrange
from zoo.errors import InputError
from zoo.text import Tokenizer
from zoo.text.subwords import read_model

EPSILON = 1e-6
"""ε of its normalisations."""
POSITIONS = 1024
"""Rows of the table that its sinusoids become."""
_SHARED = "Wemb"
_LOGITS = "decoder_ff_logit_out"
_END, _UNKNOWN = "</s>", "<unk>"
_VOCABULARIES = (".spm", ".yml", ".yaml")
# The supported values of options, which are their defaults.
_ONLY = {
    "transformer-no-projection": False,
    "transformer-rnn-projection": False,
    "transformer-no-bias": False,
    "transformer-no-affine": False,
    "transformer-pool": False,
    "transformer-ffn-depth": 2,
    "transformer-train-positions": False,
    "transformer-train-position-embeddings": False,
    "transformer-disable-position-embeddings": False,
    "transformer-attention-mask": "default",
    "layer-normalization": False,
    "right-left": False,
    "ulr": False,
    "lemma-dim-emb": 0,
}
# Steps before a part, after it, and at the top, without dropout; the value is `normalize_first`.
_PROCESSES = {("", "a{norm}", ""): False, ("{norm}", "a", "{norm}"): True}
_NORMS = {"n": ("layer_norm", ("ln_scale", "ln_bias")), "r": ("rms_norm", ("rms_scale", ""))}


@register_family(f"{MODEL_TYPE} transformer")
def marian_native(checkpoint: MarianCheckpoint) -> Imported:
    """Returns a Transformer of Marian, with self-attention or SSRUs in its decoder, as one of our models.

    Its sinusoids have all sines before all cosines and the exponent i / (D/2 − 1), where ours have i / (D/2); they
    become a learned table of `POSITIONS` rows. The decoder begins with a vector of zeros, the row of our start, and has
    no padding; the bias of both prevents that they are written. Pre-norm blocks normalise keys and values of
    self-attention as well, as in training there.

    Raises:
        InputError: If it has options that our models do not support.
    """
    for name, only in _ONLY.items():
        checkpoint.option(name, only, only=only)
    inner = checkpoint.option("transformer-dim-ffn", 2048)
    for name, same in (("transformer-decoder-dim-ffn", inner), ("transformer-decoder-ffn-depth", 2)):
        if checkpoint.option(name, 0):
            checkpoint.option(name, same, only=same)
    if checkpoint.option("transformer-tied-layers"):
        raise InputError(f"{checkpoint.config_file}: transformer-tied-layers must be empty to be imported.")
    normalize_first, norm = _processes(checkpoint)
    orders = _orders(checkpoint)
    tokenizers = {side: _tokenizer(checkpoint, side, order) for side, order in orders.items()}
    activation = checkpoint.option("transformer-ffn-activation", "swish")
    options = {
        "source_vocab_size": len(orders["source"].original_ids),
        "target_vocab_size": len(orders["target"].original_ids),
        "num_layers": checkpoint.option("enc-depth", 6),
        "decoder_layers": checkpoint.option("dec-depth", 6),
        "decoder_self_attention": _autoregression(checkpoint),
        "num_heads": checkpoint.option("transformer-heads", 8),
        "model_dim": checkpoint.option("dim-emb", 512),
        "intermediate_dim": inner,
        "max_length": POSITIONS,
        "positions": "learned",
        "normalize_first": normalize_first,
        "normalization": _NORMS[norm][0],
        "epsilon": EPSILON,
        "activation": ACTIVATIONS.get(activation, activation),
        "tied_embeddings": _tied(checkpoint),
        "output_bias": True,
    }
    return Imported(
        "transformer_base", options, tokenizers, lambda model: _weights(checkpoint, model, orders, _NORMS[norm][1])
    )


def _processes(checkpoint: MarianCheckpoint) -> tuple[bool, str]:
    """Returns whether blocks normalise first, and the letter of the normalisation."""
    names = [f"transformer-{name}" for name in ("preprocess", "postprocess", "postprocess-top", "postprocess-emb")]
    defaults = ("", "dan", "", "d")
    configured = [str(checkpoint.option(name, value) or "") for name, value in zip(names, defaults, strict=True)]
    *around, embeddings = (steps.replace("d", "") for steps in configured)
    for letter in _NORMS:
        for steps, normalize_first in _PROCESSES.items():
            if not embeddings and around == [step.format(norm=letter) for step in steps]:
                return normalize_first, letter
    received = ", ".join(f"{name}={value!r}" for name, value in zip(names, configured, strict=True))
    raise InputError(
        f"{checkpoint.config_file}: only post-norm ('', 'dan', '') and pre-norm blocks ('n', 'da', 'n') are supported, "
        f"with n or r, and only dropout after embeddings. Received: {received}."
    )


def _autoregression(checkpoint: MarianCheckpoint) -> str:
    name = "transformer-decoder-autoreg"
    kind = checkpoint.option(name, "self-attention")
    if kind == "self-attention":
        return "same"
    if kind != "rnn":
        known = "self-attention, or rnn with dec-cell ssru"
        raise InputError(f"{checkpoint.config_file}: {name} must be {known}, to be imported. Received: {kind!r}.")
    checkpoint.option("dec-cell", "gru", only="ssru")
    return "ssru"


def _tied(checkpoint: MarianCheckpoint) -> str:
    if not (checkpoint.option("tied-embeddings", False) or checkpoint.option("tied-embeddings-all", False)):
        return "none"
    return "all" if _shares(checkpoint) else "target"


def _shares(checkpoint: MarianCheckpoint) -> bool:
    """Returns whether both sides have one table of embeddings."""
    return bool(checkpoint.option("tied-embeddings-all", False) or checkpoint.option("tied-embeddings-src", False))


def _orders(checkpoint: MarianCheckpoint) -> dict[str, Arrangement]:
    if len(checkpoint.vocabularies) != 2:
        names = ", ".join(path.name for path in checkpoint.vocabularies)
        raise InputError(f"{checkpoint.path}: a translator has two vocabularies. Received: {names}.")
    orders = {side: _order(checkpoint, side) for side in SIDES}
    if _shares(checkpoint) and orders["source"] != orders["target"]:
        raise InputError(f"{checkpoint.path}: the embeddings are shared, but the two vocabularies differ.")
    return orders


def _vocabulary(checkpoint: MarianCheckpoint, side: str) -> Path:
    path = checkpoint.vocabularies[list(SIDES).index(side)]
    if path.suffix not in _VOCABULARIES:
        known = " or ".join(_VOCABULARIES)
        raise InputError(f"{path}: vocabularies must be {known} to be imported. Received: {path.suffix!r}.")
    return path


def _order(checkpoint: MarianCheckpoint, side: str) -> Arrangement:
    path = _vocabulary(checkpoint, side)
    rows = checkpoint.shape(table_name(checkpoint, side))[0]
    if path.suffix == ".spm":
        model = read_model(path.read_bytes())
        size, end, unknown = model.vocab_size(), model.eos_id(), model.unk_id()
    else:
        ids = checkpoint.ids(path)
        size, end, unknown = max(ids.values(), default=-1) + 1, ids.get(_END, -1), ids.get(_UNKNOWN, -1)
    if min(end, unknown) < 0 or size > rows:
        raise InputError(
            f"{path} must have {_END}, {_UNKNOWN} and at most {rows} tokens, the rows of the embeddings. "
            f"Received: {size} tokens."
        )
    return arrange(rows, NEW, end, NEW, unknown)


def table_name(checkpoint: MarianCheckpoint, side: str) -> str:
    """Returns the name of the embeddings of a side."""
    return _SHARED if _shares(checkpoint) else f"{SIDES[side]}_Wemb"


def _tokenizer(checkpoint: MarianCheckpoint, side: str, order: Arrangement) -> Tokenizer:
    path = _vocabulary(checkpoint, side)
    if path.suffix == ".spm":
        return reordered_subwords(checkpoint, path.name, order)
    ids = checkpoint.ids(path)
    if (checkpoint.path / f"{side}.spm").is_file():
        return mapped_subwords(checkpoint, f"{side}.spm", ids, order)
    tokens = {i: token for token, i in ids.items()}
    ordinary = [tokens.get(i, "") for i in order.original_ids[4:]]
    return single_characters(ordinary, str(path), [f"{side}.spm"])


def _weights(
    checkpoint: MarianCheckpoint, model: Any, orders: Mapping[str, Arrangement], norms: tuple[str, str]
) -> Weights:
    for side in SIDES:
        yield getattr(model, f"{side}_positions").positions.embeddings, positions(POSITIONS, model.model_dim)
    yield from read_mapped(checkpoint, tensors(model, orders, checkpoint, norms))


def positions(length: int, dim: int) -> np.ndarray:
    """Returns Marian's sinusoids, [L, D]: `sin(p · 10000^(−i / (D/2 − 1)))` for i from 0, then the cosines."""
    rates = 10000.0 ** -(np.arange(dim // 2) / max(dim // 2 - 1, 1))
    phases = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(phases), np.cos(phases)], axis=1).astype("float32")


def tensors(
    model: Any, orders: Mapping[str, Arrangement], checkpoint: MarianCheckpoint, norms: tuple[str, str]
) -> Iterator[Mapped]:
    """Yields the tensors of a Marian and the variables that they are composed of.

    Args:
        model: The model.
        orders: The order of the tokens of each side.
        checkpoint: The checkpoint, whose output projection may be transposed.
        norms: The names of scale and shift of its normalisations.
    """
    yield from _tables(model, orders, checkpoint)
    for half in SIDES.values():
        for index, block in enumerate(getattr(model, f"{half}_blocks"), start=1):
            yield from _block(f"{half}_l{index}", block, model.normalize_first, norms)
        if model.normalize_first:
            yield from _norm(f"{half}_top", getattr(model, f"{half}_norm"), norms)


def _tables(model: Any, orders: Mapping[str, Arrangement], checkpoint: MarianCheckpoint) -> Iterator[Mapped]:
    order = orders["target"]
    size = checkpoint.shape(table_name(checkpoint, "target"))[0]
    source, target = model.source_embedding.embeddings, model.target_embedding
    if not _shares(checkpoint):
        source_size = checkpoint.shape(table_name(checkpoint, "source"))[0]
        yield Mapped(table_name(checkpoint, "source"), (source,), Rows(orders["source"], source_size))
        yield Mapped(table_name(checkpoint, "target"), (target.embeddings,), Rows(order, size))
    elif model.tied_embeddings == "all":
        yield Mapped(_SHARED, (target.embeddings,), Rows(order, size))
    else:
        yield Mapped(_SHARED, (source, target.embeddings), Copies(2, Rows(order, size)))
    if model.tied_embeddings == "none":
        columns: Layout = Rows(order, size, columns=True)
        older = checkpoint.has(f"{_LOGITS}_W")
        name, layout = (f"{_LOGITS}_W", Transposed(columns)) if older else (f"{_LOGITS}_Wt", columns)
        yield Mapped(name, (target.reverse_embeddings,), layout)
    biases = OneRow(Rows(order, size, new=UNWRITTEN))
    yield Mapped(f"{_LOGITS}_b", (model.output_layer.bias,), biases, may_lack=True)


def _block(name: str, block: Any, normalize_first: bool, norms: tuple[str, str]) -> Iterator[Mapped]:
    own, *memory = attentions_of(block)
    recurrent = not hasattr(own, "query_dense")
    if recurrent:
        yield Mapped(f"{name}_rnn_W", (own.input_dense.kernel,))
        yield from _affine(f"{name}_rnn", "f", own.forget_dense)
    attentions = [] if recurrent else [("self", own)]
    for part, attention in [*attentions, *(("context", layer) for layer in memory)]:
        for letter, layer in zip("qkvo", _maps(attention), strict=True):
            yield from _affine(f"{name}_{part}", letter, layer)
    for number, layer in enumerate((block.feed_forward.intermediate_dense, block.feed_forward.output_dense), start=1):
        yield from _affine(f"{name}_ffn", str(number), layer)
    first = "self_Wo" if not recurrent else "rnn" if normalize_first else "rnn_ffn"
    parts = [first, *(["context_Wo"] if memory else []), "ffn_ffn"]
    for part, layer in zip(parts, block.norms, strict=True):
        yield from _norm(f"{name}_{part}", layer, norms, "_pre" if normalize_first else "")


def _maps(attention: Any) -> tuple[Any, ...]:
    return attention.query_dense, attention.key_dense, attention.value_dense, attention.output_dense


def _affine(name: str, suffix: str, layer: Any) -> Iterator[Mapped]:
    """Yields matrix and bias of a dense layer; matrices are [inputs, outputs] as ours."""
    yield Mapped(f"{name}_W{suffix}", (layer.kernel,))
    yield Mapped(f"{name}_b{suffix}", (layer.bias,), OneRow(Columns()))


def _norm(name: str, layer: Any, norms: tuple[str, str], suffix: str = "") -> Iterator[Mapped]:
    for tensor in normalization(name, layer, OneRow(Columns()), norms):
        yield Mapped(f"{tensor.name.replace('.', '_')}{suffix}", tensor.variables, tensor.layout)
