"""Layouts of tensors: declared once for a family, and used both to read and to write its checkpoints."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.vocabulary import NEW, Arrangement
from zoo.errors import InputError


class Layout(Protocol):
    """How a tensor of a checkpoint is composed of variables of ours."""

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Returns the shape of the tensor from those of the variables."""

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """Returns the values of the variables."""

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the tensor; raises InputError if no tensor can hold these values."""


class Columns:
    """Variables that are concatenated along the last axis; a single one is the tensor itself.

    Args:
        parts: The number of variables of equal size, or the column at which each variable but the first begins.
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
    """Matrices [outputs, inputs], where ours are [inputs, outputs].

    Args:
        inner: The layout of the transposed tensor.
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
        places: The index in the tensor of each of our entries.
        axis: The axis of the tensor.
        inner: The layout of the tensor in our order.
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
        inner: The layout of the vector.
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
        columns: Whether the variable has a column for each token instead of a row.
        new: The value of rows whose tokens the checkpoint lacks.
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
    """Several equal variables.

    Args:
        count: The number of variables.
        inner: The layout of one of them.
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
            raise InputError("Source and target share one table of embeddings in this format; the model has two.")
        return self._inner.join(values[:1])


class Scaled:
    """Variables that are a tensor times a factor.

    Args:
        factor: The factor.
        inner: The layout of the product.
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
    """Variables that are a tensor plus a number.

    Args:
        by: The number.
        inner: The layout of the sum.
    """

    def __init__(self, by: float, inner: Layout | None = None):
        self._by, self._inner = by, inner or Columns()

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """See `Layout`."""
        return self._inner.shape(shapes)

    def split(self, tensor: np.ndarray) -> Sequence[np.ndarray]:
        """See `Layout`."""
        return self._inner.split(tensor + self._by)

    def join(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """See `Layout`."""
        return self._inner.join(values) - self._by


class Later:
    """One variable whose rows follow unused rows in the tensor, which are written as zeros.

    Args:
        first: The number of unused rows.
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
    """A tensor of a checkpoint and the variables of ours that it is composed of.

    Attributes:
        name: The name of the tensor.
        variables: The variables.
        layout: How the tensor is composed of them.
        may_lack: Whether a checkpoint may lack the tensor; the variables then are zeros.
    """

    name: str
    variables: tuple[Any, ...]
    layout: Layout = Columns()  # noqa: RUF009 (without state)
    may_lack: bool = False


def linear(
    name: str, *layers: Any, inputs: np.ndarray | None = None, outputs: np.ndarray | None = None, bias: bool = True
) -> Iterator[Mapped]:
    """Yields `NAME.weight` [outputs, inputs] and `NAME.bias` of a dense layer, or of several that are stacked in one.

    Args:
        name: The prefix of the names.
        *layers: The dense layers.
        inputs: The index in the tensors of each of our inputs. Default: the same order.
        outputs: The index in the tensors of each of our outputs, of all layers. Default: the same order.
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
    """Yields the embeddings of a language model and, unless they are tied, the output projection.

    Args:
        model: The model.
        order: Our order of the tokens.
        size: The number of tokens in the checkpoint.
        embeddings: The name of the embeddings.
        logits: The name of the output projection.
    """
    yield Mapped(embeddings, (model.embedding.embeddings,), Rows(order, size))
    if not model.tied_embeddings:
        yield Mapped(logits, (model.embedding.reverse_embeddings,), Rows(order, size, columns=True))


def rows_of_tokens(model: Any) -> list[np.ndarray]:
    """Returns the matrices that `tables` yields, with a row for each of our tokens."""
    embeddings = [np.asarray(model.embedding.embeddings)]
    return embeddings if model.tied_embeddings else [*embeddings, np.asarray(model.embedding.reverse_embeddings).T]


UNWRITTEN = -1e4
"""Bias of the logit of a token that a checkpoint lacks: it takes no probability from the others."""
NORM = ("weight", "bias")
"""Names of the scale and the shift of a normalisation."""


def normalization(
    name: str, layer: Any, layout: Layout | None = None, names: tuple[str, str] = NORM
) -> Iterator[Mapped]:
    """Yields the tensors of a normalisation: its scale, `NAME.weight`, and its shift, `NAME.bias`, if it has one."""
    variables = (layer.gamma, layer.beta) if hasattr(layer, "beta") else (layer.scale,)
    for part, variable in zip(names, variables, strict=False):
        yield Mapped(f"{name}.{part}", (variable,), layout or Columns())


def read_mapped(checkpoint: Checkpoint, tensors: Iterable[Mapped]) -> Iterator[tuple[Any, np.ndarray]]:
    """Yields each variable and its value; raises InputError as `Checkpoint.read` does."""
    for mapped in tensors:
        shape = mapped.layout.shape([tuple(variable.shape) for variable in mapped.variables])
        is_absent = mapped.may_lack and not checkpoint.has(mapped.name)
        tensor = np.zeros(shape, "float32") if is_absent else checkpoint.read(mapped.name, shape)
        yield from zip(mapped.variables, mapped.layout.split(tensor), strict=True)


def write_mapped(tensors: Iterable[Mapped]) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that return the tensors, by name, for `write_safetensors`."""

    def join(mapped: Mapped) -> np.ndarray:
        return mapped.layout.join([np.asarray(variable) for variable in mapped.variables])

    return {mapped.name: functools.partial(join, mapped) for mapped in tensors}
