"""Initialises a model from the weights of another run, and adds low-rank updates to it (LoRA)."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import keras

import zoo
from zoo.errors import InputError
from zoo.models.classifiers.base import ClassifierModel


def start_from(initial: str, model: keras.Model, classes: Sequence[str] | None) -> None:
    """Sets the weights of a model to those of a run with the same options, from its work directory or `preset:NAME`.

    The last layer of a classifier is not set if the run has other classes, or is a sentence encoder.
    Raises InputError if the shapes of the weights differ.
    """
    run = zoo.load(initial)
    new_head = run.config["data"].get("classes") != classes
    weights = (_without_head(source) if new_head else source.weights for source in (model, run.model))
    for new, old in zip(*weights, strict=True):
        if new.shape != old.shape:
            raise InputError(f"{initial}: {old.path} must have the shape {new.shape}. Received: {old.shape}.")
        new.assign(old)


def _without_head(model: keras.Model) -> list[keras.Variable]:
    """Returns the weights of a classifier or sentence encoder, without the last layer of a classifier."""
    head = {id(variable) for variable in model.output_dense.weights} if isinstance(model, ClassifierModel) else set()
    return [variable for variable in model.weights if id(variable) not in head]


def _matrix(layer: keras.layers.Layer) -> keras.Variable:
    return layer.embeddings if hasattr(layer, "embeddings") else layer.kernel


def _smaller_side(layer: keras.layers.Layer) -> int:
    """Returns the smaller side of a layer's matrix; Keras' LoRA treats all axes but the last as rows."""
    *rows, columns = _matrix(layer).shape
    return int(min(math.prod(rows), columns))


def add_lora(model: keras.Model, rank: int) -> None:
    """Adds low-rank updates to the matrices of a model, and freezes its weights, except a classifier's last layer.

    A matrix W becomes `W + A B`, where A has `rank` columns and B begins at zero, in dense layers, convolutions and
    embeddings. Position tables, pooling queries and vectors are not trained; their number is reported on standard
    error.

    Raises:
        InputError: If the model is recurrent, since Keras has no LoRA for the matrices of cells; or if the rank is not
            below the sides of each matrix.

    Reference:
        Hu et al. 2022, "LoRA", section 4.1, https://arxiv.org/abs/2106.09685
    """
    layers = list(model._flatten_layers(include_self=False))
    if any(isinstance(layer, keras.layers.RNN) for layer in layers):
        raise InputError(
            f"{model.name} is recurrent, and LoRA does not support the matrices of recurrent cells. "
            f"Leave out training.lora_rank={rank} to train all weights."
        )
    head = model.output_dense if isinstance(model, ClassifierModel) else None
    adapted = [layer for layer in layers if hasattr(layer, "enable_lora") and layer is not head]
    adapted = [layer for layer in adapted if _smaller_side(layer) > 1]
    narrowest = min(adapted, key=_smaller_side)
    if rank >= _smaller_side(narrowest):
        raise InputError(
            "training.lora_rank must be below the smaller side of each matrix, which is "
            f"{_smaller_side(narrowest)} for {_matrix(narrowest).path}. Received: training.lora_rank={rank}."
        )
    trained = {id(variable) for variable in head.weights} if head is not None else set()
    frozen = [variable for variable in model.trainable_variables if id(variable) not in trained]
    num_adapted = sum(math.prod(_matrix(layer).shape) for layer in adapted)
    num_others = sum(math.prod(variable.shape) for variable in frozen) - num_adapted
    for layer in adapted:
        layer.enable_lora(rank)
    for variable in frozen:
        variable.trainable = False
    print(
        f"LoRA of rank {rank} for {len(adapted)} matrices of {num_adapted:,} weights; {num_others:,} other weights "
        "are not trained",
        file=sys.stderr,
    )


def copy_weights(model: keras.Model, plain: keras.Model) -> None:
    """Copies the weights of a trained model into a new one with the same options, with LoRA merged into them."""
    if not any(getattr(layer, "lora_enabled", False) for layer in model._flatten_layers()):
        plain.set_weights(model.get_weights())
        return
    for source, target in zip(model._flatten_layers(), plain._flatten_layers(), strict=True):
        # Keras merges LoRA into the saved variables of a layer.
        values: dict[str, Any] = {}
        source.save_own_variables(values)
        target.load_own_variables(values)
