"""The score functions by name."""

from zoo.errors import unknown_name
from zoo.layers.scores.additive import AdditiveScore
from zoo.layers.scores.base import Score
from zoo.layers.scores.callable import CallableScore
from zoo.layers.scores.concat import ConcatScore
from zoo.layers.scores.cosine import CosineScore
from zoo.layers.scores.dot import DotScore
from zoo.layers.scores.general import GeneralScore
from zoo.layers.scores.location import LocationScore
from zoo.layers.scores.scaled_dot import ScaledDotScore
from zoo.layers.scores.tanh_concat import TanhConcatScore

SCORES = {
    "additive": AdditiveScore,
    "concat": ConcatScore,
    "cosine": CosineScore,
    "dot": DotScore,
    "general": GeneralScore,
    "location": LocationScore,
    "scaled_dot": ScaledDotScore,
    "tanh_concat": TanhConcatScore,
}


def get_score(identifier, dtype=None):
    """Returns a `Score`.

    Args:
        identifier: A `Score`, which is returned as it is; a name from `SCORES`, for that score with its defaults; or a
            callable or Keras layer f(query, key) → scores, which is wrapped in `CallableScore`.
        dtype: Dtype or policy of a score that is created here.

    Raises:
        ValueError: For an unknown name (the message names close ones), or for any other object.
    """
    if isinstance(identifier, Score):
        return identifier
    if isinstance(identifier, str):
        if identifier not in SCORES:
            raise unknown_name("score", identifier, SCORES)
        return SCORES[identifier](dtype=dtype)
    if callable(identifier) and not isinstance(identifier, type):
        return CallableScore(identifier, dtype=dtype)
    raise ValueError(
        "`score` must be a Score, the name of one, or a callable or Keras layer that takes query and key. "
        f"Received: score={identifier!r}."
    )
