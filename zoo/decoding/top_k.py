"""The most probable symbols and their probabilities, with few passes over the logits: those are what a step costs."""

import math

from keras import ops

from zoo.row_selection import take_from_rows


def top_k(logits, count):
    """Returns the `count` largest of each row and their places, [R, count], largest first.

    The largest numbers are in the groups with the largest maxima, and a maximum costs far less than a selection.

    Args:
        logits: [R, V].
        count: How many, at most V.
    """
    size = logits.shape[-1]
    groups = _groups(size, count)
    if groups is None or 3 * count > groups:
        return ops.top_k(logits, count)
    grouped = ops.reshape(logits, (-1, groups, size // groups))
    _, chosen = ops.top_k(ops.max(grouped, axis=-1), count)
    chosen = ops.sort(chosen, axis=-1)  # of equal numbers the first one counts
    found = take_from_rows(grouped, chosen)  # [R, count, V / groups]
    values, places = ops.top_k(ops.reshape(found, (-1, count * (size // groups))), count)
    group = take_from_rows(chosen, places // (size // groups))
    return values, group * (size // groups) + places % (size // groups)


def most_probable(logits):
    """Returns the largest of each row and the first place where it stands, [R] each.

    Keras' `argmax` goes over the logits several times to tell zeros of either sign apart; it takes six times as long.

    Args:
        logits: [R, V].
    """
    values, places = top_k(logits, 1)
    return values[:, 0], places[:, 0]


def _groups(size, count):
    """Returns how many groups of equal size leave least to select from, or `None` where none are near.

    Of G groups, a selection is made from G maxima and from `count` · V / G numbers.
    """
    middle = math.sqrt(size * count)
    fitting = [number for number in range(math.ceil(middle / 3), math.floor(middle * 3) + 1) if size % number == 0]
    return min(fitting, key=lambda number: abs(number - middle), default=None)


def log_total(logits, largest):
    """Returns `log Σ exp(logits)` of each row, [R].

    Args:
        logits: [R, V].
        largest: The largest of each row, [R].
    """
    return largest + ops.log(ops.sum(ops.exp(logits - largest[:, None]), axis=-1))
