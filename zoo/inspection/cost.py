"""The cost of a layer or a model: operations, memory, weights, and sequential steps."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import keras

from zoo.errors import InputError
from zoo.inspection.counting import CountedStep, count_steps
from zoo.inspection.operations import Operations
from zoo.inspection.steps import find_step, in_table, shape_text
from zoo.inspection.symbols import symbolic_arguments


class Cost(Mapping[str, CountedStep]):
    """The cost of a layer or a model, by step: `cost["scores"].multiplications`, `cost.multiplications`.

    Attributes:
        steps: The steps in order, `CountedStep` objects; repeated calls of a layer are numbered.
        total: All steps as one: sums, and the maxima of `sequential_steps` and `path_length`.
    """

    def __init__(self, name: str, steps: list[CountedStep]) -> None:
        self.steps = tuple(steps)
        names = [step.name for step in steps]
        repeats = (names[:index].count(name) + 1 for index, name in enumerate(names))
        self._by_name = {
            name if number == 1 else f"{name} ({number})": step
            for name, number, step in zip(names, repeats, steps, strict=True)
        }
        self.total = CountedStep(
            name=name,
            shape=steps[-1].shape if steps else (),
            operations=sum((step.operations for step in steps), Operations()),
            bytes=sum(step.bytes for step in steps),
            weights=sum(step.weights for step in steps),
            sequential_steps=max((step.sequential_steps for step in steps), default=1),
            path_length=max((step.path_length for step in steps), default=0),
        )

    multiplications = property(lambda self: self.total.multiplications, doc="All multiplications and divisions.")
    additions = property(lambda self: self.total.additions, doc="All additions and subtractions.")
    others = property(lambda self: self.total.others, doc="All functions, comparisons and selections.")
    bytes = property(lambda self: self.total.bytes, doc="Size of the results of all steps.")
    weights = property(lambda self: self.total.weights, doc="Number of weights.")
    sequential_steps = property(lambda self: self.total.sequential_steps, doc="The maximum over all steps.")
    path_length = property(lambda self: self.total.path_length, doc="The maximum over all steps.")

    @property
    def flops(self) -> int:
        """Multiplications plus additions, as compilers count them."""
        return self.total.multiplications + self.total.additions

    def __getitem__(self, name: str) -> CountedStep:
        return self._by_name[find_step(name, self._by_name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __str__(self) -> str:
        has_heads = any(step.heads > 1 for step in self.steps)
        head = ["step", "result", "multiplications", *(["of each head"] if has_heads else [])]
        head += ["additions", "others", "bytes", "weights", "sequential", "path"]
        rows = [_row(name, step, has_heads) for name, step in self._by_name.items()]
        total = [_row("total", self.total, has_heads)]
        total[0][1] = ""
        return "\n".join([self.total.name, *in_table([head, *rows, *total], right=range(2, len(head)))])

    __repr__ = __str__


def _row(name: str, step: CountedStep, has_heads: bool) -> list[str]:
    of_head = [f"{step.heads} × {step.per_head.multiplications:,}" if step.heads > 1 else ""] if has_heads else []
    counts = (step.additions, step.others, step.bytes, step.weights, step.sequential_steps)
    path = "∞" if math.isinf(step.path_length) else f"{step.path_length:,}"
    return [
        name,
        shape_text(step.shape),
        f"{step.multiplications:,}",
        *of_head,
        *(f"{count:,}" for count in counts),
        path,
    ]


def cost(model_or_layer: Any, query_length: int, value_length: int | None = None, batch_size: int = 1) -> Cost:
    """Returns the cost of a layer or a model, by step; nothing is computed, so lengths may be large.

    The operations are counted in a call of the layer with symbolic tensors. Attention over n positions of size d takes
    `n d²` multiplications for each projection, `n² d` each for the scores and the weighted sum, and in each head `n²`
    each for the scale and the softmax. A sum of k terms has k − 1 additions. For every named model, the sum of
    multiplications and additions differs from that of XLA by at most 5 %.

    Each step also has `bytes` (the size of its result), `weights`, `sequential_steps` and `path_length`. Sequential
    steps are positions that are computed one after another: n in a recurrence, else 1. The path length is the number of
    layers like this one, or steps of a recurrence, from the first position to the last: 1 for attention, n for a
    recurrence, ⌈n / k⌉ if each result depends on k positions; 0 for position-wise steps. The total has both maxima.

    Args:
        model_or_layer: A built model or layer: of this library, of Keras, or your own, written with `keras.ops`.
        query_length: T, number of positions of the query; for a sequence-to-sequence model those of the target.
        value_length: S, number of positions of the value, the memory or the source. Default: T.
        batch_size: B.

    Returns:
        A `Cost`; `print` shows it as a table, with all numbers in full.

    Raises:
        InputError: (a `ValueError`) If the layer is not built, a length is not an integer of at least 0, the layer has
            no value for `value_length`, or `call` does not support symbolic tensors.

    Example:
        >>> import zoo
        >>> layer = zoo.layers.MultiHeadAttention(num_heads=8, key_dim=64)
        >>> layer.build((None, None, 512), (None, None, 512))
        >>> cost = zoo.cost(layer, query_length=5)
        >>> cost["query"].multiplications, cost["raw_scores"].multiplications, cost["softmax"].per_head.multiplications
        (1310720, 12800, 25)

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 4, table 1, https://arxiv.org/abs/1706.03762
    """
    lengths = {"query_length": query_length, "value_length": value_length, "batch_size": batch_size}
    for name, length in lengths.items():
        if length is not None and (not isinstance(length, int) or length < 0):
            raise InputError(f"`{name}` must be an integer of at least 0. Received: {name}={length!r}.")
    if not isinstance(model_or_layer, keras.layers.Layer):
        raise InputError(f"`model_or_layer` must be a built model or layer. Received: {model_or_layer!r}.")
    if not model_or_layer.built:
        raise InputError(
            f"{type(model_or_layer).__name__} is not built, so its sizes are unknown: call it first, or its `build` "
            "with shapes such as (None, None, 512)."
        )
    args = symbolic_arguments(model_or_layer, query_length, value_length, batch_size)
    name = f"{type(model_or_layer).__name__} {model_or_layer.name!r}, T = {query_length}"
    name += f", S = {value_length}" * (value_length is not None) + f", B = {batch_size}" * (batch_size != 1)
    return Cost(name, _numbered_inside(model_or_layer, count_steps(model_or_layer, *args)))


def _numbered_inside(layer: keras.layers.Layer, steps: list[CountedStep]) -> list[CountedStep]:
    """Returns the steps with automatic names of layers renumbered within their parent layer.

    Keras numbers layers in the order of their creation in a process: `gru_41` becomes `gru`, and a second one `gru_1`.
    """
    automatic = {}
    for part in layer._flatten_layers():
        name, _, number = part.name.rpartition("_")
        if number.isdecimal() and name.replace("_", "") == type(part).__name__.lower():
            automatic[part.name] = name
    inside: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    renamed = []
    for step in steps:
        path: tuple[str, ...] = ()
        for name in step.name.split("/"):
            own, names = automatic.get(name, name), inside[path]
            if name not in names:
                same = sum(automatic.get(other, other) == own for other in names)
                names[name] = f"{own}_{same}" if same else own
            path = (*path, names[name])
        renamed.append(replace(step, name="/".join(path)))
    return renamed
