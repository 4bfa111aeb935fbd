"""Cross-entropy over tokens, and the mean of a loss over the tokens of a batch."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def cross_entropy(tokens: Any, logits: Any, label_smoothing: float = 0.0) -> Any:
    """Returns `−Σ_v q_v · log softmax(z)_v` in float32, with `q = (1 − ε) · one-hot + ε / V`.

    The logits are the largest tensors of a step, so every pass over them costs time. A single softmax, one kernel on
    every backend, also yields the `log_normalizer`. The gradient is explicit, `softmax(z) − q`, since automatic
    differentiation takes four passes. A metric shares the softmax of the loss.

    Args:
        tokens: Integers, [...].
        logits: z, [..., V].
        label_smoothing: ε, in [0, 1).
    """
    size = logits.shape[-1]
    shape = ops.shape(tokens)
    tokens = ops.reshape(ops.cast(tokens, "int32"), (-1,))

    @ops.custom_gradient
    def loss_of_rows(rows: Any) -> Any:
        probabilities, total = _softmax(rows)
        chosen = _chosen(rows, tokens, size)
        losses = total - (1.0 - label_smoothing) * chosen
        if label_smoothing:
            losses = losses - label_smoothing * ops.mean(rows, axis=-1)

        def gradient(*args: Any, upstream: Any = None) -> Any:
            if upstream is None:
                (upstream,) = args
            return (probabilities - _targets(tokens, size, label_smoothing)) * ops.expand_dims(upstream, -1)

        return losses, gradient

    # Cast first, as Keras does for losses, so that a metric computes the same tensors.
    return ops.reshape(loss_of_rows(ops.reshape(ops.cast(logits, "float32"), (-1, size))), shape)


def _softmax(rows: Any) -> tuple[Any, Any]:
    """Returns the softmax [N, V] of logits [N, V], and `log Σ_v e^{z_v}` [N].

    XLA recomputes the softmax for the gradient, so that its maximum would take another pass.
    """
    if keras.backend.backend() == "jax":
        total = ops.logsumexp(rows, axis=-1)
        return ops.exp(rows - ops.expand_dims(total, -1)), total
    probabilities = ops.softmax(rows, axis=-1)
    return probabilities, log_normalizer(rows, probabilities)


def log_normalizer(logits: Any, probabilities: Any) -> Any:
    """Returns `log Σ_v e^{z_v} = max z − log max softmax(z)` [...] of logits z [..., V] and their softmax."""
    return ops.max(logits, axis=-1) - ops.log(ops.max(probabilities, axis=-1))


def _chosen(rows: Any, tokens: Any, size: int) -> Any:
    """Returns the logit z of each token, [N], from logits [N, V]."""
    if keras.distribution.distribution() is not None:
        # A lookup would gather logits that are sharded over devices.
        return ops.sum(ops.where(ops.equal(ops.arange(size, dtype="int32"), tokens[:, None]), rows, 0.0), axis=-1)
    numbers = ops.arange(ops.shape(tokens)[0], dtype="int32")
    return ops.take(ops.reshape(rows, (-1,)), numbers * size + tokens, axis=0)


def _targets(tokens: Any, size: int, label_smoothing: float) -> Any:
    """Returns q [N, V] for tokens [N]; see `cross_entropy`."""
    others = label_smoothing / size
    own = 1.0 - label_smoothing + others
    if keras.backend.backend() != "tensorflow":
        return ops.where(ops.equal(ops.arange(size, dtype="int32"), tokens[:, None]), own, others)
    import tensorflow as tf

    return tf.one_hot(tokens, size, own, others)  # written once, while a scatter copies all rows


def perplexity(cross_entropy: float) -> float:
    """Returns `e^H` of a cross-entropy H in nats, at most e^700."""
    return math.exp(min(float(cross_entropy), 700.0))


def share_of_device(count: Any) -> Any:
    """Returns the factor from the mean over a device's `count` tokens to its part of the mean over all devices.

    Keras on TensorFlow averages over each device and then over the devices, ignoring their numbers of tokens.
    """
    if keras.backend.backend() != "tensorflow":
        return 1.0
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 1.0
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, count)
    return count * context.num_replicas_in_sync / ops.maximum(total, 1e-9)


class MeanOverTokens(keras.losses.Loss):
    """The mean of a loss over the real tokens of the whole batch, those with weight 1.

    Args:
        loss: The loss of a token, `loss(tokens, logits, label_smoothing)`; see `training.optimization.losses`.
        label_smoothing: Share ε of the target distribution that is spread over the vocabulary, in [0, 1).

    Reference:
        Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7, https://arxiv.org/abs/1512.00567
    """

    def __init__(
        self, loss: Callable[[Any, Any, float], Any] = cross_entropy, label_smoothing: float = 0.0, name: str = "loss"
    ):
        super().__init__(name=name, reduction="mean_with_sample_weight")
        self.loss, self.label_smoothing = loss, label_smoothing

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        loss = super().__call__(y_true, y_pred, sample_weight)
        return loss if sample_weight is None else loss * share_of_device(ops.sum(sample_weight))

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.loss(y_true, y_pred, self.label_smoothing)


def average_over_steps(model: keras.Model) -> None:
    """Makes a model report the mean of its steps' losses, which is the same on any number of devices.

    Keras weights each loss by the rows of its batch, and batches for several devices have repeated rows.
    """
    (tracker,) = [metric for metric in model.metrics if metric.name == "loss"]
    tracker.update_state = lambda values, sample_weight=None: keras.metrics.Mean.update_state(tracker, values)


class TokenCrossEntropy(keras.metrics.Metric):
    """Mean cross-entropy per real token, in nats, over all tokens so far (not a mean of means); no smoothing."""

    def __init__(self, name: str = "cross_entropy"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        losses = cross_entropy(y_true, y_pred)
        weights = ops.ones_like(losses) if sample_weight is None else ops.cast(sample_weight, losses.dtype)
        self.total.assign_add(ops.sum(losses * weights))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> Any:
        return self.total / ops.maximum(self.count, 1.0)
