"""Families of models: what they read from a checkpoint, what they write, and their registry."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.errors import InputError, unknown_name
from zoo.text import Around, Tokenizer

ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
}
"""Our names of the activations whose names differ."""
_WRITTEN_ACTIVATIONS = {name: name for name in ("relu", "gelu", "silu", "tanh", "sigmoid")} | {"gelu_tanh": "gelu_new"}

SIDES = {"source": "encoder", "target": "decoder"}
"""The half of a translator that each of its vocabularies belongs to."""

Weights = Iterator[tuple[Any, np.ndarray]]
Tensors = Mapping[str, Callable[[], np.ndarray]]


@dataclass(frozen=True)
class Imported:
    """A checkpoint as one of our models.

    Attributes:
        model: The model's name.
        options: The options that differ from those of this name, and those without a default.
        tokenizers: The tokenizers by name.
        weights: Function of the model that yields each variable and its value, one at a time.
        data: Settings of the data that the model was made for, such as the classes of a classifier.
    """

    model: str
    options: Mapping[str, Any]
    tokenizers: Mapping[str, Tokenizer]
    weights: Callable[[Any], Weights]
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """One of our models, to be written as a checkpoint.

    Attributes:
        model: The model.
        options: Its options.
        usual: The options of the named model that checkpoints of the family become.
        tokenizers: The tokenizers by name.
        data: Settings of the data that it was made for, such as the classes of a classifier.
    """

    model: Any
    options: Mapping[str, Any]
    usual: Mapping[str, Any]
    tokenizers: Mapping[str, Tokenizer]
    data: Mapping[str, Any]

    def check(self, family: str, free: Collection[str], with_around: bool = False, **fixed: Any) -> None:
        """Checks that a family supports the options.

        Args:
            family: The family's name, for the error.
            free: The options that may have any value.
            with_around: Whether texts may have other tokens around them than start and end, see `zoo.text.Around`.
            **fixed: Options whose only supported value is not the usual one, and that value.

        Raises:
            InputError: If an option has a value that the family does not support; the option is named.
        """
        for name, tokenizer in self.tokenizers.items():
            if not with_around and tokenizer.around != Around():
                raise InputError(
                    f"{family} supports only start and end around texts. Received: {name} texts with "
                    f"{tokenizer.around.language or 'another token'!r}."
                )
        only = {**self.usual, **fixed}
        for name, value in self.options.items():
            if name not in free and value != only.get(name):
                raise InputError(f"{family} supports only {name}={only.get(name)!r}. Received: {name}={value!r}.")


@dataclass(frozen=True)
class Exported:
    """One of our models as a checkpoint.

    Attributes:
        config: The content of `config.json`.
        tensors: Functions that return the tensors, by name.
        files: The files of the tokenizer by name: as text, as bytes, or as the value to be written as JSON.
        parts: Tensors of further files of weights, by the paths of these files.
        aliases: Second names of tensors, and the tensors that they stand for, in formats that support them.
    """

    config: Mapping[str, Any]
    tensors: Tensors
    files: Mapping[str, Any]
    parts: Mapping[str, Tensors] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


Family = Callable[[Any], Imported]  # its argument is the class of checkpoint that its model types occur in
_FAMILIES: dict[str, Family] = {}
_WITHOUT_INFLUENCE: dict[str, Mapping[str, str]] = {}


def register_family(
    *model_types: str, without_influence: Mapping[str, str] | None = None
) -> Callable[[Family], Family]:
    """Returns a decorator for the function that imports checkpoints of these model types.

    Args:
        *model_types: `model_type` of their `config.json`.
        without_influence: Keys of `config.json` that the function does not read and that change no output, and why;
            `zoo.checkpoints.accounting` lists those of all families. Any other key is refused.

    Raises:
        ValueError: If one of them is registered already.
    """
    if registered := [name for name in model_types if name in _FAMILIES]:
        raise ValueError(f"The model type {registered[0]!r} is registered already.")

    def register(family: Family) -> Family:
        _FAMILIES.update(dict.fromkeys(model_types, family))
        _WITHOUT_INFLUENCE.update(dict.fromkeys(model_types, without_influence or {}))
        return family

    return register


def get_family(model_type: str) -> Family:
    """Returns the function that imports checkpoints of a model type.

    Raises:
        InputError: If there is none; close names are listed.
    """
    if model_type not in _FAMILIES:
        raise unknown_name("model_type", model_type, _FAMILIES)
    return _FAMILIES[model_type]


def without_influence_in(model_type: str) -> Mapping[str, str]:
    """Returns the keys of `config.json` that change no output of a model type, and why."""
    return _WITHOUT_INFLUENCE[model_type]


Writer = Callable[[Trained], Exported]
_WRITERS: dict[tuple[str, str], list[tuple[str, Writer]]] = {}


def register_writer(model_class: str, usual: str, kind: str = "hf") -> Callable[[Writer], Writer]:
    """Returns a decorator for the function that writes models of a class as checkpoints of a family.

    Args:
        model_class: The class, as in its `ModelSpec`.
        usual: The name of the model that checkpoints of the family become; its options are `Trained.usual`.
        kind: The kind of folder: `"hf"` or `"ctranslate2"`.
    """

    def register(writer: Writer) -> Writer:
        _WRITERS.setdefault((kind, model_class), []).append((usual, writer))
        return writer

    return register


def get_writers(model_class: str, kind: str = "hf") -> list[tuple[str, Writer]]:
    """Returns the registered writers of a class of models, each with the name of its usual model."""
    return _WRITERS.get((kind, model_class), [])


def attentions_of(block: Any) -> list[Any]:
    """Returns the attention layers of a Transformer block in their order: one in an encoder, two in a decoder."""
    return [block.attention] if hasattr(block, "attention") else [block.self_attention, block.cross_attention]


def generation_config(config: Mapping[str, Any], max_length: int) -> dict[str, Any]:
    """Returns `generation_config.json` of a translator; it forbids the tokens that our decoding never writes.

    Args:
        config: The content of `config.json`.
        max_length: The largest number of tokens of a translation.
    """
    forbidden = sorted({config["pad_token_id"], config["decoder_start_token_id"]})
    names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    return {
        "bad_words_ids": [[i] for i in forbidden],
        "max_length": max_length,
        **{name: config[name] for name in names},
    }


def activation_name(family: str, activation: str) -> str:
    """Returns the name of one of our activations in `transformers`.

    Raises:
        InputError: If `transformers` does not have it; the family is named.
    """
    if activation not in _WRITTEN_ACTIVATIONS:
        known = ", ".join(_WRITTEN_ACTIVATIONS)
        raise InputError(f"{family} supports only the activations {known}. Received: activation={activation!r}.")
    return _WRITTEN_ACTIVATIONS[activation]


def paired(columns: np.ndarray, head_dim: int, rotated_dim: int | None = None) -> np.ndarray:
    """Returns columns [..., N · H] in which features i and i + R/2 of each head are neighbours, for rotary positions.

    Checkpoints rotate pairs of features that are half of the rotated part apart (`half_split`), our models pairs of
    neighbours (`interleaved`).

    Args:
        columns: The columns in the order of the checkpoint.
        head_dim: H.
        rotated_dim: R, how many features of each head are rotated. Default: all.
    """
    heads = columns.reshape(*columns.shape[:-1], -1, head_dim).copy()
    rotated = heads[..., :rotated_dim]
    halves = rotated.reshape(*rotated.shape[:-1], 2, -1)
    rotated[...] = halves.swapaxes(-1, -2).reshape(rotated.shape)
    return heads.reshape(columns.shape)


def dense(layer: Any, kernel: np.ndarray, bias: np.ndarray | None = None) -> Weights:
    """Yields the variables of a dense layer with its matrix [inputs, outputs] and its bias, if it has one."""
    yield layer.kernel, kernel
    if bias is not None:
        yield layer.bias, bias
