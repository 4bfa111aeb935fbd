"""Biases, which are added to scores: how they are checked, and brought into the shape of the scores."""

from keras import backend, ops

from zoo.layers.core.masks import sizes_differ

LARGEST_BIAS = 3e38  # added to a score, it is above the score of what is masked, `LOWEST_SCORE`


def check_bias(bias, shape):
    """Returns a bias in float32 or wider, limited to ± `LARGEST_BIAS`.

    A bias hides nothing, only masks do: what a row may see shares its weight also if all of it has a bias of −∞ (which
    −1e9 is in float16), and evenly, since such a bias leaves nothing of the scores. +∞ takes all the weight.

    Unknown sizes in the shape of the scores are `None`.

    Raises:
        ValueError: If it is not a float tensor, or does not broadcast to that shape.
    """
    bias = ops.convert_to_tensor(bias)
    dtype = backend.standardize_dtype(bias.dtype)
    if not backend.is_float_dtype(dtype):
        raise ValueError(
            f"`attention_bias` must be floating point; boolean masks go to `attention_mask`. Received: dtype={dtype}."
        )
    pairs = zip(reversed(bias.shape), reversed(shape), strict=False)
    if len(bias.shape) > len(shape) or any(sizes_differ(size, wanted) and size != 1 for size, wanted in pairs):
        raise ValueError(
            f"`attention_bias` must broadcast to the scores, {shape}. Received: shape={tuple(bias.shape)}."
        )
    return ops.clip(ops.cast(bias, backend.result_type(dtype, "float32")), -LARGEST_BIAS, LARGEST_BIAS)


def rank_4(bias):
    """Returns a bias that broadcasts to the scores, with all four axes, [B or 1, N or 1, T or 1, S or 1]."""
    return ops.reshape(bias, (*(1,) * (4 - len(bias.shape)), *ops.shape(bias)))


def repeat_bias_rows(bias, length):
    """Returns a bias that broadcasts to the scores, with a row for each of `length` queries."""
    bias = bias[None] if len(bias.shape) == 1 else bias
    if bias.shape[-2] != 1:
        return bias
    shape = ops.shape(bias)
    return ops.broadcast_to(bias, (*shape[:-2], length, shape[-1]))
