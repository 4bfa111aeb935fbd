"""Checks of layers given as options."""

import keras


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
