"""Resuming a run with other settings: which may change."""

import dataclasses
from typing import Any

from training.config.options import TrainingConfig
from training.config.run_config import RunConfig
from training.config.settings import AUTOMATIC, Settings
from zoo.errors import InputError

# The variables in a checkpoint and the count of its rounds depend on them.
_FIXED = {"eval_every", "accumulate_steps", "ema", "init_from", "lora_rank", "seed"}
ACCEPT_CHANGED_DATA = "data.changed"
CHANGEABLE = tuple(name for name in TrainingConfig.declared() if name not in _FIXED)


def resume(kept: RunConfig, requested: Settings, step: int, path: str) -> tuple[RunConfig, dict[str, Any]]:
    """Returns the configuration of a begun run with the settings that are asked for, and those of them that change.

    After the first checkpoint, that is with a `step` above 0, all of `CHANGEABLE` may change, before it all of
    `training`. `path` is the work directory, for messages.

    Raises:
        InputError: If something else was asked for.
    """
    values, changes = kept.to_dict(), {}
    accepted = {}
    for section, settings in requested.items():
        for key, value in settings.items():
            if f"{section}.{key}" == ACCEPT_CHANGED_DATA:  # a wish of this command, whatever the ones before said
                accepted = {ACCEPT_CHANGED_DATA: value} if value == "accept" else {}
                continue
            before = values[section][key]
            # Of model and data, and of the precision, what was automatic has been decided.
            if value == before or ((section != "training" or key == "precision") and value in AUTOMATIC):
                continue
            if section != "training" or (step and not _may_change(key, before, value)):
                raise InputError(
                    f"{path} holds a run with {section}.{key}={before}, which cannot change any more. "
                    f"Received: {section}.{key}={value}. Leave it out, or name another --workdir."
                )
            changes[key] = value
    named = {**{f"training.{key}": value for key, value in changes.items()}, **accepted}
    history = (*kept.changes, {"step": step, **named}) if named and step else kept.changes
    training = dataclasses.replace(kept.training, **changes)
    if training.total_steps < step:
        raise InputError(
            f"{path} holds a run that has done {step} steps. Received: training.max_steps={training.max_steps}. "
            f"With training.max_steps={step} it ends there."
        )
    return dataclasses.replace(kept, training=training, changes=history), named


def _may_change(key: str, before: Any, value: Any) -> bool:
    # In float16 the optimizer has additional variables.
    return key in CHANGEABLE and not (key == "precision" and "mixed_float16" in (before, value))
