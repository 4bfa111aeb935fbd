"""Prepares a resolved run for training: its tokenizers, and the settings that depend on the data."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from training.config.class_weights import class_weights
from training.config.initial_run import open_workdir
from training.config.resolve import TrainingRun
from training.config.run_config import RunConfig
from training.config.vocabularies import Tokenizers
from training.data import Dataset
from training.data.fingerprint import check_unchanged, save_fingerprint
from training.hardware.choice import Hardware
from training.loop.progress import taking_long
from training.tasks import Task, get_task
from zoo.errors import InputError
from zoo.text import load_tokenizers
from zoo.workdir import WorkDir


@dataclass(frozen=True)
class PreparedRun:
    """A run with its data, tokenizers and hardware; its configuration is complete."""

    config: RunConfig
    hardware: Hardware
    task: Task[Any]
    data: Dataset[Any]
    tokenizers: Tokenizers
    class_weights: Sequence[float] | None = None  # of each class of a classifier, if they differ

    def with_precision(self, precision: str) -> Self:
        """Returns the run with another precision."""
        training = dataclasses.replace(self.config.training, precision=precision)
        config = dataclasses.replace(self.config, training=training)
        return dataclasses.replace(
            self, config=config, hardware=dataclasses.replace(self.hardware, precision=precision)
        )


def prepare(workdir: WorkDir, run: TrainingRun, hardware: Hardware) -> PreparedRun:
    """Returns a run with its data and tokenizers.

    A new run trains and saves its tokenizers, or copies those of the initial run or of its token shards.

    Raises:
        InputError: If the data are invalid or too few for a vocabulary, or the work directory is damaged.
    """
    config, data = run.config, run.data or run.config.open_data()
    task = get_task(config.spec.task)
    reading = taking_long(f"reading {config.data.spec}")
    if run.begun:
        if task.name == "classifier" and not config.data.classes:
            raise InputError(f"{workdir.config} is damaged: data.classes is missing.")
        with reading:
            check_unchanged(workdir, data, run.accepts_changed_data)
        tokenizers = load_tokenizers(workdir, task.tokenizer_names, config.model)
        return PreparedRun(config, hardware, task, data, tokenizers, _class_weights(config, data))
    with reading:
        data.check()
    if config.training.init_from:
        initial = open_workdir(config.training.init_from)
        tokenizers = load_tokenizers(initial, task.tokenizer_names, initial.read_config()["model"])
        _check_shards(data, tokenizers, config.training.init_from)
    elif data.shards is not None:
        tokenizers = data.shards.tokenizers()
    else:
        with taking_long("making the tokenizers"):
            tokenizers = task.make_tokenizers(task.settle(config.data, data), data)
    config = complete(config, task, data, tokenizers)
    weights = _class_weights(config, data)
    save_fingerprint(workdir, data)
    for name, tokenizer in tokenizers.items():
        tokenizer.save(workdir.tokenizer(name), workdir.replacing)
    training = dataclasses.replace(config.training, precision=hardware.precision, cores=hardware.cores)
    return PreparedRun(dataclasses.replace(config, training=training), hardware, task, data, tokenizers, weights)


def _class_weights(config: RunConfig, data: Dataset[Any]) -> list[float] | None:
    """Returns the weight of each class; raises InputError for a class that is not in the data."""
    if config.spec.task != "classifier":
        return None
    return class_weights(config.training.class_weights, config.data.classes or (), data.split("train").labels)


def _check_shards(data: Dataset[Any], tokenizers: Tokenizers, initial: str) -> None:
    """Raises InputError if data are token shards of other tokenizers than those of the initial run."""
    if data.shards is not None and not data.shards.fit(tokenizers, data.shards.manifest.classes):
        raise InputError(f"{data.spec} was not prepared with the tokenizers of training.init_from={initial}.")


def complete(config: RunConfig, task: Task[Any], data: Dataset[Any], tokenizers: Tokenizers) -> RunConfig:
    """Returns a configuration with the settings that depend on the data, such as the sizes of vocabularies."""
    settled = dataclasses.replace(config, data=task.settle(config.data, data))
    return settled.with_model(**task.model_options(settled.model, settled.data, tokenizers))
