"""What a family of models says of a checkpoint."""

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
"""Activations that have another name here."""
_WRITTEN_ACTIVATIONS = {name: name for name in ("relu", "gelu", "silu", "tanh", "sigmoid")} | {"gelu_tanh": "gelu_new"}

SIDES = {"source": "encoder", "target": "decoder"}
"""The half of a translator that reads each of its vocabularies."""

Weights = Iterator[tuple[Any, np.ndarray]]
Tensors = Mapping[str, Callable[[], np.ndarray]]


@dataclass(frozen=True)
class Imported:
    """A checkpoint as one of our models.

    Attributes:
        model: Its name.
        options: Its options that differ from the name's, those without a default included.
        tokenizers: Its tokenizers by name.
        weights: Function of the model that yields each variable and its value, one after another.
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
        usual: Those of the model by name that checkpoints of the family become.
        tokenizers: Its tokenizers by name.
        data: Settings of the data that it was made for, such as the classes of a classifier.
    """

    model: Any
    options: Mapping[str, Any]
    usual: Mapping[str, Any]
    tokenizers: Mapping[str, Tokenizer]
    data: Mapping[str, Any]

    def check(self, family: str, free: Collection[str], with_around: bool = False, **fixed: Any) -> None:
        """Checks that a family has what the options say.

        Args:
            family: Its name, for the error.
            free: The options whose value is free.
            with_around: Whether texts may have more around them than start and end, see `zoo.text.Around`.
            **fixed: The values of others, where they are not the usual ones.

        Raises:
            InputError: If it has not; the option is named.
        """
        for name, tokenizer in self.tokenizers.items():
            if not with_around and tokenizer.around != Around():
                raise InputError(
                    f"{family} has nothing but start and end around texts. Received: {name} texts with "
                    f"{tokenizer.around.language or 'another token'!r}."
                )
        only = {**self.usual, **fixed}
        for name, value in self.options.items():
            if name not in free and value != only.get(name):
                raise InputError(f"{family} has {name}={only.get(name)!r} only. Received: {name}={value!r}.")


@dataclass(frozen=True)
class Exported:
    """One of our models as a checkpoint.

    Attributes:
        config: What `config.json` says.
        tensors: Functions that return the tensors, by name.
        files: The other files, those of the tokenizer, by name: their text, their bytes, or what their JSON says.
        parts: Tensors of further files of weights, by the paths of these.
        aliases: Further names of tensors, and the tensors that they stand for, in formats that have such.
    """

    config: Mapping[str, Any]
    tensors: Tensors
    files: Mapping[str, Any]
    parts: Mapping[str, Tensors] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


Family = Callable[[Any], Imported]  # of the kind of checkpoint that has its types
_FAMILIES: dict[str, Family] = {}
_WITHOUT_INFLUENCE: dict[str, Mapping[str, str]] = {}


def register_family(
    *model_types: str, without_influence: Mapping[str, str] | None = None
) -> Callable[[Family], Family]:
    """Returns a decorator for the function that imports checkpoints of these model types.

    Args:
        *model_types: `model_type` of their `config.json`.
        without_influence: Keys of `config.json` that the function does not read and that change no number, and why;
            see `zoo.checkpoints.accounting` for those of all families. A key that is none of them is refused.

    Raises:
        ValueError: If one is registered already.
    """
    if taken := [name for name in model_types if name in _FAMILIES]:
        raise ValueError(f"The model type {taken[0]!r} is registered already.")

    def register(family: Family) -> Family:
        _FAMILIES.update(dict.fromkeys(model_types, family))
        _WITHOUT_INFLUENCE.update(dict.fromkeys(model_types, without_influence or {}))
        return family

    return register


def get_family(model_type: str) -> Family:
    """Returns the function for a model type.

    Raises:
        InputError: If there is none; the close ones are named.
    """
    if model_type not in _FAMILIES:
        raise unknown_name("model_type", model_type, _FAMILIES)
    return _FAMILIES[model_type]


def without_influence_in(model_type: str) -> Mapping[str, str]:
    """Returns the keys of `config.json` that change no number of checkpoints of a model type, and why."""
    return _WITHOUT_INFLUENCE[model_type]


Writer = Callable[[Trained], Exported]
_WRITERS: dict[tuple[str, str], list[tuple[str, Writer]]] = {}


def register_writer(model_class: str, usual: str, kind: str = "hf") -> Callable[[Writer], Writer]:
    """Returns a decorator for the function that writes models of a class as checkpoints of a family.

    Args:
        model_class: The class, as its `ModelSpec` has it.
        usual: The name of the model that checkpoints of the family become, whose options are `Trained.usual`.
        kind: The kind of folder: `"hf"` or `"ctranslate2"`.
    """

    def register(writer: Writer) -> Writer:
        _WRITERS.setdefault((kind, model_class), []).append((usual, writer))
        return writer

    return register


def get_writers(model_class: str, kind: str = "hf") -> list[tuple[str, Writer]]:
    """Returns what `register_writer` was given for a class of models: the names of the usual models, and functions."""
    return _WRITERS.get((kind, model_class), [])


def attentions_of(block: Any) -> list[Any]:
    """Returns the attention layers of a Transformer block in their order: of an encoder's one, of a decoder's two."""
    return [block.attention] if hasattr(block, "attention") else [block.self_attention, block.cross_attention]


def generation_config(config: Mapping[str, Any], max_length: int) -> dict[str, Any]:
    """Returns `generation_config.json` of a translator, by which tokens that are never written here are not there.

    Args:
        config: What `config.json` says.
        max_length: The largest number of tokens of an answer.
    """
    never = sorted({config["pad_token_id"], config["decoder_start_token_id"]})
    names = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
    return {
        "bad_words_ids": [[i] for i in never],
        "max_length": max_length,
        **{name: config[name] for name in names},
    }


def activation_name(family: str, activation: str) -> str:
    """Returns the name that `transformers` has for one of our activations.

    Raises:
        InputError: If it is none of those that both have; the family is named.
    """
    if activation not in _WRITTEN_ACTIVATIONS:
        known = ", ".join(_WRITTEN_ACTIVATIONS)
        raise InputError(f"{family} has the activations {known} only. Received: activation={activation!r}.")
    return _WRITTEN_ACTIVATIONS[activation]


def paired(columns: np.ndarray, head_dim: int) -> np.ndarray:
    """Returns columns [..., N · H] with the features i and i + H/2 of each head side by side, for rotary positions."""
    halves = columns.reshape(*columns.shape[:-1], -1, 2, head_dim // 2)
    return halves.swapaxes(-1, -2).reshape(columns.shape)


def dense(layer: Any, kernel: np.ndarray, bias: np.ndarray | None = None) -> Weights:
    """Yields the weights of a dense layer, given its matrix [inputs, outputs] and its bias, if it has one."""
    yield layer.kernel, kernel
    if bias is not None:
        yield layer.bias, bias
