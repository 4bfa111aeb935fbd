"""How the weights of the layers are sharded over a mesh of devices; without Keras.

A mesh has up to two axes: one over which each batch is sharded, and `model`. Along `model` the weights of a layer are
split so that each head or hidden unit is computed on one device, and the layer ends with a sum over the devices
(Shoeybi et al. 2019, "Megatron-LM", section 3, https://arxiv.org/abs/1909.08053). If the axis of the batch is called
`fsdp`, it also splits weights, along a dimension that `model` does not split (Rajbhandari et al. 2020, "ZeRO",
section 5, https://arxiv.org/abs/1910.02054); if it is called `data`, weights are replicated along it.
"""

import re
from collections.abc import Mapping

MODEL, SHARDED = "model", "fsdp"

# The end of a variable's path, and the dimensions that `model` and `fsdp` preferably split, counted from the end.
_LAYOUTS = (
    (r"(attention|feed_forward)/output/kernel", {MODEL: -2, SHARDED: -1}),  # sums over heads or hidden units
    (r"embeddings", {MODEL: -2, SHARDED: -1}),  # the tokens
    (r"kernel", {MODEL: -1, SHARDED: -2}),  # heads, hidden units, gates, or the tokens of the output
)


def layout_of(path: str, shape: tuple[int, ...], mesh: Mapping[str, int]) -> tuple[str | None, ...]:
    """Returns the mesh axis that splits each dimension of a weight, or `None`.

    An axis that does not divide its preferred dimension splits another one. Biases, gains and other vectors are
    replicated.

    Args:
        path: The path of the variable.
        shape: Its shape.
        mesh: The number of devices along each axis of the mesh.

    Example:
        >>> layout_of("tiny/block_0/feed_forward/output/kernel", (8, 6), {"data": 2, "model": 4})
        ('model', None)
        >>> layout_of("tiny/embedding/embeddings", (17, 6), {"fsdp": 2, "model": 3})
        ('fsdp', 'model')
    """
    axes: list[str | None] = [None] * len(shape)
    preferred = next((axes for end, axes in _LAYOUTS if re.search(f"(^|[/_]){end}$", path)), {})
    for axis, dimension in preferred.items() if len(shape) > 1 else ():
        ordered = sorted(range(-len(shape), 0), key=lambda index: (index != dimension, -shape[index]))
        free = [index for index in ordered if axes[index] is None and shape[index] % mesh.get(axis, 1) == 0]
        if mesh.get(axis, 1) > 1 and free:
            axes[free[0]] = axis
    return tuple(axes)
