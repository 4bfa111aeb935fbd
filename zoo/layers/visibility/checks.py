"""Checks of the arguments of rules."""

import numbers


def check_count(name, count, least=0):
    """Returns an integer of at least `least` as a plain one, which a configuration can hold.

    Raises:
        ValueError: For any other value.
    """
    if not isinstance(count, numbers.Integral) or isinstance(count, bool) or count < least:
        raise ValueError(f"`{name}` must be an integer, {least} or more. Received: {name}={count!r}.")
    return int(count)
