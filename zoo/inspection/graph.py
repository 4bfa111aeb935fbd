"""The operations that a call consists of: it is made with symbolic tensors, and nothing is computed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

_ONE_AT_A_TIME = threading.RLock()  # layers keep the nodes of their calls in lists, by number


class _Inline(keras.layers.Layer):
    """Calls a function as the body of a layer, so that Keras casts weights by the layer's policy."""

    def call(self, function: Callable[[], Any]) -> Any:
        return function()


def inline(layer: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Returns the symbolic results of `call`, the body of a layer, for symbolic arguments."""
    policy = getattr(layer, "dtype_policy", None)

    def convert(argument: Any) -> Any:
        is_float = isinstance(argument, keras.KerasTensor) and keras.backend.is_float_dtype(argument.dtype)
        if policy is None or not is_float or not layer.autocast or argument.dtype == layer.compute_dtype:
            return argument
        return keras.KerasTensor(argument.shape, layer.compute_dtype)

    args, kwargs = keras.tree.map_structure(convert, (args, kwargs))
    return _Inline(dtype=policy)(function=lambda: call(*args, **kwargs))


def fresh(nested: Any) -> Any:
    """Returns symbolic tensors of the same shapes that come from nowhere, so that a walk back ends at them."""
    return keras.tree.map_structure(
        lambda leaf: keras.KerasTensor(leaf.shape, leaf.dtype) if isinstance(leaf, keras.KerasTensor) else leaf, nested
    )


def new_nodes(results: Any, seen: set[int]) -> list[Any]:
    """Returns the nodes of the symbolic graph that the results depend on and that are not in `seen`, in order."""
    ordered, stack = [], [node for node in map(_node, reversed(keras.tree.flatten(results))) if node is not None]
    while stack:
        node = stack[-1]
        before = [_node(tensor) for tensor in node.input_tensors]
        missing = [other for other in before if other is not None and id(other) not in seen]
        if missing and id(node) not in seen:
            stack += missing
            continue
        stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            ordered.append(node)
    return ordered


def _node(tensor: Any) -> Any:
    history = getattr(tensor, "_keras_history", None)
    if history is None or history.operation is None:
        return None
    return history.operation._inbound_nodes[history.node_index]


@contextmanager
def without_traces(layer: Any) -> Iterator[None]:
    """A context after which a layer has forgotten that it was called with symbolic tensors inside it."""
    with _ONE_AT_A_TIME:
        nodes = [nodes for part in layer._flatten_layers() for nodes in (part._inbound_nodes, part._outbound_nodes)]
        lengths = [len(each) for each in nodes]
        try:
            yield
        finally:
            for each, length in zip(nodes, lengths, strict=True):
                del each[length:]
