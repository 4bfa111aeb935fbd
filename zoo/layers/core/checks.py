"""Checks of sizes given as options."""

import numbers

import keras


def check_size(name, size, optional=False):
    """Returns an option that is a size as a plain integer, which a configuration can hold.

    Args:
        name: Name of the option.
        size: Its value: a positive integer, of Python or of NumPy.
        optional: Whether it may be `None`.

    Raises:
        ValueError: If it is anything else.
    """
    if optional and size is None:
        return None
    if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}.")
    return int(size)


def check_layer(name, layer):
    """Returns an option that is a layer.

    Args:
        name: Name of the option.
        layer: Its value.

    Raises:
        ValueError: If it is anything else, such as the name or the class of a layer.
    """
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(f"`{name}` must be a layer, not the name or the class of one. Received: {name}={layer!r}.")
    return layer


def check_cell(cell):
    """Returns an option that is a recurrent cell, or a list of them.

    Args:
        cell: Its value.

    Raises:
        ValueError: If it is anything else, such as a recurrent layer.
    """
    cells = cell if isinstance(cell, (list, tuple)) else [cell]
    for each in cells:
        is_cell = isinstance(each, keras.layers.Layer) and hasattr(each, "state_size")
        if not is_cell or isinstance(each, keras.layers.RNN):
            raise ValueError(
                "`cell` must be a recurrent cell, such as `keras.layers.GRUCell(256)`, or a list of them. "
                f"Received: cell={cell!r}."
            )
    return cell
