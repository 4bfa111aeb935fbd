"""How the weights of the layers are spread over a mesh of devices; without Keras.

A mesh has up to two axes: one over which each batch is spread, and `model`. Along `model` the weights of one layer are
split so that what a head or a hidden unit computes stays on one device, and a sum over the devices ends it (Shoeybi et
al. 2019, "Megatron-LM", section 3, https://arxiv.org/abs/1909.08053). The axis of the batch splits weights as well
where it is called `fsdp`, along what `model` leaves (Rajbhandari et al. 2020, "ZeRO", section 5,
https://arxiv.org/abs/1910.02054); where it is called `data`, each of its devices has all that `model` leaves.
"""

import re
from collections.abc import Mapping

MODEL, SHARDED = "model", "fsdp"

# The end of a variable's path, and the dimensions that `model` and `fsdp` split by preference, counted from the end.
_LAYOUTS = (
    (r"(attention|feed_forward)/output/kernel", {MODEL: -2, SHARDED: -1}),  # sums over heads or hidden units
    (r"embeddings", {MODEL: -2, SHARDED: -1}),  # the tokens
    (r"kernel", {MODEL: -1, SHARDED: -2}),  # heads, hidden units, gates, or the tokens of the output
)


def layout_of(path: str, shape: tuple[int, ...], mesh: Mapping[str, int]) -> tuple[str | None, ...]:
    """Returns the axis of a mesh that splits each dimension of a weight, `None` where none does.

    An axis whose preferred dimension it does not divide splits another one. Biases, gains and other vectors are on
    every device.

    Args:
        path: The path of the variable.
        shape: Its shape.
        mesh: The devices along each axis of the mesh.

    Example:
        >>> layout_of("tiny/block_0/feed_forward/output/kernel", (8, 6), {"data": 2, "model": 4})
        ('model', None)
        >>> layout_of("tiny/embedding/embeddings", (17, 6), {"fsdp": 2, "model": 3})
        ('fsdp', 'model')
    """
    axes: list[str | None] = [None] * len(shape)
    preferred = next((axes for end, axes in _LAYOUTS if re.search(f"(^|[/_]){end}$", path)), {})
    for axis, dimension in preferred.items() if len(shape) > 1 else ():
        others = sorted(range(-len(shape), 0), key=lambda place: (place != dimension, -shape[place]))
        free = [place for place in others if axes[place] is None and shape[place] % mesh.get(axis, 1) == 0]
        if mesh.get(axis, 1) > 1 and free:
            axes[free[0]] = axis
    return tuple(axes)
