"""The most probable tokens and their probabilities, with few passes over the logits, which dominate a step's cost."""

import math
from typing import Any

import keras
from keras import ops

from zoo.row_selection import take_per_row


def top_k(logits: Any, k: int) -> tuple[Any, Any]:
    """Returns the k ≤ V largest values of each row of logits [R, V] and their indices, [R, k], largest first.

    The largest values are in the groups with the largest maxima, and computing maxima is much cheaper than `top_k`.
    """
    size = logits.shape[-1]
    groups = _num_groups(size, k)
    if groups is None or 3 * k > groups:
        values, indices = ops.top_k(logits, k)
        return values, indices
    group_size = size // groups
    grouped = ops.reshape(logits, (-1, groups, group_size))
    _, chosen = ops.top_k(ops.max(grouped, axis=-1), k)
    chosen = ops.sort(chosen, axis=-1)  # of equal values, the first one is chosen
    candidates = take_per_row(grouped, chosen)  # [R, k, V / groups]
    values, indices = ops.top_k(ops.reshape(candidates, (-1, k * group_size)), k)
    group = take_per_row(chosen, indices // group_size)
    return values, group * group_size + indices % group_size


def argmax(logits: Any) -> tuple[Any, Any]:
    """Returns the largest value of each row of logits [R, V], [R, 1], and its first index, [R].

    Keras' `argmax` takes six times as long, because it passes over the logits several times to distinguish zeros of
    either sign.
    """
    if keras.backend.backend() == "torch":  # PyTorch's `topk` returns any of several equal maxima
        return ops.max(logits, axis=-1, keepdims=True), ops.argmax(logits, axis=-1)
    size = logits.shape[-1]
    groups = _num_groups(size, 1) or 1
    grouped = ops.reshape(logits, (-1, groups, size // groups))
    largest, group = ops.top_k(ops.max(grouped, axis=-1), 1)
    _, place = ops.top_k(take_per_row(grouped, group), 1)  # [R, 1, 1]
    return largest, ops.reshape(group[..., None] * (size // groups) + place, (-1,))


def _num_groups(size: int, k: int) -> int | None:
    """Returns the number of equal groups that costs least, or `None` if no suitable number divides `size`.

    With G groups, `top_k` selects from G maxima and then from k · V / G values.
    """
    best = math.sqrt(size * k)
    divisors = [number for number in range(math.ceil(best / 3), math.floor(best * 3) + 1) if size % number == 0]
    return min(divisors, key=lambda number: abs(number - best), default=None)


def log_sum_exp(logits: Any, largest: Any) -> Any:
    """Returns `log Σ exp(logits)` of each row of logits [R, V], [R], from the largest value of each, [R]."""
    return largest + ops.log(ops.sum(ops.exp(logits - largest[:, None]), axis=-1))
