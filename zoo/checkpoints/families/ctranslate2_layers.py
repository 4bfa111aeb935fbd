"""What the encoder-decoders and the language models of CTranslate2 share."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.checkpoints.ctranslate2_file import CTranslate2Checkpoint
from zoo.checkpoints.families.base import Tensors, attentions_of
from zoo.checkpoints.families.layouts import Columns, Mapped, Reordered, linear, normalization
from zoo.checkpoints.tokenizers import (
    SUBWORDS,
    has_bytes,
    mapped_subwords,
    model_of,
    original_ids_of,
    single_characters,
)
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.text import CharTokenizer, SubwordTokenizer, Tokenizer, WordTokenizer
from zoo.text.reordered_subwords import UNUSED
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN

ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "silu", 3: "gelu", 5: "tanh", 6: "sigmoid"}
"""Our names of the activations."""
OPTIONS = ("num_layers", "num_heads", "model_dim", "intermediate_dim", "max_length", "normalize_first", "epsilon")
"""Options that may have any value when a model is written."""
FREE = {
    *OPTIONS,
    *("activation", "gated", "normalization", "use_bias", "scale_embeddings", "tied_embeddings", "output_bias"),
    *("dropout", "attention_dropout", "feed_forward_dropout"),
}
"""Options that may have any value when a model is written, or that are checked elsewhere."""
EPSILON = 1e-5
"""ε of normalisations if `config.json` has none."""
_NORM = ("gamma", "beta")
_SPM = ("{side}.spm", "spm.model", "sentencepiece.model", "sentencepiece.bpe.model")
_IGNORED = ("embeddings_merge", "alignment_layer", "alignment_heads", "alibi_use_positive_positions", "scale_alibi")


def activation_number(activation: str) -> int:
    """Returns the number of one of our activations.

    Raises:
        InputError: If CTranslate2 does not have it.
    """
    numbers = {name: number for number, name in ACTIVATIONS.items()}
    if activation not in numbers:
        known = ", ".join(numbers)
        raise InputError(f"CTranslate2 supports only the activations {known}. Received: activation={activation!r}.")
    return numbers[activation]


def activation_of(checkpoint: CTranslate2Checkpoint, number: int) -> str:
    """Returns our name of an activation; raises InputError for others."""
    if number not in ACTIVATIONS:
        raise InputError(f"{checkpoint.files[0]}: the activation number {number} is not supported.")
    return ACTIVATIONS[number]


def ignore_numbers(checkpoint: CTranslate2Checkpoint, half: str, *false: str) -> None:
    """Marks numbers of an encoder or a decoder that affect no output.

    Args:
        checkpoint: The checkpoint.
        half: `"encoder"` or `"decoder"`.
        *false: The names of flags that must be false.

    Raises:
        InputError: If one of them is true.
    """
    checkpoint.ignore(*(f"{prefix}{name}" for name in _IGNORED for prefix in (f"{half}/", "")))
    for name in false:
        if checkpoint.scalar(f"{half}/{name}", default=0):
            raise InputError(f"{checkpoint.files[0]}: {half}/{name} must be false to be imported. Received: true.")


def num_blocks(checkpoint: CTranslate2Checkpoint, half: str) -> int:
    """Returns the number of blocks of an encoder or a decoder."""
    return next(n for n in itertools.count() if not checkpoint.has(f"{half}/layer_{n}/ffn/linear_0/weight"))


def scales_embeddings(checkpoint: CTranslate2Checkpoint, halves: Iterable[str], dim: int) -> bool:
    """Returns whether embeddings are multiplied by √D; the file has a flag, or the factor.

    Raises:
        InputError: If they are multiplied by another factor, or those of two halves by different ones.
    """
    values = set()
    for half in halves:
        names = (f"{half}/scale_embeddings", f"{half}/embeddings/multiply_by_sqrt_depth")
        value = checkpoint.scalar(*names, default=1)
        values.add((dim**0.5 if value else 1.0) if isinstance(value, int) else value)
    factor = values.pop()
    if values or not any(np.isclose(factor, supported) for supported in (1.0, dim**0.5)):
        raise InputError(
            f"{checkpoint.files[0]}: embeddings must be multiplied by 1 or √{dim}, those of both sides. "
            f"Received: {factor}{''.join(f' and {other}' for other in values)}."
        )
    return not np.isclose(factor, 1.0)


def read_names(checkpoint: CTranslate2Checkpoint) -> tuple[str, ...]:
    """Returns the names of the tokens for start, end and unknown."""
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return tuple(checkpoint.option(key, usual) or usual for key, usual in names.items())


def padding_of(places: Mapping[str, int]) -> int | None:
    """Returns the id of the padding token of a vocabulary, if it has one."""
    return next((places[name] for name in ("<blank>", "<pad>") if name in places), None)


def pieces_tokenizer(
    checkpoint: CTranslate2Checkpoint, side: str, tokens: Sequence[str], order: Arrangement
) -> Tokenizer:
    """Returns the tokenizer of a vocabulary of pieces of a SentencePiece model, or of characters.

    Args:
        checkpoint: The checkpoint.
        side: The name of its side.
        tokens: The vocabulary.
        order: Our order of the ids.

    Raises:
        InputError: If its tokens are pieces and the model is missing.
    """
    names = [name.format(side=side) for name in _SPM]
    model = next((name for name in names if (checkpoint.path / name).is_file()), None)
    described = checkpoint.option("lowercase")  # a key of ours alone
    lowercase = described.get(side) if isinstance(described, dict) else None
    if model is not None and lowercase is not None:
        return SubwordTokenizer(model_of(checkpoint, model), lowercase)
    if model is not None:
        return mapped_subwords(checkpoint, model, {token: place for place, token in enumerate(tokens)}, order)
    ordinary = order.pieces([*tokens, *[""] * (max(order.original_ids) + 1 - len(tokens))])[4:]
    return single_characters(ordinary, f"{checkpoint.path}: the {side}", names, bool(lowercase))


def scalars(kind: str, **values: float) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that return numbers of one type as tensors, by name."""
    return {name: lambda value=value: np.array(value, kind) for name, value in values.items()}  # type: ignore[misc]


def under(scope: str, tensors: Tensors) -> dict[str, Callable[[], np.ndarray]]:
    """Returns tensors with their names prefixed by a scope."""
    return {f"{scope}/{name}": tensor for name, tensor in tensors.items()}


def numbers_of_half(options: Mapping[str, Any]) -> dict[str, Callable[[], np.ndarray]]:
    """Returns the options that encoders and decoders both have, as tensors by name."""
    flags = {"pre_norm": options["normalize_first"], "scale_embeddings": options["scale_embeddings"]}
    return {
        **scalars("int16", num_heads=options["num_heads"]),
        **scalars("int8", activation=activation_number(options["activation"]), **flags),
    }


def numbers_of_decoder() -> dict[str, Callable[[], np.ndarray]]:
    """Returns the further options of decoders, as tensors by name: our models have none of them."""
    unused = ("alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding")
    return {
        **scalars("int8", **dict.fromkeys(unused, 0)),
        **scalars("int16", alignment_layer=-1, alignment_heads=1),
    }


def sinusoids(length: int, dim: int) -> np.ndarray:
    """Returns our sinusoids as a table [L, D] in float32."""
    phases = np.arange(length)[:, None] * 10000.0 ** -(np.arange(dim // 2) * 2 / dim)
    return np.stack([np.sin(phases), np.cos(phases)], axis=-1).reshape(length, -1).astype("float32")


def is_ours(table: np.ndarray) -> bool:
    """Returns whether positions [L, D] are our sinusoids: sine and cosine of `p · 10000^(−2i/D)` in turn, p from 0."""
    return bool(np.allclose(table, sinusoids(*table.shape), atol=1e-3))


def table_of(model: Any, positions: Any) -> np.ndarray:
    """Returns the table of a model's learned or sinusoidal positions, [L, D]."""
    if model.positions == "learned":
        return np.asarray(positions.positions.embeddings)
    return sinusoids(model.max_length, model.model_dim)


def norm(name: str, layer: Any) -> Iterator[Mapped]:
    """Yields the tensors of a normalisation."""
    yield from _named(normalization(name, layer, names=_NORM))


Places = Callable[[int], np.ndarray]


def blocks(half: str, layers: Iterable[Any], parallel: bool = False, places: Places | None = None) -> Iterator[Mapped]:
    """Yields the tensors of the blocks of an encoder or a decoder.

    Args:
        half: The prefix of their names.
        layers: The blocks.
        parallel: Whether both parts of a block read the same activations.
        places: Function from the number of features of queries or keys to the index in the tensors of each of ours.
            Default: the same order.
    """
    for index, block in enumerate(layers):
        name = f"{half}/layer_{index}"
        attentions = dict(zip(("self_attention", "attention"), attentions_of(block), strict=False))
        for (part, attention), layer_norm in zip(attentions.items(), block.norms, strict=False):
            yield from norm(f"{name}/input_layer_norm" if parallel else f"{name}/{part}/layer_norm", layer_norm)
            yield from _attention(f"{name}/{part}", attention, part == "attention", places)
        last = "post_attention_layer_norm" if parallel else "ffn/layer_norm"
        yield from norm(f"{name}/{last}", block.norms[-1])
        feed_forward = block.feed_forward
        yield from _linear(f"{name}/ffn/linear_0", feed_forward.intermediate_dense)
        yield from _linear(f"{name}/ffn/linear_1", feed_forward.output_dense)
        if hasattr(feed_forward, "linear_dense"):
            yield from _linear(f"{name}/ffn/linear_0_noact", feed_forward.linear_dense)


def _attention(name: str, attention: Any, reads_memory: bool, places: Places | None) -> Iterator[Mapped]:
    """Yields the tensors of an attention; queries, keys and values are one matrix, or keys and values of a memory."""
    query, key, value = attention.query_dense, attention.key_dense, attention.value_dense
    groups = ((query,), (key, value)) if reads_memory else ((query, key, value),)
    for index, layers in enumerate((*groups, (attention.output_dense,))):
        outputs = _outputs(layers, places) if places and index == 0 else None
        yield from _linear(f"{name}/linear_{index}", *layers, outputs=outputs)
    if getattr(attention, "qk_norm", False):
        for part, layer in (("q_norm", attention.query_norm), ("k_norm", attention.key_norm)):
            layout = Reordered(places(layer.scale.shape[0]), 0, Columns()) if places else None
            yield from _named(normalization(f"{name}/{part}", layer, layout, names=_NORM))


def _outputs(layers: Sequence[Any], places: Places) -> np.ndarray:
    """Returns the index in their joined matrix of each output of queries, keys and values."""
    query, key, value = (layer.kernel.shape[1] for layer in layers)
    return np.concatenate([places(query), query + places(key), query + key + np.arange(value)])


def _linear(name: str, *layers: Any, outputs: np.ndarray | None = None) -> Iterator[Mapped]:
    yield from _named(linear(name, *layers, outputs=outputs, bias=layers[0].use_bias))


def _named(tensors: Iterable[Mapped]) -> Iterator[Mapped]:
    """Yields tensors under their names in CTranslate2."""
    for tensor in tensors:
        yield dataclasses.replace(tensor, name=tensor.name.replace(".", "/"))


def order_of(tokenizer: Tokenizer, side: str) -> Arrangement:
    """Returns the order of the tokens of a tokenizer.

    Args:
        tokenizer: The tokenizer.
        side: The name of its side, for the error.

    Raises:
        InputError: If a folder of CTranslate2 cannot name its tokens.
    """
    if type(tokenizer) not in (*SUBWORDS, CharTokenizer):
        known = " or ".join(kind.kind for kind in (*SUBWORDS, CharTokenizer))
        raise InputError(f"The tokenizer of the {side} must be {known}. Received: tokenizer={tokenizer.kind!r}.")
    if has_bytes(tokenizer):
        raise InputError(f"The tokenizer of the {side} must have no single bytes as pieces. Received: some.")
    return Arrangement(original_ids_of(tokenizer))


def tokens_of(tokenizer: Tokenizer, order: Arrangement) -> list[str]:
    """Returns the vocabulary of a folder: the token of each id.

    Args:
        tokenizer: A tokenizer that `order_of` accepts.
        order: The order of our tokens.

    Raises:
        InputError: If an ordinary token has the name of a special one.
    """
    pieces = tokenizer.piece_table()
    if isinstance(tokenizer, CharTokenizer):
        pieces = (*SPECIAL_PIECES, *tokenizer.characters)  # its `piece_table` escapes some
    ordinary = dict(zip(order.original_ids[UNKNOWN + 1 :], pieces[UNKNOWN + 1 :], strict=True))
    tokens = [ordinary.get(i, UNUSED) for i in range(order.size)]
    for ours in (START, PAD, END, UNKNOWN):  # if start shares an id, the other name wins
        tokens[order.original_ids[ours]] = SPECIAL_PIECES[ours]
    if ambiguous := {tokens[i] for i in order.original_ids[: UNKNOWN + 1]} & {*ordinary.values()}:
        raise InputError(f"{ambiguous.pop()} is an ordinary token of the model, and the name of a special one.")
    return tokens


def special_names(tokens: Sequence[str], order: Arrangement) -> dict[str, str]:
    """Returns the special tokens of a vocabulary by their keys in `config.json`."""
    ids = dict(zip(("bos_token", "eos_token", "unk_token"), order.original_ids[START : UNKNOWN + 1], strict=True))
    return {name: tokens[i] for name, i in ids.items()}


def lowercase_of(tokenizers: Mapping[str, Tokenizer]) -> dict[str, bool]:
    """Returns whether tokenizers lower case, by name; CTranslate2 itself ignores this key of `config.json`."""
    ours = (CharTokenizer, SubwordTokenizer, WordTokenizer)
    return {name: tokenizer.lowercase for name, tokenizer in tokenizers.items() if type(tokenizer) in ours}
