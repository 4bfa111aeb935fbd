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
    """Variables side by side, along the last axis; one alone is as it is.

    Args:
        parts: How many of one size, or where each but the first begins.
    """

    def __init__(self, parts: int | Sequence[int] = 1):
        self._parts = parts

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return np.split(tensor, self._parts, axis=-1)

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return np.concatenate(values, axis=-1)


class Transposed:
    """Matrices of outputs times inputs, where ours are inputs times outputs.

    Args:
        inner: How the transposed tensor holds the variables.
    """

    def __init__(self, inner: Layout):
        self._inner = inner

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return self._inner.shape(shapes)[::-1]

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return self._inner.split(tensor.T)

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return self._inner.join(values).T


class Reordered:
    """A tensor whose entries along an axis are in another order than ours.

    Args:
        places: The place in the tensor of each of our entries.
        axis: The axis of the tensor.
        inner: How the tensor in our order holds the variables.
    """

    def __init__(self, places: np.ndarray, axis: int, inner: Layout):
        self._places, self._axis, self._inner = places, axis, inner

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return self._inner.shape(shapes)

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return self._inner.split(tensor.take(self._places, self._axis))

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return self._inner.join(values).take(self._places.argsort(), self._axis)


class OneRow:
    """A vector as the only row of a matrix.

    Args:
        inner: How the vector holds the variables.
    """

    def __init__(self, inner: Layout):
        self._inner = inner

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return (1, *self._inner.shape(shapes))

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return self._inner.split(tensor[0])

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return self._inner.join(values)[None]


class Rows:
    """One variable with a row for each token of a vocabulary.

    Args:
        order: Our order of the tokens.
        size: The number of rows in the checkpoint.
        columns: Whether the variable has a column for each token, and not a row.
        new: What the rows of tokens are filled with that the checkpoint does not have.
    """

    def __init__(self, order: Arrangement, size: int, columns: bool = False, new: float = 0.0):
        self._order, self._size, self._columns, self._new = order, size, columns, new

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        rows = shapes[0][::-1] if self._columns else shapes[0]
        return (self._size, *rows[1:])

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        rows = self._order.rows(tensor, self._new)
        return [rows.T if self._columns else rows]

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        ours, ids = values[0].T if self._columns else values[0], np.array(self._order.original_ids)
        tensor = np.zeros((self._size, *ours.shape[1:]), ours.dtype)
        known = ids != NEW
        tensor[ids[known]] = ours[known]
        if not np.array_equal(tensor[ids[known]], ours[known]):
            raise InputError(
                "Two tokens of the model are one in this format, and the model has rows for them that differ."
            )
        return tensor


class Copies:
    """Several variables that are the same.

    Args:
        count: How many.
        inner: How the tensor holds one of them.
    """

    def __init__(self, count: int, inner: Layout):
        self._count, self._inner = count, inner

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return self._inner.shape(shapes[:1])

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return [*self._inner.split(tensor)] * self._count

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        if not all(np.array_equal(values[0], value) for value in values[1:]):
            raise InputError("Source and target have one table of embeddings in this format, and the model has two.")
        return self._inner.join(values[:1])


class Scaled:
    """Variables that are a tensor times a factor.

    Args:
        factor: The factor.
        inner: How the product holds the variables.
    """

    def __init__(self, factor: float, inner: Layout):
        self._factor, self._inner = factor, inner

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return self._inner.shape(shapes)

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return self._inner.split(self._factor * tensor)

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return self._inner.join(values) / self._factor


class Shifted:
    """One variable that is a tensor plus a number.

    Args:
        by: The number.
    """

    def __init__(self, by: float):
        self._by = by

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return shapes[0]

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return [tensor + self._by]

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return values[0] - self._by


class Later:
    """One variable whose rows come after others in the tensor, which nobody reads and are written as zeros.

    Args:
        first: How many rows come before.
    """

    def __init__(self, first: int):
        self._first = first

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return (self._first + shapes[0][0], *shapes[0][1:])

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return [tensor[self._first :]]

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return np.pad(values[0], [(self._first, 0), *[(0, 0)] * (values[0].ndim - 1)])


@dataclass(frozen=True)
class Mapped:
    """A tensor of a checkpoint, and the variables of ours that are made of it.

    Attributes:
        name: Its name.
        variables: The variables.
        layout: How it holds them.
        may_lack: Whether a checkpoint may be without it: it then is one of zeros.
    """

    name: str
    variables: tuple[Any, ...]
    layout: Layout = Columns()  # noqa: RUF009 (without state)
    may_lack: bool = False


def linear(
    name: str, *layers: Any, inputs: np.ndarray | None = None, outputs: np.ndarray | None = None, bias: bool = True
) -> Iterator[Mapped]:
    """Yields `NAME.weight`, outputs times inputs, and `NAME.bias` of a map, or of several that stand below each other.

    Args:
        name: What the names of the tensors begin with.
        *layers: The dense layers.
        inputs: The place in the tensors of each of our inputs; by default they are in one order.
        outputs: The place in the tensors of each of our outputs, those of all layers.
        bias: Whether there are biases.
    """
    vectors: Layout = Columns(np.cumsum([layer.kernel.shape[1] for layer in layers[:-1]], dtype=int).tolist())
    matrices: Layout = Transposed(vectors)
    if outputs is not None:
        vectors, matrices = Reordered(outputs, 0, vectors), Reordered(outputs, 0, matrices)
    if inputs is not None:
        matrices = Reordered(inputs, 1, matrices)
    yield Mapped(f"{name}.weight", tuple(layer.kernel for layer in layers), matrices)
    if bias:
        yield Mapped(f"{name}.bias", tuple(layer.bias for layer in layers), vectors)


def tables(model: Any, order: Arrangement, size: int, embeddings: str, logits: str) -> Iterator[Mapped]:
    """Yields the embeddings of a language model, and unless they are tied the matrix of its logits.

    Args:
        model: The model.
        order: The order of its tokens.
        size: The number of tokens in the checkpoint.
        embeddings: The name of the embeddings.
        logits: The name of the matrix of the logits.
    """
    yield Mapped(embeddings, (model.embedding.embeddings,), Rows(order, size))
    if not model.tied_embeddings:
        yield Mapped(logits, (model.embedding.reverse_embeddings,), Rows(order, size, columns=True))


def rows_of_tokens(model: Any) -> list[np.ndarray]:
    """Returns the tables of a language model that `tables` yields, with a row for each of our tokens."""
    found = [np.asarray(model.embedding.embeddings)]
    return found if model.tied_embeddings else [*found, np.asarray(model.embedding.reverse_embeddings).T]


UNWRITTEN = -1e4
"""Bias of the logit of a token that a checkpoint does not have: it takes no probability from the others."""
NORM = ("weight", "bias")
"""What scale and shift of a normalisation are called."""


def normalization(
    name: str, layer: Any, layout: Layout | None = None, names: tuple[str, str] = NORM
) -> Iterator[Mapped]:
    """Yields the tensors of a normalisation, `NAME.weight` and, if it shifts, `NAME.bias`, unless `names` differ."""
    shifts = hasattr(layer, "beta")
    for part, variable in zip(names, (layer.gamma, layer.beta) if shifts else (layer.scale,), strict=False):
        yield Mapped(f"{name}.{part}", (variable,), layout or Columns())


def read_mapped(checkpoint: Checkpoint, tensors: Iterable[Mapped]) -> Iterator[tuple[Any, np.ndarray]]:
    """Yields each variable and its value; raises InputError as `Checkpoint.read`."""
    for each in tensors:
        shape = each.layout.shape([tuple(variable.shape) for variable in each.variables])
        lacks = each.may_lack and not checkpoint.has(each.name)
        tensor = np.zeros(shape, "float32") if lacks else checkpoint.read(each.name, shape)
        yield from zip(each.variables, each.layout.split(tensor), strict=True)


def write_mapped(tensors: Iterable[Mapped]) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that return the tensors, by name, for `write_safetensors`."""

    def join(each: Mapped) -> np.ndarray:
        return each.layout.join([np.asarray(variable) for variable in each.variables])

    return {each.name: lambda each=each: join(each) for each in tensors}  # type: ignore[misc]
