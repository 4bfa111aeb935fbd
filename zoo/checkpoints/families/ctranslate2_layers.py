"""What the encoder-decoders and the language models of CTranslate2 share."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.checkpoints.families.base import Tensors, attentions_of
from zoo.checkpoints.families.layouts import Mapped, linear, normalization
from zoo.checkpoints.tokenizers import SUBWORDS, has_bytes, original_ids_of
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
_NORM = ("gamma", "beta")


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


def table_of(model: Any, positions: Any) -> np.ndarray:
    """Returns the table of a model's learned or sinusoidal positions, [L, D]."""
    if model.positions == "learned":
        return np.asarray(positions.positions.embeddings)
    return sinusoids(model.max_length, model.model_dim)


def norm(name: str, layer: Any) -> Iterator[Mapped]:
    """Yields the tensors of a normalisation."""
    yield from _named(normalization(name, layer, names=_NORM))


def blocks(half: str, layers: Iterable[Any], parallel: bool = False) -> Iterator[Mapped]:
    """Yields the tensors of the blocks of an encoder or a decoder.

    Args:
        half: The prefix of their names.
        layers: The blocks.
        parallel: Whether both parts of a block read the same activations.
    """
    for index, block in enumerate(layers):
        name = f"{half}/layer_{index}"
        attentions = dict(zip(("self_attention", "attention"), attentions_of(block), strict=False))
        for (part, attention), layer_norm in zip(attentions.items(), block.norms, strict=False):
            yield from norm(f"{name}/input_layer_norm" if parallel else f"{name}/{part}/layer_norm", layer_norm)
            yield from _attention(f"{name}/{part}", attention, part == "attention")
        last = "post_attention_layer_norm" if parallel else "ffn/layer_norm"
        yield from norm(f"{name}/{last}", block.norms[-1])
        feed_forward = block.feed_forward
        yield from _linear(f"{name}/ffn/linear_0", feed_forward.intermediate_dense)
        yield from _linear(f"{name}/ffn/linear_1", feed_forward.output_dense)
        if hasattr(feed_forward, "linear_dense"):
            yield from _linear(f"{name}/ffn/linear_0_noact", feed_forward.linear_dense)


def _attention(name: str, attention: Any, reads_memory: bool) -> Iterator[Mapped]:
    """Yields the tensors of an attention; queries, keys and values are one matrix, or keys and values of a memory."""
    query, key, value = attention.query_dense, attention.key_dense, attention.value_dense
    groups = ((query,), (key, value)) if reads_memory else ((query, key, value),)
    for index, layers in enumerate((*groups, (attention.output_dense,))):
        yield from _linear(f"{name}/linear_{index}", *layers)
    if getattr(attention, "qk_norm", False):
        yield from norm(f"{name}/q_norm", attention.query_norm)
        yield from norm(f"{name}/k_norm", attention.key_norm)


def _linear(name: str, *layers: Any) -> Iterator[Mapped]:
    yield from _named(linear(name, *layers, bias=layers[0].use_bias))


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
