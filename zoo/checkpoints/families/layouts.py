"""The names and layouts of a family's tensors, said once and read in both directions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.vocabulary import NEW, Arrangement
from zoo.errors import InputError


class Layout(Protocol):
    """How a tensor of a checkpoint holds some variables of ours."""

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Returns the tensor's shape, given those of the variables."""

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """Returns the values of the variables."""

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the tensor; raises InputError if none holds these values."""


class Columns:
    """Variables side by side, along the last axis; one alone is as it is."""

    def __init__(self, count: int = 1):
        self._count = count

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return np.split(tensor, self._count, axis=-1)

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return np.concatenate(values, axis=-1)


class Rows:
    """One variable with a row for each symbol of a vocabulary.

    Args:
        order: Our order of the symbols.
        size: The number of rows in the checkpoint.
    """

    def __init__(self, order: Arrangement, size: int):
        self._order, self._size = order, size

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return (self._size, *shapes[0][1:])

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return [self._order.rows(tensor)]

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        (ours,), ids = values, np.array(self._order.original_ids)
        tensor = np.zeros((self._size, *ours.shape[1:]), ours.dtype)
        known = ids != NEW
        tensor[ids[known]] = ours[known]
        if not np.array_equal(tensor[ids[known]], ours[known]):
            raise InputError(
                "A symbol that both begins and ends texts has one row in this format, and two that differ in the model."
            )
        return tensor


@dataclass(frozen=True)
class Mapped:
    """A tensor of a checkpoint, and the variables of ours that are made of it."""

    name: str
    variables: tuple[Any, ...]
    layout: Layout = Columns()  # noqa: RUF009 (without state)


def read_mapped(checkpoint: Checkpoint, tensors: Iterable[Mapped]) -> Iterator[tuple[Any, np.ndarray]]:
    """Yields each variable and its value; raises InputError as `Checkpoint.read`."""
    for each in tensors:
        shape = each.layout.shape([tuple(variable.shape) for variable in each.variables])
        yield from zip(each.variables, each.layout.split(checkpoint.read(each.name, shape)), strict=True)


def write_mapped(tensors: Iterable[Mapped]) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that return the tensors, by name, for `write_safetensors`."""

    def join(each: Mapped) -> np.ndarray:
        return each.layout.join([np.asarray(variable) for variable in each.variables])

    return {each.name: lambda each=each: join(each) for each in tensors}  # type: ignore[misc]
