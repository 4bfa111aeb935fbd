"""Checks of sizes given as options."""


def check_size(name, size):
    """Checks an option that is a size.

    Args:
        name: Name of the option.
        size: Its value.

    Raises:
        ValueError: If it is not a positive integer.
    """
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}.")
