"""Resumes a run with other settings, and checks which of them may change."""

import dataclasses
from typing import Any

from training.config.options import TrainingConfig
from training.config.run_config import RunConfig
from training.config.settings import AUTOMATIC, Settings
from zoo.errors import InputError

# The variables in a checkpoint and its number of rounds depend on these settings.
_FIXED = {"eval_every", "accumulate_steps", "ema", "init_from", "lora_rank", "seed"}
ACCEPT_CHANGED_DATA = "data.changed"
CHANGEABLE = tuple(name for name in TrainingConfig.declared() if name not in _FIXED)


def resume(saved: RunConfig, requested: Settings, step: int, path: str) -> tuple[RunConfig, dict[str, Any]]:
    """Returns the configuration of a begun run with the requested settings, and the settings that change.

    After the first checkpoint, that is with a `step` above 0, all of `CHANGEABLE` may change, except `precision` to or
    from `mixed_float16`; before it, all of `training`. `path` is the work directory, for messages.

    Raises:
        InputError: If another setting would change, or the training would end before `step`.
    """
    values, changes = saved.to_dict(), {}
    accepted = {}
    for section, settings in requested.items():
        for key, value in settings.items():
            if f"{section}.{key}" == ACCEPT_CHANGED_DATA:  # applies to this command alone
                accepted = {ACCEPT_CHANGED_DATA: value} if value == "accept" else {}
                continue
            current = values[section][key]
            # Automatic settings of model and data, and the precision, were decided when the run was begun.
            if value == current or ((section != "training" or key == "precision") and value in AUTOMATIC):
                continue
            if section != "training" or (step and not _may_change(key, current, value)):
                raise InputError(
                    f"{path} contains a run with {section}.{key}={current}, which cannot change any more. "
                    f"Received: {section}.{key}={value}. Leave it out, or choose another --workdir."
                )
            changes[key] = value
    named = {**{f"training.{key}": value for key, value in changes.items()}, **accepted}
    history = (*saved.changes, {"step": step, **named}) if named and step else saved.changes
    training = dataclasses.replace(saved.training, **changes)
    if training.total_steps < step:
        raise InputError(
            f"{path} contains a run that has finished {step} steps. Received: training.max_steps="
            f"{training.max_steps}. Set training.max_steps={step} to end it there."
        )
    return dataclasses.replace(saved, training=training, changes=history), named


def _may_change(key: str, current: Any, value: Any) -> bool:
    # In float16 the optimizer has additional variables.
    return key in CHANGEABLE and not (key == "precision" and "mixed_float16" in (current, value))
