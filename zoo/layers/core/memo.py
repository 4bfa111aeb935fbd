"""What is known of a layer and stays true until one of its attributes changes: it is found out once."""

import weakref
from typing import Any

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
