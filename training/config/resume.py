"""Resuming a run with other settings: which may change."""

import dataclasses
from typing import Any

from training.config.run_config import Config, TrainingConfig
from training.config.settings import AUTOMATIC
from training.hardware.precision import dtype_policy
from zoo.errors import InputError

# What the variables in a checkpoint and the count of its rounds hang on.
_FIXED = {"eval_every", "accumulate_steps", "ema", "init_from", "lora_rank", "seed"}
CHANGEABLE = tuple(field.name for field in dataclasses.fields(TrainingConfig) if field.name not in _FIXED)


def take_over(kept: Config, asked: Config, step: int, path: str) -> dict[str, Any]:
    """Changes the configuration of a begun run in place to what was asked for, and returns the changes.

    Behind the first checkpoint all of `CHANGEABLE` may change, before it all of `training`.

    Args:
        kept: The configuration that the run was begun with.
        asked: The configuration whose `given` settings are asked for now.
        step: The step of the last checkpoint, 0 without one.
        path: The work directory, for messages.

    Raises:
        InputError: If something else was asked for.
    """
    if (kept.model["name"], kept.data.spec) != (asked.model["name"], asked.data.spec):
        raise InputError(
            f"{path} holds a run of {kept.model['name']} on {kept.data.spec}. "
            f"Received: {asked.model['name']} on {asked.data.spec}."
        )
    values, changes = kept.to_dict(), {}
    for section, given in asked.given.items():
        for key, value in given.items():
            before = values[section].get(key)
            if (section, key) == ("training", "precision"):
                # Kept is what it stands for, but for a run that ended before its first step.
                before, value = dtype_policy(before), dtype_policy(value)
            # Of model and data, what was automatic has been decided.
            if value == before or section != "training" and value in AUTOMATIC:
                continue
            if section != "training" or (step and not _may_change(key, before, value)):
                raise InputError(
                    f"{path} holds a run with {section}.{key}={before}, which cannot change any more. "
                    f"Received: {section}.{key}={value}. Leave it out, or name another --workdir."
                )
            changes[f"{section}.{key}"] = value
            setattr(kept.training, key, value)
    if changes and step:
        kept.changes.append({"step": step, **changes})
    return changes


def _may_change(key, before, value):
    # In float16 the optimizer has variables of its own.
    return key in CHANGEABLE and not (key == "precision" and "mixed_float16" in (before, value))
