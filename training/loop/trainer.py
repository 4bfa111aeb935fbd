"""The training loop: trains a resolved run by Keras' `fit`, and writes it to a work directory."""

import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

import zoo
from training.config.options import DataConfig, TrainingConfig
from training.config.recipes import recipe
from training.config.resolve import TrainingRun, check_vacant
from training.config.run_config import RunConfig
from training.data.batching import Batches
from training.data.fingerprint import USED, identify
from training.hardware.choice import choose_hardware
from training.hardware.devices import build_compiled, spread_over
from training.hardware.peaks import tokens_per_second_at_peak
from training.hardware.precision import without_rewriting
from training.hardware.processes import ALONE, Processes, backend_versions
from training.loop.access import locked, only_chief_writes
from training.loop.build import BuiltRun, build, save_model
from training.loop.callbacks import Averages, Callbacks, Checkpoints, Stop
from training.loop.checkpoint_files import checkpoint_path, list_checkpoints, set_damaged_aside, step_of
from training.loop.checkpoints import CheckpointWriter, load_average, restore_checkpoint
from training.loop.failures import explained
from training.loop.feed import TrainingFeed, ValidationFeed
from training.loop.model_card import model_card
from training.loop.observers import Observer
from training.loop.prepare import PreparedRun, prepare
from training.loop.profiling import Profile
from training.loop.progress import Progress, announce, taking_long
from training.loop.state import RunState, append_to_log, cut_log, final_metrics
from training.optimization.optimizer import make_schedule
from zoo.errors import InputError
from zoo.runtime.signals import holding_signals
from zoo.workdir import WorkDir


def train(
    workdir: WorkDir,
    run: TrainingRun,
    profile: bool = False,
    processes: Processes = ALONE,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> dict[str, Any]:
    """Trains a model, writes it to a work directory and returns the validation metrics of the saved model.

    Args:
        workdir: The work directory.
        run: The run to train.
        profile: Whether some batches are traced for TensorBoard's profiler.
        processes: The processes of the training, which all call this; only the chief writes, logs and runs callbacks.
        callbacks: Callbacks of the user, which only observe the run.

    Raises:
        InputError: For invalid data, a directory that contains another run or that another training process is using,
            or a process that differs from the others.
        RunStopped: If the run was interrupted, its loss is not finite, or memory or disk is exhausted.
    """
    with only_chief_writes(workdir, processes) as workdir:
        run = _equal_run(run, processes)
        with locked(workdir):
            if metrics := _begin(workdir, run, processes):
                print(f"{workdir.path} is already trained", file=sys.stderr)
                return metrics
            with explained(workdir):
                prepared = prepare(workdir, run, choose_hardware(run.config.training, processes))
                with spread_over(prepared.hardware.devices, prepared.hardware.mesh):
                    built = build(prepared, begun=bool(list_checkpoints(workdir.checkpoints)))
                    state = _restore(workdir, built)
                    observers = [Profile(workdir.tensorboard)] if profile else []
                    observers += [Observer(callback) for callback in callbacks if processes.is_chief]
                    fit(workdir, built, state, observers)
                    processes.wait("checkpoints are written")
                    return finish(workdir, built, state)


def _equal_run(run: TrainingRun, processes: Processes) -> TrainingRun:
    """Returns a run with its data opened; raises InputError if versions, settings or data differ between processes."""
    if processes.count == 1:
        return run
    versions = {"attention-zoo": zoo.__version__, "keras": keras.version(), **backend_versions()}
    processes.assert_equal({f"the version of {name}": version for name, version in versions.items()})
    settings = {
        f"{section}.{key}": value
        for section, values in run.config.to_dict().items()
        for key, value in (values.items() if isinstance(values, dict) else [("", values)])
    }
    processes.assert_equal({"--resume": run.begun, **settings})
    data = run.data or run.config.open_data()
    with taking_long(f"reading {run.config.data.spec}"):
        for name in USED:
            split = data.split(name)
            examples = f"{len(split):,} examples with the hash {identify(split)[:12]}"
            processes.assert_equal({f"the data, {name}": examples})
    return dataclasses.replace(run, data=data)


def _begin(workdir: WorkDir, run: TrainingRun, processes: Processes) -> dict[str, Any] | None:
    """Makes a work directory ready for a run; returns the metrics if the run has finished and its files are intact."""
    workdir.remove_leftovers()
    if not run.begun:
        check_vacant(workdir)
        return None
    if processes.is_chief:
        set_damaged_aside(workdir.checkpoints)
    processes.wait("checkpoints are complete")
    changes = "".join(f", but {key}={value}" for key, value in run.changes.items())
    print(f"resuming with the original settings of the run{changes}", file=sys.stderr)
    metrics = None if run.changes else final_metrics(workdir)
    return metrics if metrics and _is_intact(workdir) else None


def _is_intact(workdir: WorkDir) -> bool:
    """Returns whether the files of a finished run are undamaged; otherwise reports that the model is written again.

    Raises:
        InputError: If they are damaged and cannot be restored from checkpoints.
    """
    workdir.check("tokenizers")
    try:
        workdir.check_model()
    except InputError as error:
        if not list_checkpoints(workdir.checkpoints):
            raise InputError(f"{error} There are no checkpoints to restore it from.") from None
        print(f"{error} It is restored from the checkpoints", file=sys.stderr)
        return False
    return True


def _restore(workdir: WorkDir, built: BuiltRun) -> RunState:
    """Writes the configuration, and restores variables and state from the last checkpoint, if there is one."""
    # Written after all checks of data and options, since a directory with a configuration counts as a run.
    workdir.write_text(workdir.config, built.run.config.to_json())
    _announce_run(built.run, built.model)
    checkpoints = list_checkpoints(workdir.checkpoints)
    state = RunState(**restore_checkpoint(checkpoints[-1], built.model)) if checkpoints else RunState()
    # A run that was killed may have logged a round whose checkpoint it did not write.
    cut_log(workdir, step_of(checkpoints[-1]) if checkpoints else 0)
    if checkpoints:
        announce(f"resuming from {checkpoints[-1].name}")
    state.validate_on(identify(built.run.data.split("val")))
    return state


def _announce_run(run: PreparedRun, model: keras.Model) -> None:
    """Describes the model, the data and the devices on standard error."""
    sizes = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in run.tokenizers.values())
    parameters = f"{model.count_params():,} parameters"
    if run.config.training.lora_rank:
        trained = sum(math.prod(variable.shape) for variable in model.trainable_variables)
        parameters += f", {trained:,} of them trained"
    devices = f", {len(run.hardware.devices)} devices" if len(run.hardware.devices) > 1 else ""
    if run.config.training.mesh:
        devices += f" ({run.hardware.mesh})"
    if (count := run.hardware.processes.count) > 1:
        devices += f" of {count} processes"
    announce(
        f"{run.config.spec.name} on {run.config.data.spec}: {parameters}, {sizes} tokens, {keras.backend.backend()}, "
        f"{model.dtype_policy.name}{devices}"
    )
    if chosen := _chosen_settings(run.config):
        announce(f"with {', '.join(chosen)}")


def _chosen_settings(config: RunConfig) -> list[str]:
    """Returns `model.normalize_first`, if the model has it, and the settings that the recipe changed."""
    values = config.to_dict()
    defaults = {"model": config.spec.config, "data": DataConfig.declared(), "training": TrainingConfig.declared()}
    chosen = {f"model.{key}": value for key, value in values["model"].items() if key == "normalize_first"}
    for section, settings in recipe(config.spec.name, config.data.spec, config.model).items():
        for key, value in settings.items():
            default = defaults[section][key]
            if value == values[section][key] and value != getattr(default, "default", default):
                chosen[f"{section}.{key}"] = value
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in chosen.items()]


def fit(workdir: WorkDir, built: BuiltRun, state: RunState, observers: Sequence[Any] = ()) -> None:
    """Trains from `state`, which is updated in place, until the last step or early stopping."""
    settings, hardware, model, batches = built.run.config.training, built.run.hardware, built.model, built.batches
    if state.has_stalled(settings.patience) or state.rounds >= settings.num_rounds:
        return  # The run was killed after its last round.
    rounds = state.rounds + 1 if state.batches else settings.num_rounds  # first the rest of an unfinished round
    batches.skip = state.batches
    schedule, accumulated = make_schedule(settings), settings.accumulate_steps
    done = state.rounds * settings.eval_every + state.batches // accumulated
    at_peak = tokens_per_second_at_peak(model, batches, hardware)
    steps = (settings.total_steps, done, accumulated)
    compiled = model.train_function is not None
    progress = Progress(*steps, schedule, batches.tokens, len(built.validation), state.best, at_peak, compiled)
    keep = max(settings.average_checkpoints, 1)
    writer = CheckpointWriter(workdir, hardware.orbax)
    checkpoints = Checkpoints(workdir, state, settings.eval_every, keep, settings.patience, writer)
    closing: list[Any] = [progress, checkpoints, *observers]
    averages = [Averages()] if settings.ema else []
    build_compiled(model, batches.batch_of(0)[0])
    training_feed, validation_feed = TrainingFeed(batches), ValidationFeed(built.validation)
    try:
        with without_rewriting(), holding_signals() as hold:
            stop = Stop(hardware.processes, state, settings.eval_every, accumulated, writer, progress.settle, hold)
            model.fit(
                training_feed.dataset,
                validation_data=validation_feed.dataset,
                epochs=rounds,
                initial_epoch=state.rounds,
                callbacks=Callbacks(
                    [training_feed, validation_feed, *averages, *closing, stop], add_history=True, model=model
                ),
                verbose=0,
                shuffle=False,
            )
    finally:
        for callback in closing:
            callback.close()
    if batches.skip and not state.has_stalled(settings.patience):
        fit(workdir, built, state, observers)
    elif state.has_stalled(settings.patience):
        announce(f"stopped early: no better validation for {settings.patience} rounds")


def finish(workdir: WorkDir, built: BuiltRun, state: RunState) -> dict[str, Any]:
    """Writes the final model and its card, and returns its validation metrics, the last line of the log."""
    run, settings = built.run, built.run.config.training
    final: dict[str, Any] = set_final_weights(workdir, settings, built.model, built.validation, state)
    num_tokens = sum(built.validation.tokens.values())
    final |= run.task.derived(final["cross_entropy"], num_tokens, run.data.split("val"))
    save_model(workdir, run.config, built.model)
    workdir.write_text(workdir.model_card, model_card(run, built.model, state, final))
    metrics = {"final": True, "step": state.rounds * settings.eval_every, **final}
    # Written last, since a run with this line counts as finished.
    append_to_log(workdir, metrics)
    return metrics


def set_final_weights(
    workdir: WorkDir, settings: TrainingConfig, model: keras.Model, validation: Batches, state: RunState
) -> dict[str, float]:
    """Sets the final weights and returns their validation metrics.

    They are the mean over the last checkpoints, or those of the best checkpoint if its validation is better.
    """
    feed = ValidationFeed(validation)

    def validate(checkpoints: list[Path]) -> Any:
        load_average(checkpoints, model)
        return model.evaluate(feed.dataset, callbacks=[feed], verbose=0, return_dict=True)

    checkpoints = [path for path in list_checkpoints(workdir.checkpoints) if step_of(path) % settings.eval_every == 0]
    last = checkpoints[-settings.average_checkpoints :]
    announce(f"validating the mean of the last {len(last)} checkpoints")
    metrics = validate(last)
    best = checkpoint_path(workdir.checkpoints, state.best_round * settings.eval_every)
    if metrics["cross_entropy"] > state.best and best.exists():  # It may have been damaged.
        metrics = validate([best])
    return {name: float(value) for name, value in metrics.items()}
