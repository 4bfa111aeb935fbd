"""Static facts about a layer: what its methods promise, and values that are remembered until an attribute changes.

A faster path may replace methods that no subclass overrides. A method `promises` the properties on which a path relies;
a method that overrides it promises nothing, unless it is marked again.
"""

import weakref
from typing import Any

PAIRWISE = "pairwise"
"""Each score, or each term of a sum, depends on one query, one key and their positions alone, as tiles require."""
IN_KERNEL = "in_kernel"
"""The fused kernels of the backends compute the same."""
UNPLACED = "unplaced"
"""The projection is the same at all positions."""
PLAIN = "plain"
"""`compute_attention`, the common case in one function, computes the same."""


def promises(*names):
    """Returns a decorator that marks a method with its promises: `PAIRWISE`, `IN_KERNEL`, `UNPLACED`, `PLAIN`."""

    def mark(method):
        method.promised = names
        return method

    return mark


def computes(*formulas):
    """Returns a decorator that marks a method with the formulas of its results, which `zoo.trace` shows."""

    def mark(method):
        method.formulas = formulas
        return method

    return mark


def keeps(owner, promise, methods):
    """Returns whether all methods with these names make a promise."""
    return all(promise in getattr(getattr(owner, name), "promised", ()) for name in methods)


def overridden_since(owner, methods, origin):
    """Returns whether one of the `methods` is overridden in a subclass of the class that defines `origin`.

    The owner is an object, which may have methods of its own, or a class.
    """
    order = owner.__mro__ if isinstance(owner, type) else [owner, *type(owner).__mro__]

    def depth(name):
        return next(number for number, cls in enumerate(order) if name in vars(cls))

    return any(depth(name) < depth(origin) for name in methods)


memos: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def known_sizes(sizes):
    """Returns sizes as a tuple with `None` for symbolic ones, which PyTorch's exporter has and which have no hash."""
    return tuple([size if isinstance(size, int) else None for size in sizes])


def remembered(layer, key, function):
    """Returns the remembered value of a layer for a key; the first time, it is `function()`."""
    memo = memos.setdefault(layer, {})
    if key not in memo:
        memo[key] = function()
    return memo[key]


def forget(layer):
    """Forgets all remembered values of a layer, one of whose attributes has changed."""
    memos.pop(layer, None)
