"""Settings that a new run inherits from the run whose weights it begins from."""

from training.config.run_config import RunConfig
from training.config.settings import AUTOMATIC, Settings
from training.config.vocabularies import VOCABULARY_SETTINGS
from zoo.errors import InputError
from zoo.presets import workdir_path
from zoo.registry import ModelSpec, get_spec
from zoo.workdir import WorkDir

# The settings with which tokenizers are made, and the length at which the model was trained.
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
    """Returns the settings of model and tokenizers that a run of the model `spec` inherits from a trained run.

    Raises:
        InputError: If it is no work directory or a damaged one, its training has not finished, or its model differs.
    """
    workdir = open_workdir(name)
    config = RunConfig.of_workdir(workdir)
    if not workdir.model.is_file():
        raise InputError(f"{name} has no {workdir.model.name}: its training has not finished (see --resume).")
    if config.spec.name != spec.name and not _is_encoder_of(config, spec):
        raise InputError(f"{name} contains a {config.spec.name}, not the model to train. Received: {spec.name}.")
    return {
        "model": {key: config.model[key] for key in spec.config},
        "data": {key: getattr(config.data, key) for key in _DATA_SETTINGS},
    }


def _is_encoder_of(config: RunConfig, spec: ModelSpec) -> bool:
    """Returns whether a run is a sentence encoder that has all options of the classifier `spec`."""
    tasks = config.spec.task, spec.task
    return tasks == ("sentence_encoder", "classifier") and set(spec.config) <= set(config.model)


def may_differ(section: str, key: str) -> bool:
    """Returns whether a setting may differ from that of the initial run."""
    # Dropout has no weights, and the run may have other examples, or cut them at another length.
    return (
        section == "training"
        or (section == "model" and key.endswith("dropout"))
        or (section == "data" and key in ("max_length", "max_examples"))
    )


def check_inherited(name: str, inherited: Settings, requested: Settings) -> None:
    """Raises InputError if a requested setting is incompatible with the weights and tokenizers of the initial run.

    `inherited` comes from `inherited_settings`.
    """
    for section, settings in inherited.items():
        for key, value in settings.items():
            requested_value = requested[section].get(key, value)
            # Automatic settings take the inherited value.
            if requested_value != value and requested_value not in AUTOMATIC and not may_differ(section, key):
                raise InputError(
                    f"{name} was trained with {section}.{key}={value}, which a run that begins from it cannot change. "
                    f"Received: {section}.{key}={requested_value}."
                )
