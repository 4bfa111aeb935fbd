"""Rotary positions as `config.json` describes them."""

import math
from collections.abc import Mapping
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.errors import InputError

# What each kind needs, beside the wavelength and the rotated fraction of a head: keys, and the one value that they may
# have, or `None` for any number.
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
_OF_ALL = ("rope_type", "type", "rope_theta", "partial_rotary_factor")

SCALING = ("rope_scaling", "rope_factor", "rope_original_length")
"""Our options of the scaling of rotary positions."""


def rotary(checkpoint: Checkpoint, wavelength: float = 10000.0, fraction: float = 1.0) -> dict[str, Any]:
    """Returns the options of rotary positions, which newer files keep in `rope_parameters`.

    Args:
        checkpoint: The checkpoint.
        wavelength: What `rope_theta` is where neither that nor `rope_parameters` says so.
        fraction: What `partial_rotary_factor` is where `rope_parameters` does not say so.

    Raises:
        InputError: If they are scaled in a way that we do not have, or something that it needs is missing.
    """
    described = {name: checkpoint.option(name) for name in ("rope_parameters", "rope_scaling")}
    name = "rope_parameters" if described["rope_parameters"] else "rope_scaling"
    parameters = described[name] or {}
    where = f"{checkpoint.config_file}: {name}"
    if not isinstance(parameters, dict):
        raise InputError(f"{where} must hold options by name. Received: {parameters!r}.")
    kind = str(parameters.get("rope_type", parameters.get("type", "default")))
    if kind not in _KINDS:
        raise InputError(f"{where} must be of the types {', '.join(_KINDS)}. Received: {kind!r}.")
    ours, needed = _KINDS[kind]
    # At its default a key has no influence: files that one kind was changed into another in keep some.
    unknown = [key for key in parameters if key not in (*_OF_ALL, *needed) and parameters[key] is not None]
    if unknown:
        raise InputError(
            f"{where} of the type {kind} has {', '.join(needed) or 'no further keys'}. "
            f"Received: {unknown[0]}={parameters[unknown[0]]!r}."
        )
    for key, only in needed.items():
        value = parameters.get(key, only)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
            raise InputError(f"{where} of the type {kind} needs {key}, a positive number. Received: {value!r}.")
        if only is not None and value != only:
            raise InputError(f"{where}: {key} must be {only} to be imported. Received: {value!r}.")
    options = {
        "max_wavelength": float(parameters.get("rope_theta", wavelength)),
        "rotary_fraction": float(parameters.get("partial_rotary_factor", fraction)),
        "rope_scaling": ours,
    }
    if kind != "default":
        options["rope_factor"] = float(parameters["factor"])
    if kind == "llama3":
        options["rope_original_length"] = int(parameters["original_max_position_embeddings"])
    return options


def check_scaling(family: str, options: Mapping[str, Any]) -> None:
    """Checks that a family has the scaling of one of our models.

    Raises:
        InputError: If it has not.
    """
    known = [ours for ours, _ in _KINDS.values()]
    if options["rope_scaling"] not in known:
        received = f"rope_scaling={options['rope_scaling']!r}"
        raise InputError(f"{family} has the rope_scaling {', '.join(known)} only. Received: {received}.")


def rope_parameters(options: Any) -> dict[str, Any]:
    """Returns what `config.json` says of rotary positions of one of our models, given its options."""
    scaling = options.rope_parameters(options.max_length) or {"rope_type": "default"}
    return {**scaling, "rope_theta": options.max_wavelength}
