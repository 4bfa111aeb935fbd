"""The graph of the operations of a call with symbolic tensors, which computes nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras

_ONE_AT_A_TIME = threading.RLock()  # because layers store the nodes of their calls in lists


class _Inline(keras.layers.Layer):
    """Calls a function as the `call` of a layer, so that Keras casts weights by the layer's dtype policy."""

    def call(self, function: Callable[[], Any]) -> Any:
        return function()


def inline(layer: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Returns the symbolic results of the method `call` of a layer for symbolic arguments."""
    policy = getattr(layer, "dtype_policy", None)

    def convert(argument: Any) -> Any:
        is_float = isinstance(argument, keras.KerasTensor) and keras.backend.is_float_dtype(argument.dtype)
        if policy is None or not is_float or not layer.autocast or argument.dtype == layer.compute_dtype:
            return argument
        return keras.KerasTensor(argument.shape, layer.compute_dtype)

    args, kwargs = keras.tree.map_structure(convert, (args, kwargs))
    return _Inline(dtype=policy)(function=lambda: call(*args, **kwargs))


def fresh(nested: Any) -> Any:
    """Returns symbolic tensors of the same shapes without history, at which the traversal of a graph ends."""
    return keras.tree.map_structure(
        lambda leaf: keras.KerasTensor(leaf.shape, leaf.dtype) if isinstance(leaf, keras.KerasTensor) else leaf, nested
    )


def new_nodes(results: Any, seen: set[int]) -> list[Any]:
    """Returns the nodes of the symbolic graph of the results in topological order, except those in `seen`."""
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
    """Removes all nodes that calls within the context add to a layer and its sublayers."""
    with _ONE_AT_A_TIME:
        nodes = [nodes for part in layer._flatten_layers() for nodes in (part._inbound_nodes, part._outbound_nodes)]
        lengths = [len(node_list) for node_list in nodes]
        try:
            yield
        finally:
            for node_list, length in zip(nodes, lengths, strict=True):
                del node_list[length:]
