"""Normalisations, which turn scores into attention weights, and `get_normalization` by name."""

from zoo.errors import unknown_name
from zoo.layers.normalizations.base import (
    Normalization,
    SigmoidNormalization,
    SinkNormalization,
    SoftmaxNormalization,
)
from zoo.layers.normalizations.sparse import EntmaxNormalization, SparsemaxNormalization

__all__ = [
    "NORMALIZATIONS",
    "EntmaxNormalization",
    "Normalization",
    "SigmoidNormalization",
    "SinkNormalization",
    "SoftmaxNormalization",
    "SparsemaxNormalization",
    "get_normalization",
]

NORMALIZATIONS = {
    "entmax15": (EntmaxNormalization, {"alpha": 1.5}),
    "off_by_one": (SinkNormalization, {"learned": False}),
    "sigmoid": (SigmoidNormalization, {}),
    "sink": (SinkNormalization, {}),
    "softmax": (SoftmaxNormalization, {}),
    "sparsemax": (SparsemaxNormalization, {}),
}


def get_normalization(identifier, dtype=None, **options):
    """Returns a normalisation by name.

    Args:
        identifier: A `Normalization`, which is returned unchanged, or a name from `NORMALIZATIONS`.
        dtype: Dtype or dtype policy of a new normalisation.
        **options: Other arguments of a new normalisation.

    Returns:
        A `Normalization`.

    Raises:
        ValueError: For an unknown name (the message suggests similar names), or any other object.

    Example:
        >>> from zoo.layers import get_normalization
        >>> type(get_normalization("sparsemax")).__name__, get_normalization("entmax15").alpha
        ('SparsemaxNormalization', 1.5)
    """
    if isinstance(identifier, Normalization):
        return identifier
    if isinstance(identifier, str):
        if identifier not in NORMALIZATIONS:
            raise unknown_name("normalization", identifier, NORMALIZATIONS)
        kind, defaults = NORMALIZATIONS[identifier]
        return kind(**{**defaults, **options}, dtype=dtype)
    raise ValueError(f"`normalization` must be a Normalization or the name of one. Received: {identifier!r}.")
