"""Checks of sizes given as options."""

import numbers


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
