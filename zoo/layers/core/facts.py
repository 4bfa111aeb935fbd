"""Static facts about a layer: what its methods promise, and values that are remembered until an attribute changes.

A quicker path may take the place of methods that nobody overrides. A method `promises` what a path relies on; one that
overrides it promises nothing, unless it is marked again.
"""

import weakref
from typing import Any

PAIRWISE = "pairwise"
"""Each score, or each term of a sum, depends on its own query, key and their positions alone: tiles compute it."""
IN_KERNEL = "in_kernel"
"""The kernels of the backends compute it, too."""
UNPLACED = "unplaced"
"""A projection is the same at all positions."""
PLAIN = "plain"
"""`compute_attention`, which writes the common case out, computes the same."""


def promises(*names):
    """Returns a decorator that marks a method with what it promises: `PAIRWISE`, `IN_KERNEL`, `UNPLACED`, `PLAIN`."""

    def mark(method):
        method.promised = names
        return method

    return mark


def keeps(owner, promise, methods):
    """Returns whether all methods of these names promise this."""
    return all(promise in getattr(getattr(owner, name), "promised", ()) for name in methods)


def overridden_since(owner, methods, origin):
    """Returns whether one of the `methods` is overridden in a class below the one that has the method `origin`.

    Classes that only observe, as those of `zoo.trace`, override nothing.
    """
    order = [owner, *(kind for kind in type(owner).__mro__ if not getattr(kind, "only_observes", False))]

    def depth(name):
        return next(number for number, kind in enumerate(order) if name in vars(kind))

    return any(depth(name) < depth(origin) for name in methods)


memos: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def remembered(layer, key, function):
    """Returns `function()`, which is called only if the layer has no value of this key yet."""
    memo = memos.setdefault(layer, {})
    if key not in memo:
        memo[key] = function()
    return memo[key]


def forget(layer):
    """Forgets what is known of a layer: one of its attributes has changed."""
    memos.pop(layer, None)
