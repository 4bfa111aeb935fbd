"""Guided alignment: trains the attention of a translator with word alignments."""

import threading
from typing import Any

import keras
from keras import ops

from training.optimization.cross_entropy import share_of_device
from zoo.errors import InputError

# Added to attention weights, so that their logarithms are finite.
LEAST = 1e-6


def guide(model: keras.Model, weight: float) -> None:
    """Adds the cross-entropy of attention and alignments to the loss of a compiled model, in training only.

    `loss = CE + weight · H`, `H = −(1 / T) Σ_t Σ_j A_tj log α_tj`, where α_t is the attention, the mean over the heads
    of the last layer, from which token t is predicted, and A_t the alignment: `1 / n` for each of the n tokens of the
    source that are aligned to token t. Tokens without alignment add 0 to the sum, but count in T, the number of real
    tokens. The batch has `alignment` [B, T, S], 1 for aligned tokens.

    Raises:
        InputError: If the model has no attention.

    Reference:
        Chen et al. 2016, "Guided Alignment Training for Topic-Aware Neural Machine Translation", section 3.1,
        https://arxiv.org/abs/1607.01628
    """
    if not getattr(model, "attends", False):
        raise InputError(f"data.alignments requires attention, but {type(model).__name__} has none.")
    plain_call, plain_loss, saved = model.call, model.compute_loss, threading.local()

    def call(inputs: Any, training: bool | None = None) -> Any:
        if not training or "alignment" not in inputs:
            return plain_call(inputs, training=training)
        memory = model.encode(inputs["source"], training=training)
        logits, saved.attention = model.decode(inputs["target"], memory, training=training)
        return logits

    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        loss = plain_loss(x, y, y_pred, sample_weight, training=training)
        if not training or "alignment" not in x:
            return loss
        attention = ops.mean(saved.__dict__.pop("attention")[:, -1], axis=1)  # of the pass that computed `y_pred`
        return loss + weight * alignment_loss(attention, x["alignment"], sample_weight)

    model.call, model.compute_loss = call, compute_loss


def alignment_loss(attention: Any, alignment: Any, weights: Any) -> Any:
    """Returns the cross-entropy H, see `guide`, in float32.

    Args:
        attention: [B, T, S].
        alignment: [B, T, S], not 0 for aligned tokens.
        weights: [B, T]; those of padding are 0.
    """
    aligned = ops.cast(ops.not_equal(alignment, 0), "float32")
    shares = aligned / ops.maximum(ops.sum(aligned, axis=-1, keepdims=True), 1.0)
    losses = -ops.sum(shares * ops.log(ops.cast(attention, "float32") + LEAST), axis=-1)
    weights = ops.cast(weights, "float32")
    total = ops.sum(weights)
    return ops.sum(losses * weights) / ops.maximum(total, 1e-9) * share_of_device(total)
