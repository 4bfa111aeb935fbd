"""Parses the mesh of devices of a run: `training.mesh`."""

import math
from collections.abc import Mapping

from zoo.errors import InputError

BATCH_AXES = ("data", "fsdp")
AXES = (*BATCH_AXES, "model")


def parse_mesh(text: str) -> dict[str, int]:
    """Returns the devices along each axis of a mesh such as `data=4,model=2`, the axis of the batch first.

    Raises:
        InputError: For another form, an unknown or repeated axis, or both axes of the batch.

    Example:
        >>> parse_mesh("model=2, data=4")
        {'data': 4, 'model': 2}
        >>> parse_mesh("model=2")
        {'data': 1, 'model': 2}
    """
    axes: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in AXES or name in axes or not (number.isascii() and number.isdigit() and int(number)):
            raise _wrong(text)
        axes[name] = int(number)
    batch = [name for name in BATCH_AXES if name in axes] or ["data"]
    if len(batch) > 1:
        raise _wrong(text)
    return {batch[0]: axes.get(batch[0], 1), "model": axes.get("model", 1)}


def num_devices(mesh: Mapping[str, int]) -> int:
    """Returns the number of devices of a mesh."""
    return math.prod(mesh.values())


def _wrong(text: str) -> InputError:
    return InputError(
        "training.mesh must be numbers of devices along the axes data or fsdp, and model, such as data=4,model=2. "
        f"Received: training.mesh={text!r}."
    )
