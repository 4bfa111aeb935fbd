"""The score functions by name."""

import keras

from zoo.errors import InputError, unknown_name
from zoo.layers.scores.additive import AdditiveScore
from zoo.layers.scores.base import Score
from zoo.layers.scores.callable import CallableScore
from zoo.layers.scores.concat import ConcatScore
from zoo.layers.scores.cosine import CosineScore
from zoo.layers.scores.dot import DotScore
from zoo.layers.scores.general import GeneralScore
from zoo.layers.scores.location import LocationScore
from zoo.layers.scores.normalized_additive import NormalizedAdditiveScore
from zoo.layers.scores.scaled_dot import ScaledDotScore
from zoo.layers.scores.tanh_concat import TanhConcatScore
from zoo.synonyms import SCORES as SYNONYMS
from zoo.synonyms import meant_by

SCORES = {
    "additive": AdditiveScore,
    "concat": ConcatScore,
    "cosine": CosineScore,
    "dot": DotScore,
    "general": GeneralScore,
    "location": LocationScore,
    "normalized_additive": NormalizedAdditiveScore,
    "scaled_dot": ScaledDotScore,
    "tanh_concat": TanhConcatScore,
}


def get_score(identifier, dtype=None, **options):
    """Returns the score function that is meant.

    Args:
        identifier: A `Score`, which is returned as it is; a name from `SCORES`, or that of a registered class of yours
            (`"my_layers>DiagonalScore"`), for that score with its defaults; or a callable or Keras layer
            f(query, key) → scores, which is wrapped in `CallableScore`. Other names that the field has are understood:
            bahdanau (additive), multiplicative and bilinear (general), vaswani (scaled_dot).
        dtype: Dtype or policy of a score that is created here.
        **options: Its other options.

    Returns:
        A `Score`.

    Raises:
        ValueError: For an unknown name (the message names close ones), or for any other object.

    Example:
        >>> from zoo.layers import get_score
        >>> type(get_score("multiplicative")).__name__, get_score("additive", units=5).units
        ('GeneralScore', 5)
        >>> get_score("luong")
        Traceback (most recent call last):
        zoo.errors.InputError: Unknown score 'luong'. Did you mean dot or general or concat?
    """
    if isinstance(identifier, Score):
        return identifier
    if isinstance(identifier, str) and ">" in identifier:
        return _registered(identifier)(dtype=dtype, **options)
    if isinstance(identifier, str):
        names = [identifier] if identifier in SCORES else meant_by(identifier, SYNONYMS, SCORES)
        if len(names) != 1:
            raise unknown_name("score", identifier, SCORES, names)
        return SCORES[names[0]](dtype=dtype, **options)
    if callable(identifier) and not isinstance(identifier, type):
        return CallableScore(identifier, dtype=dtype)
    raise ValueError(
        "`score` must be a Score, the name of one, or a callable or Keras layer that takes query and key. "
        f"Received: score={identifier!r}."
    )


def _registered(name):
    """Returns the subclass of `Score` that is registered by a name, `package>Class`."""
    cls = keras.saving.get_registered_object(name)
    if not (isinstance(cls, type) and issubclass(cls, Score)):
        advice = "register it by keras.saving.register_keras_serializable, and import its module first"
        raise InputError(f"No score is registered as {name!r}: {advice}.")
    return cls
