"""Loops whose tensors may change their sizes from iteration to iteration, on backends that allow it."""

import importlib
from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def can_resize() -> bool:
    """Returns whether the backend supports loops whose tensors change their sizes; JAX and XLA do not."""
    return keras.backend.backend() in ("tensorflow", "torch")


def while_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], initial: Any, resizes: bool = False) -> Any:
    """Returns nested tensors after applying `body` to them while `condition` of them is true.

    With `resizes`, axis 0 and each axis of initial size 0 may change their sizes.
    """
    leaves = keras.tree.flatten(initial)

    def pack(values: Any) -> Any:
        return keras.tree.pack_sequence_as(initial, list(values))

    def flat_body(*values: Any) -> Any:
        return tuple(keras.tree.flatten(_in_order_of(initial, body(pack(values)))))

    def flat_condition(*values: Any) -> Any:
        return condition(pack(values))

    if resizes and keras.backend.backend() == "tensorflow":
        tf = importlib.import_module("tensorflow")
        leaves = [tf.convert_to_tensor(leaf) for leaf in leaves]
        invariants = [tf.TensorShape(_resizable(leaf.shape.as_list())) for leaf in leaves]
        return pack(tf.while_loop(flat_condition, flat_body, tuple(leaves), shape_invariants=tuple(invariants)))
    return pack(ops.while_loop(flat_condition, flat_body, tuple(leaves)))


def _in_order_of(structure: Any, values: Any) -> Any:
    """Returns nested values with the keys of dicts in the order of `structure`, on which Keras on PyTorch relies."""
    if isinstance(structure, dict):
        return {key: _in_order_of(part, values[key]) for key, part in structure.items()}
    if isinstance(structure, (list, tuple)):
        parts = [_in_order_of(part, value) for part, value in zip(structure, values, strict=True)]
        return type(values)(*parts) if hasattr(values, "_fields") else type(values)(parts)
    return values


def _resizable(shape: list[int | None]) -> list[int | None]:
    return [None if axis == 0 or size == 0 else size for axis, size in enumerate(shape)]
