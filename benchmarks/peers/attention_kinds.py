"""What attention alone is measured on: lengths, and the operations that are of use. NumPy only."""

import numpy as np

KINDS = ("causal", "padded", "window", "alibi", "additive")


def lengths_of(task):
    """Returns how many keys of each sequence are real, [B]: from half of them to all."""
    return np.linspace(task["length"] // 2, task["length"], task["batch"]).round().astype("int32")


def visible_pairs(task):
    """Returns how many pairs of a query and a key see each other, in all sequences together."""
    batch, length = task["batch"], task["length"]
    if task["attention"] == "padded":
        return int(lengths_of(task).sum()) * length
    if task["attention"] == "additive":
        return batch * length * length
    seen = min(task["window"], length) if task["attention"] == "window" else length
    return batch * (seen * (seen + 1) // 2 + (length - seen) * seen)


def operations(task):
    """Returns the multiplications and additions of a pass, forward and backward, for pairs that see each other.

    Two products forward, and backward the four of which they have the gradients, with 2 · H operations for each pair;
    scores that are computed again do not count. The additive score has tanh in place of the first; 0 says that it is
    not counted.
    """
    if task["attention"] == "additive":
        return 0
    return visible_pairs(task) * task["heads"] * 6 * 2 * task["size"]
