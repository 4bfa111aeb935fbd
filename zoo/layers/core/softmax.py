"""The softmax of attention: restricted to what a mask allows, and in float32 or wider."""

from keras import backend, ops

LOWEST_SCORE = -3.4e38  # of what is masked: below any score with any bias


def masked_softmax(scores, mask=None):
    """Returns the softmax of `scores` [..., T, S] over S, restricted to `mask`, in their dtype.

    It is computed in float32 or wider. A row without any allowed position is all zeros, with finite gradients.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    wide = backend.result_type(dtype, "float32")
    scores = ops.cast(scores, wide)
    if mask is not None:  # a finite fill keeps the softmax of an empty row finite
        scores = ops.where(mask, scores, ops.cast(LOWEST_SCORE, wide))
    if scores.shape[-1] == 1:  # of which Keras' softmax warns, but a decoder starts with a single key
        weights = ops.exp(ops.log_softmax(scores, axis=-1))
    else:
        weights = ops.softmax(scores, axis=-1)
    if mask is not None:  # that row is zero
        weights = ops.where(mask, weights, ops.cast(0.0, wide))
    return ops.cast(weights, dtype)
