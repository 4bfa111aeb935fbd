"""The influence of each input position on the last output of a layer, as numbers and as a picture."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.errors import InputError
from zoo.inspection import graph
from zoo.inspection.counting import SYMBOL
from zoo.inspection.figures import new_figure
from zoo.layers import BaseAttention
from zoo.layers.core.kernels import gradient


def reach(layer: Any, inputs: Any) -> np.ndarray:
    """Returns the influence of each input position on the last output of a layer.

    `r_j = ‖∂y_T / ∂x_j‖`, the Frobenius norm of the Jacobian [Dy, D] of the last output with respect to the j-th input,
    computed by backpropagation. In a recurrence, it is a product of one Jacobian per step, so r_j shrinks or grows
    exponentially with the distance T − j; attention has one step between any two positions.

    Args:
        layer: A layer from sequences to sequences, such as `keras.layers.GRU(…, return_sequences=True)`, or a
            self-attention layer. It is built if necessary.
        inputs: x, [T, D].

    Returns:
        r, float64 [T].

    Raises:
        InputError: (a `ValueError`) If `layer` is not a layer, `inputs` are not [T, D], or the output is not a
            sequence.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> import zoo
        >>> convolution = keras.layers.Conv1D(2, kernel_size=3, padding="same", kernel_initializer="ones")
        >>> print(zoo.reach(convolution, np.zeros((5, 2))))
        [0. 0. 0. 2. 2.]

    Reference:
        Pascanu et al. 2013, "On the difficulty of training recurrent neural networks", section 2,
        https://arxiv.org/abs/1211.5063
    """
    if not isinstance(layer, keras.layers.Layer):
        raise InputError(f"`layer` must be a layer. Received: {layer!r}.")
    rows = np.asarray(inputs, "float32")
    if rows.ndim != 2 or 0 in rows.shape:
        raise InputError(f"`inputs` must be [T, D]. Received: shape={rows.shape}.")
    with graph.without_traces(layer):
        output = _call_layer(layer, SYMBOL((1, *rows.shape), "float32"))
    shape = tuple(getattr(output, "shape", ()))
    if len(shape) != 3 or shape[1] == 0:
        raise InputError(
            f"`layer` must return a sequence [B, T, D], as with return_sequences=True. {type(layer).__name__} returned "
            f"shape={shape}."
        )
    # One copy of the input for each element of the last output, so that one backward pass computes all derivatives.
    number = ops.eye(shape[-1], dtype=output.dtype)
    copies = ops.convert_to_tensor(np.repeat(rows[None], shape[-1], axis=0))
    jacobian = gradient(lambda tensor: ops.sum(_call_layer(layer, tensor)[:, -1] * number), copies)
    squares: np.ndarray = ops.convert_to_numpy(jacobian).astype("float64") ** 2  # [Dy, T, D]
    norms: np.ndarray = np.sqrt(squares.sum(axis=(0, 2)))
    return norms


def _call_layer(layer: Any, tensor: Any) -> Any:
    return layer(tensor, tensor) if isinstance(layer, BaseAttention) else layer(tensor)


def draw_reach(layers: Mapping[str, Any], inputs: Any) -> Any:
    """Returns a picture of `reach` over the distance from the last position, with a line for each layer.

    `r_j = ‖∂y_T / ∂x_j‖` over T − j, on a logarithmic axis. Inputs without any influence have no point.

    Args:
        layers: Layers by their labels in the picture; see `reach`.
        inputs: x, [T, D].

    Returns:
        A Matplotlib `Figure`. `figure.savefig("reach.png")` writes it; notebooks show it.

    Raises:
        InputError: (a `ValueError`) See `reach`; or if there are no layers, or Matplotlib (the extra `pictures`) is not
            installed.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> import zoo
        >>> three = {
        ...     "convolution": keras.layers.Conv1D(8, kernel_size=3, padding="same"),
        ...     "recurrence": keras.layers.GRU(8, return_sequences=True),
        ...     "self-attention": zoo.layers.MultiHeadAttention(num_heads=2, key_dim=4),
        ... }
        >>> figure = zoo.draw_reach(three, np.random.default_rng(0).normal(size=(20, 8)))
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['convolution', 'recurrence', 'self-attention']

    Reference:
        Pascanu et al. 2013, "On the difficulty of training recurrent neural networks", section 2,
        https://arxiv.org/abs/1211.5063
    """
    if not isinstance(layers, Mapping) or not layers:
        raise InputError(f"`layers` must be a dict of layers by name, such as {{'GRU': layer}}. Received: {layers!r}.")
    reaches = {name: reach(layer, inputs) for name, layer in layers.items()}
    figure = new_figure(figsize=(7.0, 4.5))
    axes = figure.subplots()
    for name, norms in reaches.items():
        axes.semilogy(np.where(norms > 0, norms, np.nan)[::-1], marker=".", label=name)
    axes.set(title="‖∂y_T / ∂x_j‖", xlabel="distance T − j", ylabel="norm of the derivatives")
    axes.legend()
    return figure
