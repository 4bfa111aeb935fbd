"""Score functions, which compare a query with a key, and `get_score` by name."""

from zoo.layers.scores.additive import (
    AdditiveScore,
    ConcatScore,
    CoverageScore,
    NormalizedAdditiveScore,
    TanhConcatScore,
)
from zoo.layers.scores.base import Score
from zoo.layers.scores.by_name import SCORES, CallableScore, PerHeadScore, get_score
from zoo.layers.scores.location import LocationScore
from zoo.layers.scores.products import CosineScore, DotScore, GeneralScore, ScaledDotScore

__all__ = [
    "SCORES",
    "AdditiveScore",
    "CallableScore",
    "ConcatScore",
    "CosineScore",
    "CoverageScore",
    "DotScore",
    "GeneralScore",
    "LocationScore",
    "NormalizedAdditiveScore",
    "PerHeadScore",
    "ScaledDotScore",
    "Score",
    "TanhConcatScore",
    "get_score",
]
