"""What layers compute of their weights alone: in decoding once before the loop, and not at every step.

A layer has such a constant if it has a method `constant`, which returns nested tensors, or `None` for none.
"""

import contextlib
from contextvars import ContextVar
from typing import Any

import keras

from zoo.layers.core.graphs import as_tensor

_constants: ContextVar[dict[int, Any] | None] = ContextVar("constants", default=None)  # by the layer's identity


def constant_of(layer):
    """Returns what `layer.constant()` returned when the innermost `computed_constants` began; `None` outside of one."""
    return (_constants.get() or {}).get(id(layer))


@contextlib.contextmanager
def computed_constants(layers, given=()):
    """A context in which the constants of layers are computed already.

    Those that a context outside this one has stay as they are.

    Args:
        layers: The layers, which have a method `constant`.
        given: Constants of the first of them that need not be computed.
    """
    layers = list(layers)
    known = dict(zip(map(id, layers), given, strict=False)) | (_constants.get() or {})
    for layer in layers:
        if id(layer) not in known:
            known[id(layer)] = layer.constant()
    with _set(known):
        yield


@contextlib.contextmanager
def read_constants():
    """A context in which all constants are tensors: variables that hold some are read now, and not in a loop."""
    with _set(keras.tree.map_structure(as_tensor, _constants.get() or {})):
        yield


@contextlib.contextmanager
def _set(constants):
    token = _constants.set(constants)
    try:
        yield
    finally:
        _constants.reset(token)
