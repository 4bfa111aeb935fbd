"""Masks and biases of scores: checks and combination. In a mask, True means "may attend".

Axes: B batch, N heads, T query length, S key/value length.
"""

import functools
from typing import Any

from keras import backend, ops

from zoo.row_selection import take

LARGEST_BIAS = 3e38  # a score minus this is still above the score of masked pairs, `LOWEST_SCORE`


def check_mask(mask: Any, name: str, ranks: tuple[int, ...]) -> Any:
    """Returns a boolean or integer mask (non-zero means "may attend") as a boolean tensor, or `None`.

    Raises:
        ValueError: If the mask is floating point (an additive mask is a bias) or has another rank.
    """
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    if backend.is_float_dtype(backend.standardize_dtype(mask.dtype)):
        raise ValueError(
            f"`{name}` must be boolean (True = may attend); additive masks go to `attention_bias`. "
            f"Received: dtype={backend.standardize_dtype(mask.dtype)}."
        )
    if len(mask.shape) not in ranks:
        raise ValueError(
            f"`{name}` must have rank {' or '.join(map(str, ranks))}. Received: shape={tuple(mask.shape)}."
        )
    return ops.cast(mask, "bool")


def check_batch(masks: dict[str, Any], batch: int | None) -> None:
    """Checks that masks, by name, have the batch size of the query, or 1; larger ones would enlarge the output.

    Raises:
        ValueError: If a mask has another batch size.
    """
    for name, mask in masks.items():
        if mask is None:
            continue
        size = next(iter(getattr(mask, "shape", ())), None)
        if sizes_differ(size, batch) and size != 1:
            sizes = batch if batch == 1 else f"{batch}, or 1"
            raise ValueError(
                f"`{name}` must have the batch size of `query`, {sizes}. Received: shape={tuple(mask.shape)}."
            )


def sizes_differ(first, second):
    """Returns whether two sizes are known and differ."""
    return isinstance(first, int) and isinstance(second, int) and first != second


def check_sequence_mask(mask, name, axis, length):
    """Returns the mask of a sequence as a boolean tensor [B, length], or `None`."""
    mask = check_mask(mask, name, (2,))
    if mask is not None and sizes_differ(mask.shape[1], length):
        raise ValueError(f"`{name}` must be [B, {axis}], {axis} = {length}. Received: shape={tuple(mask.shape)}.")
    return mask


def combined_value_mask(value_mask, key_mask, length):
    """Returns the conjunction of the masks of values and of keys, boolean [B, S], or `None` if both are `None`.

    With a cache, S (`length`) is its capacity; `None` accepts any length.

    Raises:
        ValueError: For a floating point mask, or a mask of the wrong rank or length.
    """
    masks = {"value_mask": value_mask, "key_mask": key_mask}
    return conjunction(*(check_sequence_mask(mask, name, "S", length) for name, mask in masks.items()))


def conjunction(*masks):
    """Returns the conjunction of masks, each of which may be `None`; `None` if all are."""
    present = [mask for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, present) if present else None


def slice_mask(mask, start, length):
    """Returns `mask[:, start : start + length]`, [B, length] from [B, S], or `None` for `None`."""
    if mask is None:
        return None
    return take(mask, ops.arange(length, dtype="int32") + start, axis=1)


def mask_of_new(mask, name, index, length):
    """Returns the mask of the `length` new positions after `index`, [B, length], or `None` for `None`.

    Args:
        mask: Boolean [B, L], of a cache's capacity; or already of the new positions, L = `length`.
        name: The name of the argument, for the error.
        index: Number of earlier positions.
        length: Number of new positions.

    Raises:
        ValueError: If the mask has another rank or is floating point, or L is known and below `length`.
    """
    mask = check_mask(mask, name, (2,))
    if mask is None or mask.shape[1] == length:
        return mask
    if not (isinstance(mask.shape[1], int) and isinstance(length, int)):
        index = ops.where(ops.equal(ops.shape(mask)[1], length), 0, index)
    elif mask.shape[1] < length:
        raise ValueError(
            f"With a cache, `{name}` must be [B, T], T = {length}, or cover its capacity. "
            f"Received: shape={tuple(mask.shape)}."
        )
    return slice_mask(mask, index, length)


def zero_masked(inputs, mask):
    """Returns `inputs` [B, L, D] with zeros where `mask` [B, L] is False; either may be `None`.

    Masked inputs may be NaN, and so would be their products with zeros.
    """
    if inputs is None or mask is None:
        return inputs
    return ops.where(mask[:, :, None], inputs, ops.cast(0.0, inputs.dtype))


def single_mask(mask):
    """Returns the mask of a memory, or `None`.

    If the memory is a dict of projections, `Layer.__call__` fills in a dict of `None` for its mask.
    """
    return None if isinstance(mask, dict) else mask


def check_bias(bias, shape):
    """Returns a bias in float32 or wider, limited to ± `LARGEST_BIAS`.

    Only masks exclude keys, biases do not: a query whose keys all have a bias of −∞ (as −1e9 is in float16) attends to
    them evenly, since the scores vanish beside such a bias. A key with a bias of +∞ has all the weight.

    Args:
        bias: A float tensor.
        shape: Shape of the scores; unknown sizes are `None`.

    Raises:
        ValueError: If the bias is not a float tensor, or does not broadcast to the scores.
    """
    bias = ops.convert_to_tensor(bias)
    dtype = backend.standardize_dtype(bias.dtype)
    if not backend.is_float_dtype(dtype):
        raise ValueError(
            f"`attention_bias` must be floating point; boolean masks go to `attention_mask`. Received: dtype={dtype}."
        )
    pairs = zip(reversed(bias.shape), reversed(shape), strict=False)
    if len(bias.shape) > len(shape) or any(sizes_differ(size, other) and size != 1 for size, other in pairs):
        raise ValueError(
            f"`attention_bias` must broadcast to the scores, {shape}. Received: shape={tuple(bias.shape)}."
        )
    return ops.clip(ops.cast(bias, backend.result_type(dtype, "float32")), -LARGEST_BIAS, LARGEST_BIAS)


def rank_4(bias):
    """Returns a bias that broadcasts to the scores with leading axes added, [B or 1, N or 1, T or 1, S or 1]."""
    return ops.reshape(bias, (*(1,) * (4 - len(bias.shape)), *ops.shape(bias)))


def repeat_bias_rows(bias, length):
    """Returns a bias that broadcasts to the scores, repeated to a row for each of `length` queries."""
    bias = bias[None] if len(bias.shape) == 1 else bias
    if bias.shape[-2] != 1:
        return bias
    shape = ops.shape(bias)
    return ops.broadcast_to(bias, (*shape[:-2], length, shape[-1]))
