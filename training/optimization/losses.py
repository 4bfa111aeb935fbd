"""Cross-entropy over symbols."""

import math

import keras
from keras import ops


def cross_entropy(symbols, logits, label_smoothing=0.0):
    """Returns `−Σ_v q_v · log softmax(z)_v` in float32, with `q = (1 − ε) · one-hot + ε / V`.

    The logits are the largest tensors of a step, so passes over them count. There is one softmax, which every backend
    has as a single kernel; `log Σ e^z = max z − log max softmax(z)`; and the gradient is written out,
    `softmax(z) − q`, where differentiating the terms one by one takes four passes. A metric beside the loss shares what
    both need.

    Args:
        symbols: [...].
        logits: z, [..., V].
        label_smoothing: ε, in [0, 1).
    """
    size = logits.shape[-1]
    shape = ops.shape(symbols)
    symbols = ops.reshape(ops.cast(symbols, "int32"), (-1,))

    @ops.custom_gradient
    def of_rows(rows):
        numbers = ops.arange(ops.shape(symbols)[0], dtype="int32")
        probabilities = ops.softmax(rows, axis=-1)
        total = ops.max(rows, axis=-1) - ops.log(ops.max(probabilities, axis=-1))
        chosen = ops.take(ops.reshape(rows, (-1,)), numbers * size + symbols, axis=0)
        losses = total - (1.0 - label_smoothing) * chosen
        if label_smoothing:
            losses = losses - label_smoothing * ops.mean(rows, axis=-1)

        def gradient(*args, upstream=None):
            if upstream is None:
                (upstream,) = args
            return (probabilities - _targets(symbols, size, label_smoothing)) * ops.expand_dims(upstream, -1)

        return losses, gradient

    # Cast before anything else, as Keras does for losses: or a metric would share nothing.
    return ops.reshape(of_rows(ops.reshape(ops.cast(logits, "float32"), (-1, size))), shape)


def _targets(symbols, size, label_smoothing):
    """Returns q [N, V] for symbols [N]; see `cross_entropy`."""
    others = label_smoothing / size
    own = 1.0 - label_smoothing + others
    if keras.backend.backend() != "tensorflow":
        return ops.where(ops.equal(ops.arange(size, dtype="int32"), symbols[:, None]), own, others)
    import tensorflow as tf

    return tf.one_hot(symbols, size, own, others)  # written once, where a scatter copies all rows


def perplexity(cross_entropy: float) -> float:
    """Returns `e^H` of a cross-entropy H in nats; that of a run gone astray, beyond e^700, counts as that much.

    Args:
        cross_entropy: H.
    """
    return math.exp(min(float(cross_entropy), 700.0))


def _share(count):
    """Returns the factor that makes a mean over one device's symbols its part of the mean over those of all devices.

    Keras on TensorFlow averages over each device, and then over the devices, whatever number of symbols they have.

    Args:
        count: This device's number of symbols.
    """
    if keras.backend.backend() != "tensorflow":
        return 1.0
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 1.0
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    return count * context.num_replicas_in_sync / ops.maximum(total, 1e-9)


class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against `(1 − ε) · one-hot + ε / V`, averaged over the real symbols of the whole batch
    (those with weight 1).

    Args:
        label_smoothing: ε, in [0, 1).

    Reference:
        Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7, https://arxiv.org/abs/1512.00567
    """

    def __init__(self, label_smoothing=0.0, name="loss"):
        super().__init__(name=name, reduction="mean_with_sample_weight")
        self.label_smoothing = label_smoothing

    def __call__(self, y_true, y_pred, sample_weight=None):
        loss = super().__call__(y_true, y_pred, sample_weight)
        return loss if sample_weight is None else loss * _share(ops.sum(sample_weight))

    def call(self, y_true, y_pred):
        return cross_entropy(y_true, y_pred, self.label_smoothing)


def average_over_steps(model: keras.Model) -> None:
    """Has a model report the mean of its steps' losses, so that it is the same on any number of devices.

    Keras weights each loss by the rows of its batch, and several devices are given rows that do not count.

    Args:
        model: The compiled model.
    """
    (tracker,) = [metric for metric in model.metrics if metric.name == "loss"]
    tracker.update_state = lambda values, sample_weight=None: keras.metrics.Mean.update_state(tracker, values)


class TokenCrossEntropy(keras.metrics.Metric):
    """Mean cross-entropy per real symbol, in nats, over all symbols seen (not a mean of means); no smoothing."""

    def __init__(self, name="cross_entropy"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        losses = cross_entropy(y_true, y_pred)
        weights = ops.ones_like(losses) if sample_weight is None else ops.cast(sample_weight, losses.dtype)
        self.total.assign_add(ops.sum(losses * weights))
        self.count.assign_add(ops.sum(weights))

    def result(self):
        return self.total / ops.maximum(self.count, 1.0)
