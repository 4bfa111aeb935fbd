"""Normalisations, which make attention weights of scores: a file each, and `get_normalization` by name."""

from zoo.layers.normalizations.base import Normalization
from zoo.layers.normalizations.by_name import NORMALIZATIONS, get_normalization
from zoo.layers.normalizations.entmax import EntmaxNormalization, SparsemaxNormalization
from zoo.layers.normalizations.sigmoid import SigmoidNormalization
from zoo.layers.normalizations.sink import SinkNormalization
from zoo.layers.normalizations.softmax import SoftmaxNormalization

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
