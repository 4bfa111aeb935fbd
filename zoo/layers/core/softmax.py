"""The softmax of attention: restricted to a mask, and computed in float32 or wider."""

import contextlib
from contextvars import ContextVar

from keras import backend, ops

from zoo.layers.core.graphs import is_tensorflow_graph

LOWEST_SCORE = -3.4e38  # the score of masked pairs, below any other score with any bias

_training = ContextVar("training", default=False)


@contextlib.contextmanager
def trained_softmax():
    """Returns a context in which `masked_softmax` has the gradient of training, see there."""
    token = _training.set(True)
    try:
        yield
    finally:
        _training.reset(token)


def masked_softmax(scores, mask=None):
    """Returns the softmax of `scores` [..., T, S] over S, restricted to `mask`, in their dtype.

    It is computed in float32 or wider. A row in which all positions are masked is all zeros, with finite gradients.
    In training in TensorFlow graphs, the gradient for several queries is computed by its formula, `∂s = w ⊙ (∂w − Σ ∂w
    ⊙ w)`; differentiating each operation takes two more passes and 22 more operations.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    scores = ops.cast(scores, backend.result_type(dtype, "float32"))
    is_step = scores.shape[-2] == 1  # such as one of a loop
    if mask is None or is_step or not _training.get() or not is_tensorflow_graph():
        return ops.cast(_softmax(scores, mask), dtype)

    @ops.custom_gradient
    def softmax(scores):
        def gradient(upstream):
            with trained_softmax():
                weights = masked_softmax(scores, mask)  # recomputed for the gradient of this gradient
            return weights * (upstream - ops.sum(upstream * weights, axis=-1, keepdims=True))

        return _softmax(scores, mask), gradient

    return ops.cast(softmax(scores), dtype)


def _softmax(scores, mask):
    if mask is not None:  # a finite fill keeps the softmax of an empty row finite
        scores = ops.where(mask, scores, ops.cast(LOWEST_SCORE, scores.dtype))
    if scores.shape[-1] == 1:  # Keras' softmax warns about a single key, with which every decoder starts
        weights = ops.exp(ops.log_softmax(scores, axis=-1))
    else:
        weights = ops.softmax(scores, axis=-1)
    return weights if mask is None else ops.where(mask, weights, ops.cast(0.0, weights.dtype))  # an empty row is zero
