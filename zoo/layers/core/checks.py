"""Checks of the layers' options."""

import numbers

import keras

PADDINGS = ("same", "causal")


def check_size(name, size, optional=False):
    """Returns a positive integer of Python or NumPy as a Python integer; with `optional` it may be `None`.

    Raises:
        ValueError: For any other value.
    """
    if optional and size is None:
        return None
    if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}.")
    return int(size)


def check_padding(padding):
    """Returns the padding of a convolution, `"same"` or `"causal"`.

    Raises:
        ValueError: For any other value.
    """
    if padding not in PADDINGS:
        raise ValueError(f"`padding` must be one of {', '.join(PADDINGS)}. Received: padding={padding!r}.")
    return padding


def check_layer(name, layer):
    """Returns an option that must be a layer.

    Raises:
        ValueError: For any other value, such as the name or the class of a layer.
    """
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(f"`{name}` must be a layer, not the name or the class of one. Received: {name}={layer!r}.")
    return layer


def check_cell(cell):
    """Returns an option that must be a recurrent cell, or a list of them.

    Raises:
        ValueError: For any other value, such as a recurrent layer.
    """
    for candidate in cell if isinstance(cell, (list, tuple)) else [cell]:
        is_cell = isinstance(candidate, keras.layers.Layer) and hasattr(candidate, "state_size")
        if not is_cell or isinstance(candidate, keras.layers.RNN):
            raise ValueError(
                "`cell` must be a recurrent cell, such as `keras.layers.GRUCell(256)`, or a list of them. "
                f"Received: cell={cell!r}."
            )
    return cell
