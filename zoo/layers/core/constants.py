"""What layers compute of their weights alone: in decoding once before the loop, and not at every step.

A layer has such a constant if it has a method `constant`, which returns nested tensors, or `None` for none.
"""

import contextlib
from contextvars import ContextVar
from typing import Any

_constants: ContextVar[dict[int, Any] | None] = ContextVar("constants", default=None)  # by the layer's identity


def constant_of(layer):
    """Returns what `layer.constant()` returned when the innermost `computed_constants` began; `None` outside of one."""
    return (_constants.get() or {}).get(id(layer))


@contextlib.contextmanager
def computed_constants(layers, given=()):
    """A context in which the constants of layers are computed already.

    Those that a context outside this one has stay as they are.

    Args:
        layers: The layers; those without a method `constant` have none.
        given: Constants of the first of them that need not be computed.
    """
    layers = list(layers)
    known = dict(zip(map(id, layers), given, strict=False)) | (_constants.get() or {})
    for layer in layers:
        if id(layer) not in known and hasattr(layer, "constant"):
            known[id(layer)] = layer.constant()
    token = _constants.set(known)
    try:
        yield
    finally:
        _constants.reset(token)
