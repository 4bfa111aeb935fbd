"""The softmax of attention: restricted to a mask, and computed in float32 or wider."""

from keras import backend, ops

LOWEST_SCORE = -3.4e38  # the score of masked pairs, below any other score with any bias


def masked_softmax(scores, mask=None):
    """Returns the softmax of `scores` [..., T, S] over S, restricted to `mask`, in their dtype.

    It is computed in float32 or wider. A row in which all positions are masked is all zeros, with finite gradients.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    wide = backend.result_type(dtype, "float32")
    scores = ops.cast(scores, wide)
    if mask is not None:  # a finite fill keeps the softmax of an empty row finite
        scores = ops.where(mask, scores, ops.cast(LOWEST_SCORE, wide))
    if scores.shape[-1] == 1:  # Keras' softmax warns about a single key, with which every decoder starts
        weights = ops.exp(ops.log_softmax(scores, axis=-1))
    else:
        weights = ops.softmax(scores, axis=-1)
    if mask is not None:  # an empty row is zero
        weights = ops.where(mask, weights, ops.cast(0.0, wide))
    return ops.cast(weights, dtype)
