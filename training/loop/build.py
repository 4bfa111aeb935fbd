"""Builds the compiled model and the batches of a run, and saves its final model."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import keras

from training.config.run_config import RunConfig
from training.data.batching import Batches
from training.hardware.choice import Hardware
from training.hardware.cores import share_batches
from training.hardware.devices import on_one_device
from training.hardware.processes import bring_home
from training.loop.precision import settle_precision
from training.loop.prepare import PreparedRun
from training.loop.progress import taking_long
from training.optimization.class_weights import weigh_classes
from training.optimization.consistency import regularise, repeat_rows, rows_together
from training.optimization.cross_entropy import MeanOverTokens, TokenCrossEntropy, average_over_steps
from training.optimization.fine_tuning import add_lora, copy_weights, start_from
from training.optimization.guided_alignment import guide
from training.optimization.losses import get_loss
from training.optimization.optimizer import accumulate_over_tokens, exclude_from_decay, make_optimizer
from training.optimization.rematerialization import rematerialize
from training.tasks import get_task
from zoo.registry import create_model
from zoo.workdir import WorkDir


@dataclass(frozen=True)
class BuiltRun:
    """A prepared run with its precision, its compiled model and its batches."""

    run: PreparedRun
    model: keras.Model
    batches: Batches
    validation: Batches


def build(run: PreparedRun, begun: bool) -> BuiltRun:
    """Returns a run with its batches and its model; see `compile_model` for `begun`."""
    with taking_long(f"encoding {len(run.data.split('train')):,} {run.task.unit} to train on"):
        batches, validation = make_batches(run)
    run = settle_precision(run, batches)
    # Keras draws all its seeds from `random`. `keras.utils.set_random_seed` would import TensorFlow on every backend.
    random.seed(run.config.training.seed)
    model = compile_model(run.config, run.hardware, begun, run.class_weights)
    return BuiltRun(run, model, batches, validation)


def compile_model(
    config: RunConfig, hardware: Hardware, begun: bool = False, class_weights: Sequence[float] | None = None
) -> keras.Model:
    """Returns the model of a configuration with its optimizer and loss.

    If the run has `begun`, its weights are restored from a checkpoint later, and not read from the initial run. The
    loss of a classifier is weighted by `class_weights`, if there are any.
    """
    settings = config.training
    model = create_model(config.spec.name, dtype=hardware.precision, **config.model)
    if settings.init_from and not begun:
        start_from(settings.init_from, model, config.data.classes)
    if settings.lora_rank:
        add_lora(model, settings.lora_rank)
    if settings.remat:
        rematerialize(model)
    metrics = [TokenCrossEntropy(), *get_task(config.spec.task).metrics()]
    model.compile(
        optimizer=make_optimizer(settings, len(hardware.devices), model),
        loss=MeanOverTokens(get_loss(settings.loss), settings.label_smoothing),
        weighted_metrics=metrics,
        jit_compile=hardware.jit,
    )
    average_over_steps(model)
    if class_weights is not None:
        weigh_classes(model, get_loss(settings.loss), settings.label_smoothing, class_weights)
    if config.data.alignments:
        guide(model, settings.guided_alignment)
    regularise(model, settings)
    share_batches(model, metrics, hardware.cores, rows_together(settings))
    repeat_rows(model, settings)
    accumulate_over_tokens(model)
    if settings.weight_decay:
        exclude_from_decay(model)
    # Otherwise Keras creates its variables while tracing the first step, and then traces that step again.
    model.optimizer.build(model.trainable_variables)
    return model


def make_batches(run: PreparedRun) -> tuple[Batches, Batches]:
    """Returns the batches of training and of validation, padded to a few shapes if XLA compiles each shape."""
    settings = run.config.training
    shapes = {
        "batch_tokens": settings.batch_tokens,
        "static_shapes": run.hardware.jit,
        "share": run.hardware.share,
    }
    rounds = {"steps": settings.eval_every * settings.accumulate_steps, "seed": settings.seed}
    training = run.task.batches(run.config.data, run.data, "train", run.tokenizers, **shapes, **rounds)
    validation = run.task.batches(run.config.data, run.data, "val", run.tokenizers, **shapes)
    return training, validation


def save_model(workdir: WorkDir, config: RunConfig, model: keras.Model) -> None:
    """Writes `model.keras`; with several processes, only the chief writes it, with the weights of all of them."""
    bring_home(model)
    if not workdir.writes:
        return
    with on_one_device():
        # The precision is for training only; the saved model is float32.
        final = create_model(config.spec.name, dtype="float32", **config.model)
        copy_weights(model, final)
        with workdir.replacing(workdir.model) as temporary:
            final.save(temporary)
