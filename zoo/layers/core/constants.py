"""Constants of layers: tensors computed from weights alone, in decoding once before the loop and not at every step.

A layer that has such tensors has a method `constant`, which returns nested tensors, or `None` for none.
"""

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

_constants: ContextVar[dict[int, Any] | None] = ContextVar("constants", default=None)  # by the layer's identity


def constant_of(layer):
    """Returns the constant of a layer, as computed by an enclosing `computed_constants`; `None` outside any."""
    return (_constants.get() or {}).get(id(layer))


@contextlib.contextmanager
def computed_constants(layers: Iterable[Any], values: Iterable[Any] = ()) -> Iterator[None]:
    """Returns a context in which the constants of layers have been computed.

    Constants of an enclosing context are not computed again.

    Args:
        layers: Layers with a method `constant`.
        values: Constants of the first layers, which are not computed.
    """
    layers = list(layers)
    constants = dict(zip(map(id, layers), values, strict=False)) | (_constants.get() or {})
    for layer in layers:
        if id(layer) not in constants:
            constants[id(layer)] = layer.constant()
    token = _constants.set(constants)
    try:
        yield
    finally:
        _constants.reset(token)
