"""Counts the operations of a layer, step by step, in a call with symbolic tensors."""

import inspect
import math
import re
from dataclasses import dataclass, replace
from typing import Any

import keras

from zoo.errors import InputError
from zoo.inspection import graph
from zoo.inspection.operations import Operations, operations_of, size
from zoo.inspection.recording import symbolic_steps
from zoo.layers import (
    AttentionPooling,
    AttentionRNN,
    BaseAttention,
    BlockLocalAttention,
    GatedConvolutionBlock,
    LightweightConvolution,
    LocalAttention,
    SlidingWindowAttention,
)
from zoo.layers.attention.self_mixing import SelfMixing

SYMBOL = keras.KerasTensor


@dataclass(frozen=True)
class CountedStep:
    """One step of a layer or model.

    Args:
        name: The names of the parent layers and of the step, separated by slashes.
        shape: Shape of the result; in a recurrence that of one position.
        operations: Its arithmetic operations.
        bytes: Size of the result.
        weights: Number of weights that it reads and no previous step has read.
        heads: Number of heads that share the operations equally.
        sequential_steps: Number of positions that are computed one after another.
        path_length: Number of such layers, or steps of a recurrence, between the first position and the last:
            ⌈n / number of positions on which one result depends⌉. 0 for a position-wise step.
    """

    name: str
    shape: tuple[int, ...]
    operations: Operations
    bytes: int
    weights: int
    heads: int = 1
    sequential_steps: int = 1
    path_length: float = 0

    @property
    def multiplications(self) -> int:
        """Number of multiplications and divisions."""
        return self.operations.multiplications

    @property
    def additions(self) -> int:
        """Number of additions and subtractions."""
        return self.operations.additions

    @property
    def others(self) -> int:
        """Number of exponentials, other functions, comparisons and selections."""
        return self.operations.others

    @property
    def per_head(self) -> "CountedStep":
        """The step of one head, with an equal share of operations and bytes."""
        operations = Operations(*(count // self.heads for count in (self.multiplications, self.additions, self.others)))
        return replace(self, operations=operations, bytes=self.bytes // self.heads, heads=1)

    def repeated(self, times: int) -> "CountedStep":
        """Returns the step repeated in a recurrence of `times` positions."""
        return replace(
            self,
            operations=self.operations * times,
            bytes=self.bytes * times,
            sequential_steps=times,
            path_length=times,
        )


def count_steps(layer: Any, *args: Any, all_weights: bool = False, **kwargs: Any) -> list[CountedStep]:
    """Returns the steps of a call of a built layer or model.

    Args:
        layer: The layer or model.
        *args: Arguments of the call, with symbolic tensors instead of arrays.
        all_weights: Whether attention computes all weights, even if the layer computes only some of them or none.
        **kwargs: Keyword arguments, likewise.

    Raises:
        InputError: If the call does not support symbolic tensors.
    """
    with graph.without_traces(layer):
        return _Counter(all_weights).steps(layer, args, kwargs, ())


class _Counter:
    """Counts the steps of a layer and of its sublayers; shared weights count once."""

    def __init__(self, all_weights: bool) -> None:
        self.all_weights = all_weights
        self.weights: set[int] = set()

    def steps(self, layer: Any, args: Any, kwargs: Any, path: tuple[str, ...]) -> list[CountedStep]:
        """Returns the steps of a call of a layer; `path` contains the names of its parent layers."""
        args, kwargs = graph.fresh((args, kwargs))
        try:
            if isinstance(layer, keras.layers.RNN):
                return self._recurrence(layer, args, kwargs, path)
            if isinstance(layer, AttentionRNN):
                return self._attention_recurrence(layer, args, kwargs, path)
            if isinstance(layer, AttentionPooling):
                return self._pooling(layer, args, kwargs, path)
            return self._call(layer, args, kwargs, path)
        except InputError:
            raise  # from a sublayer
        except (TypeError, AttributeError, NotImplementedError, ValueError) as error:
            raise InputError(
                f"{type(layer).__name__} cannot be counted: its `call` must support symbolic tensors of these lengths, "
                f"as keras.ops do. Received: {_cause(error)}"
            ) from error

    def _call(self, layer: Any, args: Any, kwargs: Any, path: tuple[str, ...]) -> list[CountedStep]:
        if isinstance(layer, BaseAttention):
            return self._attention(layer, args, kwargs, path)
        results = graph.inline(layer, layer.call, args, kwargs)
        operations, weights, steps = self._collect(results, set(), path)
        weights += self._new(layer.weights)
        if operations == Operations() and not weights:
            return steps
        own = _step("/".join(path) or layer.name, results, operations, weights, path_length=_path(layer, args, kwargs))
        return [*steps, own]

    def _attention(self, layer: Any, args: Any, kwargs: Any, path: tuple[str, ...]) -> list[CountedStep]:
        seen: set[int] = set()
        steps = []
        for name, _, result in symbolic_steps(layer, args, kwargs, self.all_weights):
            operations, weights, inner = self._collect(result, seen, path)
            operations = sum((step.operations for step in inner), operations)
            weights += sum(step.weights for step in inner)
            weights += self._new(_weights_of_step(layer, name))
            if operations != Operations() or weights:
                steps.append(
                    _step(
                        "/".join((*path, name)),
                        result,
                        operations,
                        weights,
                        heads=getattr(layer, "num_heads", 1),
                        sequential_steps=result.shape[-2] if layer.is_recurrent and name == "weights" else 1,
                        path_length=_path(layer, args, kwargs) if name == "weighted_sum" else 0,
                    )
                )
        # Textbooks begin with the query, although the layer projects its memory first.
        return sorted(steps, key=lambda step: "query" not in step.name.rpartition("/")[2])

    def _collect(
        self, results: Any, seen: set[int], path: tuple[str, ...]
    ) -> tuple[Operations, int, list[CountedStep]]:
        """Returns the operations and weights of the graph of these results, and the steps of the layers in it."""
        operations, weights, steps = Operations(), 0, []
        for node in graph.new_nodes(results, seen):
            if isinstance(node.operation, keras.layers.Layer):
                path_inside = (*path, node.operation.name)
                steps += self.steps(node.operation, node.arguments.args, node.arguments.kwargs, path_inside)
            else:
                operations += operations_of(node)
                leaves = keras.tree.flatten((node.arguments.args, node.arguments.kwargs))
                weights += self._new([leaf for leaf in leaves if isinstance(leaf, keras.Variable)])
        return operations, weights, steps

    def _new(self, weights: list[Any]) -> int:
        """Returns the number of elements of the weights that have not been counted yet."""
        new = {id(weight): size(weight.shape) for weight in weights if id(weight) not in self.weights}
        self.weights |= set(new)
        return sum(new.values())

    def _pooling(self, layer: Any, args: Any, kwargs: Any, path: tuple[str, ...]) -> list[CountedStep]:
        """Returns the steps of `AttentionPooling`, whose queries are weights instead of symbolic tensors."""
        arguments = inspect.signature(layer.call).bind(*args, **kwargs).arguments
        inputs = arguments["inputs"]
        queries = SYMBOL((inputs.shape[0], *layer.queries.shape), layer.compute_dtype)
        options = {"value_mask": arguments.get("mask")}
        steps = self.steps(layer.attention, (queries, inputs), options, (*path, layer.attention.name))
        return [*steps, _step("/".join((*path, "queries")), queries, Operations(), self._new(layer.weights))]

    def _recurrence(self, layer: Any, args: Any, kwargs: Any, path: tuple[str, ...]) -> list[CountedStep]:
        """Returns the steps of `keras.layers.RNN`, such as an LSTM: those of its cell, for each position."""
        sequences = next(leaf for leaf in keras.tree.flatten((args, kwargs)) if isinstance(leaf, SYMBOL))
        batch, length, *rest = sequences.shape
        sizes = layer.cell.state_size
        states = [_state(batch, size) for size in (sizes if isinstance(sizes, (list, tuple)) else [sizes])]
        steps = self.steps(layer.cell, (SYMBOL((batch, *rest), sequences.dtype), states), {}, path)
        return [step.repeated(length) for step in steps]

    def _attention_recurrence(self, layer: Any, args: Any, kwargs: Any, path: tuple[str, ...]) -> list[CountedStep]:
        """Returns the steps of an `AttentionRNN`: the projection of its memory, and those of its cell per position."""
        arguments = inspect.signature(layer.call).bind(*args, **kwargs).arguments
        cell, inputs, mask = layer.cell, arguments["inputs"], arguments.get("memory_mask")
        memory = graph.inline(cell, cell.project_memory, (arguments["memory"],), {})
        operations, weights, steps = self._collect(memory, set(), path)
        operations = sum((step.operations for step in steps), operations)
        weights += sum(step.weights for step in steps)
        projection = _step("/".join((*path, "memory")), memory, operations, weights)
        batch, length, features = inputs.shape
        sizes = [memory["value"].shape[-2] if units is None else units for units in cell.own_state_sizes]
        states = [SYMBOL((batch, units), cell.compute_dtype) for units in sizes]
        results = graph.inline(
            cell,
            cell.advance,
            (SYMBOL((batch, features), inputs.dtype), states),
            {"memory": graph.fresh(memory), "memory_mask": mask},
        )
        operations, weights, steps = self._collect(results, set(), path)
        weights += self._new(layer.weights)
        steps.append(_step("/".join(path) or layer.name, results[0], operations, weights))
        return [projection, *(step.repeated(length) for step in steps)]


def _cause(error: Exception) -> str:
    """Returns the message of an error as one line, without the context that Keras adds."""
    message = re.search("\x1b\\[1m(.*?)\x1b\\[0m", str(error), flags=re.DOTALL)
    text = message.group(1) if message else str(error)
    return f"{type(error).__name__}: {text.strip().partition(chr(10))[0]}"


def _state(batch: int, sizes: Any) -> Any:
    return [_state(batch, part) for part in sizes] if isinstance(sizes, (list, tuple)) else SYMBOL((batch, sizes))


def _step(name: str, results: Any, operations: Operations, weights: int, **others: Any) -> CountedStep:
    tensors = [leaf for leaf in keras.tree.flatten(results) if isinstance(leaf, SYMBOL)]
    bytes_of_all = sum(size(tensor.shape) * _item_size(tensor.dtype) for tensor in tensors)
    shape = tuple(tensors[0].shape) if tensors else ()
    return CountedStep(name, shape, operations, bytes_of_all, weights, **others)


def _item_size(dtype: str) -> int:
    return 1 if dtype == "bool" else int("".join(filter(str.isdigit, dtype.split("_")[0]))) // 8


def _weights_of_step(layer: Any, name: str) -> list[Any]:
    """Returns the weights of an attention layer that a step reads, if the graph does not contain them."""
    part = {"position": "positions", "raw_scores": "score", "scores": "score"}.get(
        "position" if name.startswith("position_") or name.endswith("_with_positions") else name
    )
    if name == "output":
        return list(layer.weights)
    weights = getattr(getattr(layer, part, None), "weights", []) if part else []
    return list(weights)


def _path(layer: Any, args: Any, kwargs: Any) -> float:
    """Returns the number of such layers between the first position and the last, 0 for a position-wise layer."""
    tensors = [leaf for leaf in keras.tree.flatten((args, kwargs)) if isinstance(leaf, SYMBOL)]
    length = max((leaf.shape[-2] for leaf in tensors if len(leaf.shape) > 2 and leaf.dtype != "bool"), default=0)
    if isinstance(layer, BlockLocalAttention):
        return 1 if length <= layer.block_size else math.inf
    width = _receptive_field(layer, length)
    return math.ceil(length / width) if width else 0


def _receptive_field(layer: Any, length: int) -> int:
    """Returns the number of positions on which one result of a layer depends directly; 0 for a position-wise layer."""
    if isinstance(layer, (SlidingWindowAttention, LocalAttention)):
        return 2 * int(layer.window) + 1
    if isinstance(layer, BaseAttention):
        return length
    if isinstance(layer, (GatedConvolutionBlock, LightweightConvolution)):
        return int(layer.width)
    if isinstance(layer, SelfMixing):
        return length
    kernel_size = getattr(layer, "kernel_size", None)
    return int(kernel_size[0]) if isinstance(kernel_size, tuple) else 0
