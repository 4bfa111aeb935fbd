"""Checks of options that models share."""

from zoo.errors import InputError


def check_sizes(**sizes):
    """Checks options that are sizes.

    Args:
        **sizes: The options by name.

    Raises:
        InputError: If one is not a positive integer.
    """
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError(f"`{name}` must be a positive integer. Received: {name}={size}.")


def check_dropout(rate, name="dropout"):
    """Checks a rate of dropout.

    Args:
        rate: The rate.
        name: The option's name.

    Raises:
        InputError: If it is not in [0, 1).
    """
    if not 0 <= rate < 1:
        raise InputError(f"`{name}` must be in [0, 1). Received: {name}={rate}.")


def check_choice(name, value, choices):
    """Checks an option that is one of a few names.

    Args:
        name: The option's name.
        value: Its value.
        choices: The allowed values.

    Raises:
        InputError: If it is another.
    """
    if value not in choices:
        *most, last = map(str, choices)
        raise InputError(f"`{name}` must be {', '.join(most)} or {last}. Received: {name}={value!r}.")
