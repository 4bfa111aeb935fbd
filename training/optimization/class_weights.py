"""Weights the classes in the loss of a classifier."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from training.optimization.cross_entropy import MeanOverTokens
from training.optimization.losses import Loss


def weigh_classes(model: keras.Model, loss: Loss, label_smoothing: float, weights: Sequence[float]) -> None:
    """Multiplies the loss of each example of a compiled classifier by the weight of its class, in training only.

    With ℓ_b the loss of example b of a batch and y_b its class,

        loss = (1 / B) Σ_b w_{y_b} ℓ_b = mean(ℓ) + mean((w_y − 1) ℓ)

    The sum is divided by the number of examples B, not by the sum of their weights, as Keras does for `class_weight`.
    So a batch of only the rare class has a larger gradient, and weights whose mean over the data is 1, such as balanced
    ones, do not change the scale of the loss. The loss and the metrics of validation, by which training stops early,
    and the metrics of training are not weighted. Consistency and other terms of the loss are not weighted either; call
    this before they are added.

    Args:
        model: The model.
        loss: The loss of an example.
        label_smoothing: See `MeanOverTokens`.
        weights: The weight of each class.
    """
    plain = model.compute_loss

    def surplus(classes: Any, logits: Any, label_smoothing: float) -> Any:
        factors = ops.take(ops.convert_to_tensor(weights, "float32"), ops.cast(classes, "int32"), axis=0) - 1.0
        return factors * loss(classes, logits, label_smoothing)

    mean_surplus = MeanOverTokens(surplus, label_smoothing)

    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        mean = plain(x, y, y_pred, sample_weight, training=training)
        return mean + mean_surplus(y, y_pred, sample_weight) if training else mean

    model.compute_loss = compute_loss
