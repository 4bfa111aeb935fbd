"""The run whose weights a new run begins from: which of its settings the new run keeps."""

from training.config.run_config import RunConfig
from training.config.settings import AUTOMATIC, Settings
from training.config.vocabularies import VOCABULARY_SETTINGS
from zoo.errors import InputError
from zoo.presets import workdir_path
from zoo.registry import ModelSpec, get_spec
from zoo.workdir import WorkDir

# What its tokenizers were made with, and the length they were trained at.
_DATA_SETTINGS = (*VOCABULARY_SETTINGS, "max_length")


def open_workdir(name: str) -> WorkDir:
    """Returns a work directory by its path or the name of a preset; raises InputError if there is no such preset."""
    return WorkDir(workdir_path(name))


def spec_of(name: str) -> ModelSpec:
    """Returns the specification of the model in a work directory, by its path or the name of a preset.

    Raises:
        InputError: If it is no work directory or a damaged one, or there is no such preset.
    """
    return get_spec(open_workdir(name).read_config()["model"]["name"])


def inherited_settings(name: str, spec: ModelSpec) -> Settings:
    """Returns the settings of model and tokenizers that a trained run passes on to one of the model `spec`.

    Raises:
        InputError: If it is no work directory or a damaged one, its training has not finished, or its model is another.
    """
    workdir = open_workdir(name)
    config = RunConfig.of_workdir(workdir)
    if not workdir.model.is_file():
        raise InputError(f"{name} has no {workdir.model.name}: its training has not finished (see --resume).")
    if config.spec.name != spec.name and not _is_encoder_of(config, spec):
        raise InputError(f"{name} holds a {config.spec.name} to begin from. Received: {spec.name}.")
    return {
        "model": {key: config.model[key] for key in spec.config},
        "data": {key: getattr(config.data, key) for key in _DATA_SETTINGS},
    }


def _is_encoder_of(config: RunConfig, spec: ModelSpec) -> bool:
    """Returns whether a run is of a sentence encoder from which a classifier can begin: it has all its options."""
    tasks = config.spec.task, spec.task
    return tasks == ("sentence_encoder", "classifier") and set(spec.config) <= set(config.model)


def may_differ(section: str, key: str) -> bool:
    """Returns whether a setting may differ from that of the initial run."""
    # Dropout has no weights, and the examples may be others, or cut elsewhere.
    return (
        section == "training"
        or (section == "model" and key.endswith("dropout"))
        or (section == "data" and key in ("max_length", "max_examples"))
    )


def check_inherited(name: str, inherited: Settings, requested: Settings) -> None:
    """Raises InputError if something was asked for that the weights and tokenizers of the initial run cannot follow.

    `inherited` comes from `inherited_settings`.
    """
    for section, settings in inherited.items():
        for key, value in settings.items():
            asked = requested[section].get(key, value)
            # What is automatic follows.
            if asked != value and asked not in AUTOMATIC and not may_differ(section, key):
                raise InputError(
                    f"{name} was trained with {section}.{key}={value}, which a run that begins from it keeps. "
                    f"Received: {section}.{key}={asked}."
                )
