"""Beginning from another run: what of its settings is kept."""

from collections.abc import Mapping
from typing import Any

from training.config.settings import AUTOMATIC
from zoo.errors import InputError
from zoo.presets import workdir_path
from zoo.registry import get_spec
from zoo.workdir import WorkDir

# What its tokenizers were made with.
_OF_TOKENIZERS = ("tokenizer", "vocab_size", "shared_vocabulary", "lowercase")


def origin_of(name: str) -> WorkDir:
    """Returns the work directory to begin from.

    Args:
        name: Its path, or `preset:NAME`.

    Raises:
        InputError: If there is no such preset.
    """
    return WorkDir(workdir_path(name))


def base_of(origin: str, model: str, suggested: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the settings of a run that begins from another one, before those that are asked for.

    Args:
        origin: The other one's work directory, or `preset:NAME`.
        model: Name of the model.
        suggested: The recipe, of which the part on training stays.

    Raises:
        InputError: If it is no work directory or a damaged one, its training has not finished, or its model is another.
    """
    workdir = origin_of(origin)
    kept = workdir.read_config()
    if not workdir.model.is_file():
        raise InputError(f"{origin} has no {workdir.model.name}: its training has not finished (see --resume).")
    if kept["model"]["name"] != model:
        raise InputError(f"{origin} holds a {kept['model']['name']} to begin from. Received: {model}.")
    if not isinstance(kept.get("data"), dict):
        raise InputError(f"{workdir.config} is not the configuration of a trained model: it has no section data.")
    options = {key: kept["model"][key] for key in get_spec(model).config if key in kept["model"]}
    data = {key: kept["data"][key] for key in (*_OF_TOKENIZERS, "max_length") if key in kept["data"]}
    return {"model": options, "data": data, "training": dict(suggested["training"])}


def is_free(section: str, key: str) -> bool:
    """Returns whether a run that begins from another one may have a setting of its own.

    Args:
        section: The section.
        key: The setting.
    """
    # Dropout has no weights, and examples may be others or cut elsewhere.
    return (
        section == "training"
        or (section == "model" and key.endswith("dropout"))
        or (section == "data" and key in ("max_length", "max_examples"))
    )


def check_origin(origin: str, base: Mapping[str, Mapping[str, Any]], given: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks that nothing was asked for that the weights and tokenizers of another run cannot follow.

    Args:
        origin: The other run's work directory.
        base: Its settings, from `base_of`.
        given: What was asked for, by section and key.

    Raises:
        InputError: If something was.
    """
    for section in ("model", "data"):
        for key, value in given[section].items():
            # What is automatic follows.
            if is_free(section, key) or value in AUTOMATIC or key not in base[section]:
                continue
            if value != base[section][key]:
                raise InputError(
                    f"{origin} was trained with {section}.{key}={base[section][key]}, which whoever begins from it "
                    f"keeps. Received: {section}.{key}={value}."
                )
