"""The work of attention alone: lengths, and useful operations. NumPy only."""

import numpy as np

KINDS = ("causal", "padded", "window", "alibi", "additive")


def lengths_of(task):
    """Returns the number of real keys of each sequence, [B]: from half of them to all."""
    return np.linspace(task["length"] // 2, task["length"], task["batch"]).round().astype("int32")


def attended_pairs(task):
    """Returns the number of pairs of a query and a key that the mask allows, in all sequences."""
    batch, length = task["batch"], task["length"]
    if task["attention"] == "padded":
        return int(lengths_of(task).sum()) * length
    if task["attention"] == "additive":
        return batch * length * length
    window = min(task["window"], length) if task["attention"] == "window" else length
    return batch * (window * (window + 1) // 2 + (length - window) * window)


def operations(task):
    """Returns the multiplications and additions of a pass, forward and backward, for pairs that the mask allows.

    These are two products forward, and four backward for their gradients, with 2 · H operations for each pair;
    recomputed scores do not count. 0 means unknown: the additive score has tanh instead of the first product.
    """
    if task["attention"] == "additive":
        return 0
    return attended_pairs(task) * task["heads"] * 6 * 2 * task["size"]
