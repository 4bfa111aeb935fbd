"""The sigmoid in place of the softmax."""

import keras
from keras import ops

from zoo.layers.normalizations.base import Normalization


@keras.saving.register_keras_serializable(package="attention_zoo")
class SigmoidNormalization(Normalization):
    """Sigmoid attention: `wᵢ = σ(sᵢ + b)`, each key by itself; the weights of a query have any sum.

    Args:
        bias: b, a number. Default: −log n, n being how many keys the query sees, so that at first the sum is near 1.
        **kwargs: Options of `keras.layers.Layer`.

    Call arguments and results: see `Normalization`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SigmoidNormalization
        >>> print(np.round(SigmoidNormalization()(np.array([[0.0, 0.0, 9.0]])), 2))
        [[0.25 0.25 1.  ]]

    Reference:
        Ramapuram et al. 2024, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention", equation 3,
        https://arxiv.org/abs/2409.04431
    """

    label = "sigmoid"

    saved_options = ("bias",)

    def __init__(self, bias=None, **kwargs):
        super().__init__(**kwargs)
        self.bias = bias

    def weights_of(self, scores, mask):
        if self.bias is not None:
            return ops.sigmoid(scores + self.bias)
        seen = ops.ones_like(scores[..., :1, :]) if mask is None else ops.cast(mask, scores.dtype)
        if mask is not None and mask.shape[-1] == 1:
            seen = seen + ops.zeros_like(scores)
        count = ops.sum(seen, axis=-1, keepdims=True)
        return ops.sigmoid(scores - ops.log(ops.maximum(count, 1.0)))
