"""What a family of models says of a checkpoint."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.errors import unknown_name
from zoo.text import Tokenizer

ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
}
"""Activations that have another name here."""

Weights = Iterator[tuple[Any, np.ndarray]]


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
class Exported:
    """One of our models as a checkpoint.

    Attributes:
        config: What `config.json` says.
        tensors: Functions that return the tensors, by name.
        files: The other files, those of the tokenizer, by name.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, Callable[[], np.ndarray]]
    files: Mapping[str, str]


Family = Callable[[Any], Imported]  # of the kind of checkpoint that has its types
_FAMILIES: dict[str, Family] = {}


def register_family(*model_types: str) -> Callable[[Family], Family]:
    """Returns a decorator for the function that imports checkpoints of these model types.

    Args:
        *model_types: `model_type` of their `config.json`.

    Raises:
        ValueError: If one is registered already.
    """
    if taken := [name for name in model_types if name in _FAMILIES]:
        raise ValueError(f"The model type {taken[0]!r} is registered already.")

    def register(family: Family) -> Family:
        _FAMILIES.update(dict.fromkeys(model_types, family))
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


def paired(columns: np.ndarray, head_dim: int) -> np.ndarray:
    """Returns columns [..., N · H] with the features i and i + H/2 of each head side by side, for rotary positions."""
    halves = columns.reshape(*columns.shape[:-1], -1, 2, head_dim // 2)
    return halves.swapaxes(-1, -2).reshape(columns.shape)


def dense(layer: Any, kernel: np.ndarray, bias: np.ndarray | None = None) -> Weights:
    """Yields the weights of a dense layer, given its matrix [inputs, outputs] and its bias, if it has one."""
    yield layer.kernel, kernel
    if bias is not None:
        yield layer.bias, bias
