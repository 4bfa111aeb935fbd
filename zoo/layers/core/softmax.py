"""The softmax of attention: restricted to what a mask allows, and in float32 or wider."""

from keras import backend, ops

from zoo.layers.core.kernels import LOWEST_SCORE


def _softmax(scores):
    # Keras' softmax warns of an axis of size 1, but a single key is nothing unusual: a decoder starts with one.
    if scores.shape[-1] == 1:
        return ops.exp(ops.log_softmax(scores, axis=-1))
    return ops.softmax(scores, axis=-1)


def masked_softmax(scores, mask=None):
    """Returns the softmax of `scores` [..., T, S] over S, restricted to `mask`, in their dtype.

    It is computed in float32 or wider. A row without any allowed position is all zeros, with finite gradients.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    wide = backend.result_type(dtype, "float32")
    scores = ops.cast(scores, wide)
    if mask is None:
        return ops.cast(_softmax(scores), dtype)
    # A finite fill keeps the softmax of an empty row finite; the second `where` makes that row zero.
    weights = _softmax(ops.where(mask, scores, ops.cast(LOWEST_SCORE, wide)))
    return ops.cast(ops.where(mask, weights, ops.cast(0.0, wide)), dtype)
