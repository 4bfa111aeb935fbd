"""Score functions, which say how well a query matches a key: one file each, and `get_score` by name."""

from zoo.layers.scores.additive import AdditiveScore
from zoo.layers.scores.base import Score
from zoo.layers.scores.by_name import SCORES, get_score
from zoo.layers.scores.callable import CallableScore
from zoo.layers.scores.concat import ConcatScore
from zoo.layers.scores.cosine import CosineScore
from zoo.layers.scores.coverage import CoverageScore
from zoo.layers.scores.dot import DotScore
from zoo.layers.scores.general import GeneralScore
from zoo.layers.scores.location import LocationScore
from zoo.layers.scores.normalized_additive import NormalizedAdditiveScore
from zoo.layers.scores.per_head import PerHeadScore
from zoo.layers.scores.scaled_dot import ScaledDotScore
from zoo.layers.scores.tanh_concat import TanhConcatScore

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
