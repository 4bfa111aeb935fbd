"""The additive score with a vector of known length."""

import keras
from keras import ops

from zoo.layers.scores.additive import AdditiveScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class NormalizedAdditiveScore(AdditiveScore):
    """Additive score whose last vector has a learned length: `score(s, h) = g · v / ‖v‖ · tanh(W₁ s + W₂ h + b)`.

    No score is larger than `g · √units`; g is `1 / √units` at first. Monotonic attention needs scores of a known size,
    since the sigmoid, unlike the softmax, does not forget what all scores have in common.

    Args:
        units: Size of the hidden layer, a positive integer. Default: the last axis of the query.
        use_bias: Whether the hidden layer has the bias `b`.
        kernel_initializer: Initializer of W₁, W₂ and v.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import NormalizedAdditiveScore
        >>> NormalizedAdditiveScore(5)(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape
        TensorShape([1, 2, 3])

    Reference:
        Raffel et al. 2017, "Online and Linear-Time Attention by Enforcing Monotonic Alignments", section 2.4, equation
        16, https://arxiv.org/abs/1704.00784; weight normalisation: Salimans and Kingma 2016,
        https://arxiv.org/abs/1602.07868
    """

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        first = keras.initializers.Constant(self.hidden_size**-0.5)
        self.gain = self.add_weight(name="gain", shape=(), initializer=first)

    def compare(self, query, key):
        return super().compare(query, key) * ops.cast(self.gain / self._length(), self.compute_dtype)

    def _length(self):
        """Returns ‖v‖."""
        dense = self.score_dense
        rows = dense.kernel if dense.quantization_mode is None else dense(ops.eye(self.hidden_size))
        return ops.sqrt(ops.sum(ops.square(ops.cast(rows, self.gain.dtype))) + 1e-12)
