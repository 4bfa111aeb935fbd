"""Reads `recipes.toml`: the settings that suit a model on a kind of data, where they differ from the defaults."""

import fnmatch
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from training.config.settings import SECTIONS, Settings
from training.data.formats.prepared import original_spec
from zoo.registry import get_spec


@cache
def load_recipes() -> list[dict[str, Any]]:
    """Returns all recipes in their order."""
    path = Path(__file__).with_suffix(".toml")
    recipes: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["recipe"]
    return recipes


def recipe(model: str, data: str, options: Mapping[str, Any] | None = None) -> Settings:
    """Returns settings by section for a model on data; empty sections where the defaults suit.

    Args:
        model: Name of the model.
        data: Data SPEC.
        options: Requested options of the model; the others have their defaults.
    """
    data = original_spec(data)
    spec = get_spec(model)
    options = {**spec.config, **(options or {})}
    merged: Settings = {section: {} for section in SECTIONS}
    for entry in load_recipes():
        fits_model = any(fnmatch.fnmatch(model, pattern) for pattern in entry.get("models", ["*"]))
        fits_options = all(options.get(name) in values for name, values in entry.get("where", {}).items())
        if fits_model and fits_options and _fits_data(entry, data, spec.task):
            for section in SECTIONS:
                merged[section] |= entry.get(section, {})
    # A recipe may be for data of another task, which is reported later, or have options that a registered model lacks.
    merged["model"] = {key: value for key, value in merged["model"].items() if key in spec.config}
    return merged


def data_recipe(data: str, task: str) -> dict[str, Any]:
    """Returns the settings of data that suit every model of a task and differ from the defaults."""
    merged: dict[str, Any] = {}
    for entry in load_recipes():
        if not {"models", "where"} & entry.keys() and _fits_data(entry, data, task):
            merged |= entry.get("data", {})
    return merged


def _fits_data(entry: Mapping[str, Any], data: str, task: str) -> bool:
    """Returns whether a recipe is for data of a SPEC and for the models of a task."""
    kinds = {data, data.partition(":")[0]}
    return not kinds.isdisjoint(entry.get("kinds", kinds)) and task in entry.get("tasks", [task])
