"""Draws the inputs on which each output of a layer depends, for convolution, recurrence and self-attention."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.errors import InputError
from zoo.inspection.cost import cost
from zoo.inspection.svg import MARGIN, Diagram, arrow, page, text
from zoo.inspection.symbols import symbolic_arguments

_STEP, _RADIUS = 46, 9  # distance between positions, and their radius, in pixels
_OUTPUTS, _INPUTS = 130, 240  # distance from the top
_HEIGHT = 280
_SMALL = 1e-5  # relative changes of an output up to this size are rounding errors


def draw_paths(layers: Mapping[str, Any], length: int) -> Diagram:
    """Returns a drawing of layers side by side as SVG, with arrows from inputs to the outputs that depend on them.

    Inputs are at the bottom, outputs above them. An output of a recurrence reads its input and the previous output, so
    the last one depends on all others in sequence; an output of a convolution with kernel size k reads k inputs; an
    output of self-attention reads all inputs. The layer is called to detect which outputs change with which inputs.
    Below each title are the sequential steps and the longest path, as counted by `zoo.cost`.

    Args:
        layers: Built layers from sequences to sequences, by their titles in the drawing.
        length: n, the number of positions, at least 1.

    Returns:
        The text of the SVG, to be written to a file; notebooks show it as a picture.

    Raises:
        InputError: (a `ValueError`) If there are no layers, a layer is not built, is bidirectional or returns no
            sequence, or if the length is not positive.

    Example:
        >>> import keras
        >>> import zoo
        >>> convolution = keras.layers.Conv1D(8, kernel_size=3, padding="same")
        >>> attention = zoo.layers.MultiHeadAttention(num_heads=2, key_dim=4)
        >>> convolution.build((None, None, 8)), attention.build((None, None, 8), (None, None, 8))
        (None, None)
        >>> svg = zoo.draw_paths({"convolution": convolution, "self-attention": attention}, length=5)
        >>> svg.count("<polyline")  # 3 · 5 − 2 arrows, and 5 · 5
        38

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 4, table 1, https://arxiv.org/abs/1706.03762
    """
    if not isinstance(layers, Mapping) or not layers:
        raise InputError(f"`layers` must be a dict of layers by name, such as {{'GRU': layer}}. Received: {layers!r}.")
    if not isinstance(length, int) or length < 1:
        raise InputError(f"`length` must be a positive integer. Received: length={length!r}.")
    elements: list[str] = []
    left, width = MARGIN, max(_STEP * length, 190)
    for name, layer in layers.items():
        elements += _panel(name, layer, length, left, width)
        left += width + MARGIN
    return page(left, _HEIGHT, "what each output reads", f"n = {length}", elements)


def _panel(name: str, layer: Any, length: int, left: float, width: float) -> Iterator[str]:
    """Yields the elements of the drawing of one layer."""
    counted = cost(layer, length)
    recurrent = isinstance(layer, keras.layers.RNN)
    reads = np.eye(length, dtype=bool) if recurrent else _reads(layer, length)
    middle = left + width / 2
    yield text(middle, 78, name, 14, "bold")
    yield text(middle, 96, f"{counted.sequential_steps} in sequence, longest path {counted.path_length:g}", 11)
    inputs, outputs = (
        [middle + _STEP * (place - (number - 1) / 2) for place in range(number)] for number in reads.shape[::-1]
    )
    for output, place in np.argwhere(reads):
        yield arrow([(inputs[place], _INPUTS - _RADIUS), (outputs[output], _OUTPUTS + _RADIUS)])
    if recurrent:
        order = outputs[::-1] if layer.go_backwards else outputs
        side = -_RADIUS if layer.go_backwards else _RADIUS
        for first, second in zip(order, order[1:], strict=False):
            yield arrow([(first + side, _OUTPUTS), (second - side, _OUTPUTS)])
    for height, colour, places in ((_INPUTS, "#ffffff", inputs), (_OUTPUTS, "#ffd9a0", outputs)):
        for place in places:
            yield f'<circle cx="{place:g}" cy="{height}" r="{_RADIUS}" fill="{colour}" stroke="#666666"/>'


def _reads(layer: Any, length: int) -> np.ndarray:
    """Returns whether each output changes with each input, [outputs, inputs]."""
    if isinstance(layer, keras.layers.Bidirectional):
        raise InputError("Bidirectional layers cannot be drawn: pass their `forward_layer` and `backward_layer`.")
    symbols = symbolic_arguments(layer, length, None, 1)
    rows = np.random.default_rng(0).normal(size=(length, *symbols[0].shape[2:])) / 10
    changed = (
        rows + np.concatenate([np.zeros((1, length)), np.eye(length)])[..., None]
    )  # first unchanged, then one position at a time
    outputs = layer(*[ops.convert_to_tensor(changed.astype("float32"))] * len(symbols))
    if len(outputs.shape) != 3:
        raise InputError(f"{type(layer).__name__} must return a sequence. Received: shape={tuple(outputs.shape)}.")
    outputs = ops.convert_to_numpy(outputs).astype("float64")
    changes = np.abs(outputs[1:] - outputs[0]).max(axis=-1).T
    is_read: np.ndarray = changes > _SMALL * changes.max()
    return is_read
