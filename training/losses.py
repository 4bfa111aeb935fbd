"""Cross-entropy over symbols."""

import keras
from keras import ops


def cross_entropy(symbols, logits):
    """Returns `−log softmax(logits)[symbol]` in float32.

    Args:
        symbols: [B, T].
        logits: [B, T, V].
    """
    return ops.sparse_categorical_crossentropy(symbols, ops.cast(logits, "float32"), from_logits=True)


class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against `(1 − ε) · one-hot + ε / V`, averaged over real symbols (those with weight 1).

    Args:
        label_smoothing: ε, in [0, 1).

    Reference:
        Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7, https://arxiv.org/abs/1512.00567
    """

    def __init__(self, label_smoothing=0.0, name="loss"):
        super().__init__(name=name, reduction="mean_with_sample_weight")
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        symbols = ops.cast(y_true, "int32")
        loss = cross_entropy(symbols, y_pred)
        if self.label_smoothing:
            # Equal to the definition: both parts share the log-sum-exp, which the first term holds.
            chosen = ops.squeeze(ops.take_along_axis(y_pred, symbols[..., None], axis=-1), -1)
            loss = loss + self.label_smoothing * (chosen - ops.mean(y_pred, axis=-1))
        return loss


class TokenCrossEntropy(keras.metrics.Metric):
    """Mean cross-entropy per real symbol, in nats, over all symbols seen (not a mean of means); no smoothing."""

    def __init__(self, name="cross_entropy"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        losses = cross_entropy(ops.cast(y_true, "int32"), y_pred)
        weights = ops.ones_like(losses) if sample_weight is None else ops.cast(sample_weight, losses.dtype)
        self.total.assign_add(ops.sum(losses * weights))
        self.count.assign_add(ops.sum(weights))

    def result(self):
        return self.total / ops.maximum(self.count, 1.0)
