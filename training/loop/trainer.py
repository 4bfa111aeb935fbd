"""The training loop: from a configuration to a work directory, over Keras `fit`."""

import json
import math
import random
import sys
from typing import Any

import keras

from training.config.origin import origin_of
from training.config.resume import take_over
from training.config.run_config import Config, TrainingConfig
from training.data import Dataset, load_data
from training.data.batching import Batches, for_fit
from training.hardware.cores import choose_cores, share_batches, use_cores
from training.hardware.devices import EvenBatches, choose_devices, spread_over
from training.hardware.precision import dtype_policy, use_xla, without_rewriting
from training.loop.callbacks import Averages, Checkpoints, Progress, Rounds, RunState, read_log, stopped_early
from training.loop.checkpoints import (
    checkpoint_path,
    list_checkpoints,
    load_average,
    restore_checkpoint,
    set_damaged_aside,
    step_of,
)
from training.loop.failures import explained
from training.loop.lock import check_vacant, locked
from training.loop.profiling import Profile
from training.model_card import model_card
from training.optimization.fine_tuning import add_lora, copy_weights, start_from
from training.optimization.losses import SmoothedCrossEntropy, TokenCrossEntropy, average_over_steps
from training.optimization.optimizer import exclude_from_decay, make_optimizer, make_schedule
from training.tasks import Task, get_task
from training.tasks.task import Tokenizers
from zoo.errors import InputError
from zoo.registry import create_model, get_spec
from zoo.text import load_tokenizer
from zoo.workdir import WorkDir, replacing


def prepare(workdir: WorkDir, config: Config, data: Dataset, task: Task) -> Tokenizers:
    """Starts a work directory: trains and saves the tokenizers, completes the configuration.

    Args:
        workdir: The work directory.
        config: The configuration, completed in place.
        data: The data.
        task: The task.

    Raises:
        InputError: If the data do not suffice for a vocabulary.
    """
    if config.training.init_from:
        tokenizers = _load_tokenizers(origin_of(config.training.init_from), task)
    else:
        tokenizers = task.make_tokenizers(config.data, data)
    task.complete(config, data, tokenizers)
    config.training.precision = dtype_policy(config.training.precision)
    config.training.cores = choose_cores(config.training)
    for name, tokenizer in tokenizers.items():
        tokenizer.save(workdir.tokenizer(name))
    return tokenizers


def _load_tokenizers(workdir: WorkDir, task: Task) -> Tokenizers:
    names = ("source", "target") if task.name == "seq2seq" else ("text",)
    return {name: load_tokenizer(workdir.tokenizer(name)) for name in names}


def num_rounds(settings: TrainingConfig) -> int:
    """Returns how many rounds hold the steps of a run."""
    return math.ceil(settings.max_steps / settings.eval_every)


def total_steps(settings: TrainingConfig) -> int:
    """Returns the number of steps in a run."""
    return num_rounds(settings) * settings.eval_every


def compile_model(config: Config, num_devices: int = 1, begun: bool = False) -> keras.Model:
    """Returns the model of a configuration with its optimizer and loss.

    Args:
        config: The complete configuration.
        num_devices: Devices that each batch is spread over.
        begun: Whether its weights will come from a checkpoint of this run.
    """
    settings, options = config.training, {key: value for key, value in config.model.items() if key != "name"}
    model = create_model(config.model["name"], dtype=dtype_policy(settings.precision), **options)
    if settings.init_from and not begun:
        start_from(settings.init_from, model, config)
    if settings.lora_rank:
        add_lora(model, settings.lora_rank)
    metrics = [TokenCrossEntropy(), *get_task(get_spec(config.model["name"]).task).metrics()]
    model.compile(
        optimizer=make_optimizer(settings, total_steps(settings), num_devices),
        loss=SmoothedCrossEntropy(settings.label_smoothing),
        weighted_metrics=metrics,
        jit_compile=use_xla(settings.jit),
    )
    average_over_steps(model)
    share_batches(model, metrics, choose_cores(settings))
    if settings.weight_decay:
        exclude_from_decay(model)
    # Else Keras makes its variables while it traces the first step, and then traces that step again.
    model.optimizer.build(model.trainable_variables)
    return model


def fit(
    workdir: WorkDir,
    config: Config,
    model: keras.Model,
    batches: Batches,
    validation: Batches,
    state: RunState,
    profile: bool = False,
):
    """Trains until the last step or the early stop, from where `state` says.

    Args:
        workdir: The work directory.
        config: The complete configuration.
        model: The compiled model.
        batches: Training batches.
        validation: Validation batches.
        state: The run's state, updated in place.
        profile: Whether to trace some of the batches.
    """
    settings = config.training
    rounds = num_rounds(settings)
    if stopped_early(state, settings.patience) or state.rounds >= rounds:
        return  # A run that was killed behind its last round.
    done = state.rounds * settings.eval_every
    schedule = make_schedule(settings, total_steps(settings))
    progress = Progress(total_steps(settings), done, settings.accumulate_steps, schedule, batches.symbols)
    keep = max(settings.average_checkpoints, 1)
    checkpoints = Checkpoints(workdir, state, settings.eval_every, keep, settings.patience)
    closing: list[Any] = [progress, checkpoints, *([Profile(workdir.tensorboard)] if profile else [])]
    averages = [Averages()] if settings.ema else []
    try:
        with without_rewriting():
            model.fit(
                for_fit(batches),
                validation_data=for_fit(validation),
                epochs=rounds,
                initial_epoch=state.rounds,
                callbacks=[Rounds(batches), *averages, *closing],
                verbose=0,
                shuffle=False,
            )
    finally:
        for callback in closing:
            callback.close()


def finish(
    workdir: WorkDir, config: Config, model: keras.Model, validation: Batches, state: RunState
) -> dict[str, float]:
    """Sets the final weights and returns their validation metrics.

    They are the mean over the last checkpoints, or those of the best checkpoint where it validates better.

    Args:
        workdir: The work directory.
        config: The complete configuration.
        model: The trained model.
        validation: Validation batches.
        state: The run's state.
    """

    def validated(paths):
        load_average(paths, model)
        return model.evaluate(for_fit(validation), verbose=0, return_dict=True)

    metrics = validated(list_checkpoints(workdir.checkpoints)[-config.training.average_checkpoints :])
    best = checkpoint_path(workdir.checkpoints, state.best_round * config.training.eval_every)
    if metrics["cross_entropy"] > state.best and best.exists():  # It may have been damaged.
        metrics = validated([best])
    return {name: float(value) for name, value in metrics.items()}


def save_model(workdir: WorkDir, config: Config, model: keras.Model) -> None:
    """Writes `model.keras`.

    Args:
        workdir: The work directory.
        config: The complete configuration.
        model: The model with its final weights.
    """
    options = {key: value for key, value in config.model.items() if key != "name"}
    # Precision is a matter of training; what is kept, evaluated and exported is float32.
    final = create_model(config.model["name"], dtype="float32", **options)
    copy_weights(model, final)
    with replacing(workdir.model) as temporary:
        final.save(temporary)


def _open(workdir: WorkDir, config: Config, resume: bool) -> tuple[Config, dict[str, Any]]:
    """Returns the configuration of a new or resumed run, and what a resumed one changes in its own."""
    if not resume:
        check_vacant(workdir)
    if not workdir.config.exists():
        return config, {}
    kept = Config.from_dict(workdir.read_config())
    set_damaged_aside(workdir.checkpoints)
    checkpoints = list_checkpoints(workdir.checkpoints)
    changes = take_over(kept, config, step_of(checkpoints[-1]) if checkpoints else 0, str(workdir.path))
    changed = "".join(f", but {key}={value}" for key, value in changes.items())
    print(f"resuming with the settings that the run was begun with{changed}", file=sys.stderr)
    return kept, changes


def _load(workdir: WorkDir, config: Config, task: Task) -> tuple[Dataset, Tokenizers]:
    """Returns data and tokenizers of a new or resumed run."""
    data = load_data(config.data.spec, max_examples=config.data.max_examples, check_task=config.check_data)
    if workdir.config.exists():
        if task.name == "classifier" and not config.data.classes:
            raise InputError(f"{workdir.config} is damaged: the configuration of a begun classifier has data.classes.")
        return data, _load_tokenizers(workdir, task)
    data.check()
    return data, prepare(workdir, config, data, task)


def _restore(workdir: WorkDir, model: keras.Model) -> RunState:
    """Returns the state of the last checkpoint, with the model's variables set from it; a new state without one."""
    found = list_checkpoints(workdir.checkpoints)
    state = RunState(**restore_checkpoint(found[-1], model)) if found else RunState()
    if workdir.metrics.exists():
        # A run that was killed may have logged a round whose checkpoint it did not write.
        last = step_of(found[-1]) if found else 0
        records = [record for record in read_log(workdir) if record["step"] <= last and not record.get("final")]
        workdir.write_text(workdir.metrics, "".join(f"{json.dumps(record)}\n" for record in records))
    if found:
        print(f"resuming from {found[-1].name}", file=sys.stderr)
    return state


def _final_metrics(workdir: WorkDir) -> dict[str, Any] | None:
    """Returns the metrics of a finished run, the last line of its log; `None` for another run."""
    records = read_log(workdir)
    return records[-1] if workdir.model.exists() and records and records[-1].get("final") else None


def train(workdir: WorkDir, config: Config, resume: bool = False, profile: bool = False) -> dict[str, Any]:
    """Trains a model into a work directory and returns the validation metrics of what is kept.

    Args:
        workdir: The work directory.
        config: What to train, from `training.config.run_config.resolve`. A resumed run keeps the configuration that it
            was begun with, but for the settings that were asked for by name and may change; see
            `training.config.resume`.
        resume: Whether to go on with the run that the directory holds.
        profile: Whether to trace some batches for TensorBoard's profiler.

    Raises:
        InputError: For bad data, a directory that holds a run and `resume` is not set, or one that another process is
            training into.
        RunStopped: If the run was interrupted, its loss was lost, or memory or disk are full.
    """
    with locked(workdir):
        return _train_alone(workdir, config, resume, profile)


def _train_alone(workdir, config, resume, profile):
    config, changes = _open(workdir, config, resume)
    if not changes and (metrics := _final_metrics(workdir)):
        print(f"{workdir.path} is trained already", file=sys.stderr)
        return metrics
    with explained(workdir):
        task = get_task(get_spec(config.model["name"]).task)
        use_cores(choose_cores(config.training))
        devices = choose_devices(config.training)
        data, tokenizers = _load(workdir, config, task)
        with spread_over(devices):
            return _train(workdir, config, task, data, tokenizers, len(devices), profile)


def _train(workdir, config, task, data, tokenizers, num_devices, profile):
    # All of Keras' seeds are drawn from here. `keras.utils.set_random_seed` would import TensorFlow on every backend.
    random.seed(config.training.seed)
    model = compile_model(config, num_devices, begun=bool(list_checkpoints(workdir.checkpoints)))
    # Behind all that can be wrong with data and options, because a directory with a configuration counts as a run.
    workdir.write_text(workdir.config, config.to_json())
    _introduce(config, model, tokenizers, num_devices)
    state = _restore(workdir, model)
    batches, validation = _batches(config, task, data, tokenizers, num_devices, model.jit_compile)
    fit(workdir, config, model, batches, validation, state, profile)
    found = finish(workdir, config, model, validation, state)
    found |= task.derived(found["cross_entropy"], sum(validation.symbols.values()), data.split("val"))
    save_model(workdir, config, model)
    card = model_card(config, data, task, tokenizers, model, state, found)
    workdir.write_text(workdir.model_card, card)
    metrics = {"final": True, "step": state.rounds * config.training.eval_every, **found}
    # Last, because with this line the run counts as finished.
    with workdir.metrics.open("a", encoding="utf-8") as file:
        file.write(json.dumps(metrics) + "\n")
    return metrics


def _batches(config, task, data, tokenizers, num_devices, static_shapes):
    """Returns the batches of training and of validation."""
    settings = config.training
    shapes = {"batch_tokens": settings.batch_tokens, "static_shapes": static_shapes}
    rounds = {"steps": settings.eval_every * settings.accumulate_steps, "seed": settings.seed}
    both = (
        task.batches(config, data, "train", tokenizers, **shapes, **rounds),
        task.batches(config, data, "val", tokenizers, **shapes),
    )
    parts = max(num_devices, choose_cores(settings))
    return both if parts < 2 else tuple(EvenBatches(batches, parts) for batches in both)


def _introduce(config, model, tokenizers, num_devices):
    """Says on standard error what is trained."""
    sizes = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in tokenizers.values())
    parameters = f"{model.count_params():,} parameters"
    if config.training.lora_rank:
        trained = sum(math.prod(variable.shape) for variable in model.trainable_variables)
        parameters += f", {trained:,} of them trained"
    devices = f", {num_devices} devices" if num_devices > 1 else ""
    print(
        f"{config.model['name']} on {config.data.spec}: {parameters}, {sizes} symbols, "
        f"{keras.backend.backend()}, {model.dtype_policy.name}{devices}",
        file=sys.stderr,
    )
