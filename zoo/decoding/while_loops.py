"""Loops whose tensors may change their sizes from turn to turn, where the backend can do that."""

import importlib

import keras
from keras import ops


def can_resize():
    """Returns whether tensors may change their sizes in a loop: on JAX, and wherever XLA compiles, they may not."""
    return keras.backend.backend() in ("tensorflow", "torch")


def while_loop(going, body, first, resizes=False):
    """Returns what `body` makes of nested tensors, again and again as long as `going` of them holds.

    Args:
        going: Called with the nested tensors; returns a boolean scalar.
        body: Called with the nested tensors; returns the next ones.
        first: The nested tensors before the first turn.
        resizes: Whether axis 0, and each axis that has size 0 at first, may change its size.
    """
    leaves = keras.tree.flatten(first)

    def nested(values):
        return keras.tree.pack_sequence_as(first, list(values))

    def turn(*values):
        return tuple(keras.tree.flatten(body(nested(values))))

    def again(*values):
        return going(nested(values))

    if resizes and keras.backend.backend() == "tensorflow":
        tf = importlib.import_module("tensorflow")
        leaves = [tf.convert_to_tensor(leaf) for leaf in leaves]
        invariants = [tf.TensorShape(_open(leaf.shape.as_list())) for leaf in leaves]
        return nested(tf.while_loop(again, turn, tuple(leaves), shape_invariants=tuple(invariants)))
    return nested(ops.while_loop(again, turn, tuple(leaves)))


def _open(sizes):
    return [None if axis == 0 or size == 0 else size for axis, size in enumerate(sizes)]
