"""Consistency regularisation: the outputs of a model should not depend on dropout, or on single tokens."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from training.config.options import TrainingConfig
from training.optimization.cross_entropy import log_normalizer, share_of_device
from zoo.errors import InputError

TWINS = 2
"""Number of copies of each row in R-Drop."""


def regularise(model: keras.Model, settings: TrainingConfig) -> None:
    """Adds the loss of `training.consistency` to that of a compiled model, in training only.

    With CE the loss of the run, α the weight, p = f(x, y) and means over the real tokens:

        rdrop:   ½ (CE(p₁) + CE(p₂) + α · ½ (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))), with two draws of dropout
        simcut:  CE(p) + α · KL(p ‖ p_cut), where the embeddings of a share of the tokens on each side are zero

    R-Drop's loss is half of the paper's sum, so that learning rates need no change. The gradient flows through both
    passes. R-Drop computes them in one pass, in which each row has a copy with its own dropout, as in the paper;
    `repeat_rows` makes the copies.

    Raises:
        InputError: If the model has no dropout, whose generator also draws the tokens of SimCut.

    Reference:
        Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", section 2, equations 2 to 4,
        https://arxiv.org/abs/2106.14448;
        Gao et al. 2022, "Bi-SimCut: A Simple Strategy for Boosting Neural Machine Translation", section 3,
        https://arxiv.org/abs/2206.02368
    """
    if settings.consistency == "none":
        return
    generators = [getattr(layer, "seed_generator", None) for layer in model._flatten_layers() if _drops(layer)]
    seeds = [seed for seed in generators if seed is not None]
    if not seeds:
        raise InputError(
            f"training.consistency={settings.consistency} compares passes with different dropout: set model.dropout."
        )
    plain, alpha = model.compute_loss, settings.consistency_weight

    def compute_loss(
        x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        loss = plain(x, y, y_pred, sample_weight, training=training)
        if not training:
            return loss
        if settings.consistency == "rdrop":
            first, second = ops.unstack(ops.reshape(y_pred, (-1, TWINS, *ops.shape(y_pred)[1:])), TWINS, axis=1)
            return loss + 0.25 * alpha * divergence(first, second, sample_weight[::TWINS], symmetric=True)
        with cut_off(model, settings.cutoff, seeds[0]):
            second = model(x, training=True)
        return loss + alpha * divergence(y_pred, second, sample_weight)

    model.compute_loss = compute_loss


def repeat_rows(model: keras.Model, settings: TrainingConfig) -> None:
    """Makes the training step of a compiled model repeat each row of a batch as often as consistency requires.

    Call it after other functions that replace the model's `train_step` and split batches.
    """
    copies, plain = rows_together(settings), model.train_step
    if copies == 1:
        return

    def train_step(*arguments: Any) -> Any:
        *state, batch = arguments  # on JAX the state is before the batch
        return plain(*state, keras.tree.map_structure(lambda array: ops.repeat(array, copies, axis=0), batch))

    model.train_step = train_step


def rows_together(settings: TrainingConfig) -> int:
    """Returns the number of consecutive rows of a batch that must not be separated."""
    return TWINS if settings.consistency == "rdrop" else 1


def _drops(layer: keras.layers.Layer) -> bool:
    return isinstance(layer, keras.layers.Dropout) and layer.rate > 0


def divergence(logits: Any, others: Any, weights: Any, symmetric: bool = False) -> Any:
    """Returns the weighted mean of `KL(softmax(logits) ‖ softmax(others))`, in float32.

    As in `cross_entropy`, gradients are explicit to save passes over logits. With `l = log p − log q`, the gradient of
    KL(p ‖ q) is `p · (l − KL(p ‖ q))` with respect to the logits of p, and `q − p` with respect to those of q.

    Args:
        logits: [..., V].
        others: [..., V].
        weights: [...]; those of padding are 0.
        symmetric: Whether `KL(softmax(others) ‖ softmax(logits))` is added.
    """

    @ops.custom_gradient
    def divergences(first: Any, second: Any) -> Any:
        p, q = ops.softmax(first, axis=-1), ops.softmax(second, axis=-1)
        difference = first - second
        shift = log_normalizer(first, p) - log_normalizer(second, q)  # l = difference − shift
        forward = ops.sum(p * difference, axis=-1) - shift
        backward = shift - ops.sum(q * difference, axis=-1) if symmetric else 0.0

        def gradient(*args: Any, upstream: Any = None) -> Any:
            if upstream is None:
                (upstream,) = args
            p_part, q_part = (shares * ops.expand_dims(upstream, -1) for shares in (p, q))
            if not symmetric:
                return p_part * (difference - ops.expand_dims(shift + forward, -1)), q_part - p_part
            return (
                p_part * (difference - ops.expand_dims(shift + forward - 1.0, -1)) - q_part,
                q_part * (ops.expand_dims(shift - backward + 1.0, -1) - difference) - p_part,
            )

        return forward + backward, gradient

    result = divergences(*(ops.cast(values, "float32") for values in (logits, others)))
    weights = ops.cast(weights, "float32")
    total = ops.sum(weights)
    # The logits of padding may have any value.
    summed = ops.sum(ops.where(weights > 0, result, 0.0) * weights)
    return summed / ops.maximum(total, 1e-9) * share_of_device(total)


@contextlib.contextmanager
def cut_off(model: keras.Model, rate: float, seed: Any) -> Iterator[None]:
    """Sets each vector of a model's embeddings to zero with probability `rate`, during the block.

    Args:
        model: The model.
        rate: The probability, in [0, 1).
        seed: The `keras.random.SeedGenerator` of the draws, one of a layer of the model.
    """

    def call(plain: Any, inputs: Any, *arguments: Any, reverse: bool = False) -> Any:
        if reverse:  # the logits, if the table is tied to the output
            return plain(inputs, *arguments, reverse=True)
        vectors = plain(inputs, *arguments)
        is_kept = keras.random.uniform(ops.shape(inputs), seed=seed) >= rate
        return vectors * ops.cast(is_kept, vectors.dtype)[..., None]

    tables = [layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Embedding)]
    for table in tables:
        table.call = functools.partial(call, table.call)
    try:
        yield
    finally:
        for table in tables:
            del table.call
