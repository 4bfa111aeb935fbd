"""The intermediate results of one call of an attention layer."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.errors import InputError
from zoo.inspection.counting import SYMBOL, count_steps
from zoo.inspection.operations import Operations
from zoo.inspection.recording import Recorder, Step, copy_with, recording_copy
from zoo.inspection.steps import find_step, in_table, shape_text
from zoo.layers import AttentionPooling, BaseAttention


@dataclass(frozen=True)
class TracedStep:
    """One intermediate result of a call.

    Args:
        name: Its name, such as "weights".
        formula: The formula that computes it from previous steps.
        array: Its value.
        operations: Its numbers of multiplications, additions and other operations.
    """

    name: str
    formula: str
    array: Any = field(repr=False)
    operations: Operations = Operations()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.array.shape)


class Trace(Mapping[str, Any]):
    """The intermediate results of a call by name, in order, as NumPy arrays: `trace["weights"]`, `trace.weights`.

    Synonyms are accepted, such as "softmax" for the weights or "heads" for the weighted sum.
    """

    def __init__(
        self, name: str, arrays: dict[str, tuple[str, Any]], count: Callable[[], dict[str, Operations]]
    ) -> None:
        self._name = name
        self._arrays = arrays
        self._count = count

    @functools.cached_property
    def steps(self) -> tuple[TracedStep, ...]:
        """The steps in order, with formula, shape and number of operations, which are counted on first access."""
        counts = self._count()
        return tuple(
            TracedStep(name, formula, array, counts.get(name, Operations()))
            for name, (formula, array) in self._arrays.items()
        )

    def __getitem__(self, name: str) -> Any:
        return self._arrays[find_step(name, self._arrays)][1]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __str__(self) -> str:
        rows = [
            (f"{number}. {step.name}", shape_text(step.shape), f"= {step.formula}", str(step.operations))
            for number, step in enumerate(self.steps, 1)
        ]
        lines = [self._name, ""]
        for line, step in zip(in_table(rows), self.steps, strict=True):
            lines += [line, *(f"    {numbers}" for numbers in _numbers(step.array).splitlines()), ""]
        return "\n".join(lines).rstrip()

    __repr__ = __str__


def _numbers(array: Any) -> str:
    """Returns a short text of an array: at most six rows and columns of the first matrix."""
    if not array.size:
        return "[]"
    matrices = array.reshape(-1, *array.shape[-2:]) if array.ndim > 2 else array[None]
    array, note = matrices[0], f" … and {len(matrices) - 1} more such" if len(matrices) > 1 else ""
    if array.dtype == bool:
        array = array.astype(int)
    elif array.dtype != np.float64:
        array = array.astype(np.float32)
    with np.printoptions(precision=3, suppress=True, threshold=48, edgeitems=3, linewidth=100):
        return f"{array}{note}"


def trace(layer: Any, query: Any, value: Any = None, key: Any = None, **arguments: Any) -> Trace:
    """Returns the intermediate results of one call of an attention layer.

    For `MultiHeadAttention` these are `query = x W_q + b_q`, `key`, `value`, `raw_scores = query · key`,
    `scaled_scores = raw_scores / √d`, `weights = softmax(scaled_scores)`, `weighted_sum = weights · value` of each
    head, `concatenation` and `output = concatenation W_o + b_o`; if there are any, also the terms of positions, the
    `bias`, the `mask` and their sum, `scores`. Other layers have other steps. The recorded values are the results of
    the layer's own public methods, including those that a subclass overrides. The layer itself does not change. All
    weights are computed, even if the layer computes only some of them or none.

    Args:
        layer: An attention layer, or a layer that contains some, such as `AttentionPooling` or a Transformer block.
        query: [B, T, Dq]; without a batch axis [T, Dq]; a single vector [Dq].
        value: [B, S, Dv] or, without a batch axis, [S, Dv]. Default: the query (self-attention), if a layer needs one.
        key: Likewise. Default: the value.
        **arguments: Other arguments of the call, such as `value_mask` or `use_causal_mask`. Masks and biases have a
            batch axis only if the query has one, and a query axis only if the query is not a single vector.

    Returns:
        A `Trace`; `print` shows it step by step. Its arrays have the axes of the query: weights are [B, N, T, S],
        without a batch axis [N, T, S], for a single query [N, S]. The last one, `output`, is the layer's result.

    Raises:
        InputError: (a `ValueError`) If the layer has no attention, or for a query of another rank.

    Example:
        >>> import numpy as np
        >>> import zoo
        >>> query, value = np.array([0.0, 2.0], "float32"), np.array([[3.0, 0.0], [0.0, 3.0]], "float32")
        >>> print(zoo.trace(zoo.layers.ScaledDotProductAttention(name="attention"), query, value))
        ScaledDotProductAttention 'attention'
        <BLANKLINE>
        1. query          [2]     = query
            [0. 2.]
        <BLANKLINE>
        2. key            [2, 2]  = key
            [[3. 0.]
             [0. 3.]]
        <BLANKLINE>
        3. value          [2, 2]  = value
            [[3. 0.]
             [0. 3.]]
        <BLANKLINE>
        4. raw_scores     [2]     = query · key             4 multiplications, 2 additions
            [0. 6.]
        <BLANKLINE>
        5. scaled_scores  [2]     = raw_scores / √2         2 multiplications
            [0.    4.243]
        <BLANKLINE>
        6. weights        [2]     = softmax(scaled_scores)  2 multiplications, 3 additions, 3 other operations
            [0.014 0.986]
        <BLANKLINE>
        7. weighted_sum   [2]     = weights · value         4 multiplications, 2 additions
            [0.042 2.958]
        <BLANKLINE>
        8. output         [2]     = weighted_sum
            [0.042 2.958]

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2, https://arxiv.org/abs/1706.03762
    """
    arguments.pop("return_attention_scores", None)
    query = ops.convert_to_tensor(query)
    rank = len(query.shape)
    if rank not in (1, 2, 3):
        raise InputError(f"`query` must be [B, T, D], [T, D] or a vector [D]. Received: shape={tuple(query.shape)}.")
    if value is None and isinstance(layer, BaseAttention) and "memory" not in arguments:
        value = query
    inputs = [ops.convert_to_tensor(tensor) for tensor in (value, key) if tensor is not None]
    is_vector = {"query": rank == 1, "key": bool(inputs) and len(inputs[0].shape) == 1}
    inputs = [_with_batch(query), *map(_with_batch, inputs)]
    arguments = {name: _argument_with_batch(name, argument, rank) for name, argument in arguments.items()}
    if not layer.built:
        layer(*inputs, **arguments)
    steps: list[Step] = []
    results = _recording(layer, steps)(*inputs, **arguments)
    result = results[0] if isinstance(results, (list, tuple)) else results
    formulas = {name: formula for name, formula, _ in steps}
    steps.append(("output", formulas.get("output", f"{type(layer).__name__}.call"), result))
    arrays: dict[str, tuple[str, Any]] = {}
    for name, formula, tensor in _query_first(steps):
        arrays.pop(name, None)  # the last tensor of a name is the one that the layer uses
        arrays[name] = formula, _with_query_axes(name, ops.convert_to_numpy(tensor), rank, is_vector)
    symbols = keras.tree.map_structure(_symbol, (inputs, arguments))
    return Trace(f"{type(layer).__name__} {layer.name!r}", arrays, lambda: _counts(layer, *symbols))


def _with_batch(tensor: Any) -> Any:
    """Returns a sequence [B, L, D], given [B, L, D], [L, D] or [D]."""
    return ops.reshape(tensor, (*(1,) * (3 - len(tensor.shape)), *tensor.shape))


def _argument_with_batch(name: str, argument: Any, rank: int) -> Any:
    """Returns a mask or bias with batch and query axes, given one for a query of this rank."""
    if rank == 3 or argument is None or name not in _MASKS:
        return argument
    argument = ops.convert_to_tensor(argument)
    if rank == 1 and name in ("attention_mask", "attention_bias"):
        argument = argument[..., None, :]
    if rank == 1 and name in ("query_mask", "mask") and len(argument.shape) == 0:
        argument = argument[None]
    has_own_batch = name == "attention_bias" and len(argument.shape) < 3  # [T, S] is for all heads
    return argument if has_own_batch else argument[None]


_MASKS = ("query_mask", "value_mask", "key_mask", "mask", "memory_mask", "attention_mask", "attention_bias")


def _recording(layer: Any, steps: list[Step]) -> Any:
    """Returns a copy of a layer whose calls append their steps to a list."""
    if isinstance(layer, BaseAttention):
        return recording_copy(layer, Recorder(steps))
    attributes = {**vars(layer), **vars(layer).get("_modules", {})}  # sublayers with PyTorch
    parts = {name: part for name, part in attributes.items() if isinstance(part, BaseAttention)}
    if not parts:
        raise InputError(
            f"{type(layer).__name__} contains no attention. `layer` must be an attention layer, such as "
            "`model.encoder_blocks[0].attention`, or a layer that contains one."
        )
    prefixes = {name: "" if isinstance(layer, AttentionPooling) else f"{part.name}/" for name, part in parts.items()}
    copies = {name: recording_copy(part, Recorder(steps, prefixes[name])) for name, part in parts.items()}
    return copy_with(layer, copies)


def _query_first(steps: list[Step]) -> list[Step]:
    """Returns the steps of each attention with the query first, although layers project the memory before it."""
    prefixes = list(dict.fromkeys(name.rpartition("/")[0] for name, _, _ in steps if name != "output"))

    def place(step: Step) -> tuple[int, bool]:
        prefix, _, name = step[0].rpartition("/")
        return prefixes.index(prefix) if prefix in prefixes else len(prefixes), "query" not in name

    return sorted(steps, key=place)


def _symbol(leaf: Any) -> Any:
    return SYMBOL(leaf.shape, keras.backend.standardize_dtype(leaf.dtype)) if getattr(leaf, "shape", ()) else leaf


def _counts(layer: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Operations]:
    """Returns the operations of each step by name; empty for a layer that does not support symbolic tensors."""
    try:
        counted = count_steps(layer, *args, all_weights=True, **kwargs)
    except InputError:
        return {}
    prefix = f"{layer.attention.name}/" if isinstance(layer, AttentionPooling) else ""
    return {step.name.removeprefix(prefix): step.operations for step in counted}


def _with_query_axes(name: str, array: Any, rank: int, is_vector: dict[str, bool]) -> Any:
    """Returns an array without the axes that the arguments lack."""
    if rank == 3:
        return array
    array = array[0]
    side = "key" if name.rpartition("/")[2].split("_")[-1] in ("key", "value") or "key_" in name else "query"
    return np.squeeze(array, -2) if is_vector[side] and array.ndim > 1 else array
