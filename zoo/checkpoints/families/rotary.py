"""Rotary positions as `config.json` describes them."""

import math
from collections.abc import Mapping
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.json_types import is_number
from zoo.errors import InputError

# Of each `rope_type`: our `rope_scaling`, and its keys with the one value that each may have, `None` for any number.
_KINDS: Mapping[str, tuple[str, Mapping[str, float | None]]] = {
    "default": ("none", {}),
    "linear": ("linear", {"factor": None}),
    "llama3": (
        "llama3",
        {
            "factor": None,
            "original_max_position_embeddings": None,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    ),
}
_COMMON = ("rope_type", "type", "rope_theta", "partial_rotary_factor")

SCALING = ("rope_scaling", "rope_factor", "rope_original_length")
"""Our options of the scaling of rotary positions."""


def rotary(checkpoint: Checkpoint, wavelength: float = 10000.0, fraction: float = 1.0) -> dict[str, Any]:
    """Returns the options of rotary positions from `rope_parameters`, or from `rope_scaling` of older files.

    Args:
        checkpoint: The checkpoint.
        wavelength: The default of `rope_theta`.
        fraction: The default of `partial_rotary_factor`.

    Raises:
        InputError: If both keys are set and differ, or for a scaling that is not supported or lacks a key.
    """
    described = {name: checkpoint.option(name) for name in ("rope_parameters", "rope_scaling")}
    current, former = described.values()
    if current and former and current != former:
        raise InputError(
            f"{checkpoint.config_file}: rope_parameters and rope_scaling differ. Leave one of them out. "
            f"Received: rope_scaling={former!r}."
        )
    name = "rope_parameters" if current not in (None, {}) else "rope_scaling"
    parameters = {} if described[name] is None else described[name]
    return rotary_options(f"{checkpoint.config_file}: {name}", parameters, wavelength, fraction)


def rotary_options(where: str, parameters: Any, wavelength: float, fraction: float = 1.0) -> dict[str, Any]:
    """Returns the options of rotary positions that are described like `rope_parameters`.

    Args:
        where: The file and the key, for the error.
        parameters: The description.
        wavelength: The default of `rope_theta`.
        fraction: The default of `partial_rotary_factor`.

    Raises:
        InputError: For a scaling that is not supported or lacks a key.
    """
    if not isinstance(parameters, dict):
        raise InputError(f"{where} must hold options by name. Received: {parameters!r}.")
    kind = str(parameters.get("rope_type", parameters.get("type", "default")))
    if kind not in _KINDS:
        raise InputError(f"{where} must be of the types {', '.join(_KINDS)}. Received: {kind!r}.")
    ours, keys = _KINDS[kind]
    # A key without a value has no influence: files that were changed to another type may keep some.
    unknown = [key for key in parameters if key not in (*_COMMON, *keys) and parameters[key] is not None]
    if unknown:
        raise InputError(
            f"{where} of the type {kind} has {', '.join(keys) or 'no further keys'}. "
            f"Received: {unknown[0]}={parameters[unknown[0]]!r}."
        )
    for key, only in keys.items():
        value = parameters.get(key, only)
        if not _is_positive(value):
            raise InputError(f"{where} of the type {kind} needs {key}, a positive number. Received: {value!r}.")
        if only is not None and value != only:
            raise InputError(f"{where}: {key} must be {only} to be imported. Received: {value!r}.")
    numbers = {"rope_theta": parameters.get("rope_theta", wavelength)}
    numbers["partial_rotary_factor"] = parameters.get("partial_rotary_factor", fraction)
    for key, value in numbers.items():
        if not _is_positive(value):
            raise InputError(f"{where}: {key} must be a positive number. Received: {value!r}.")
    options = {
        "max_wavelength": float(numbers["rope_theta"]),
        "rotary_fraction": float(numbers["partial_rotary_factor"]),
        "rope_scaling": ours,
    }
    if kind != "default":
        options["rope_factor"] = float(parameters["factor"])
    if kind == "llama3":
        options["rope_original_length"] = int(parameters["original_max_position_embeddings"])
    return options


def _is_positive(value: Any) -> bool:
    return is_number(value) and 0 < value < math.inf


def check_scaling(family: str, options: Mapping[str, Any]) -> None:
    """Checks that a family supports the scaling of one of our models.

    Raises:
        InputError: If it does not.
    """
    supported = [ours for ours, _ in _KINDS.values()]
    if options["rope_scaling"] not in supported:
        received = f"rope_scaling={options['rope_scaling']!r}"
        raise InputError(f"{family} supports only the rope_scaling {', '.join(supported)}. Received: {received}.")


def rope_parameters(options: Any) -> dict[str, Any]:
    """Returns `rope_parameters` of `config.json` for a model of ours with these options."""
    scaling = options.rope_parameters(options.max_length) or {"rope_type": "default"}
    return {**scaling, "rope_theta": options.max_wavelength}
