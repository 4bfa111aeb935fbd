"""Scores of models, by name."""

import keras

from zoo import layers
from zoo.layers.scores import get_score


@keras.saving.register_keras_serializable(package="attention_zoo")
class EndlessLocationScore(layers.LocationScore):
    """Location score for texts of any length: keys after its last row have attention only if all others are masked.

    A served graph has dynamic lengths and cannot raise an error, so the model never raises one.
    """

    def check_length(self, length):
        """Accepts any number of keys."""


# N, the largest fertility, of Tu et al. 2016, section 3.1.1.
MAX_FERTILITY = {"sum": None, "fertility": 2}


def model_score(name, dtype, max_length=512, units=None, use_bias=None, coverage="none"):
    """Returns a score by its name.

    Args:
        name: A name for `get_score`.
        dtype: Dtype or policy.
        max_length: Largest number of keys of a location score.
        units: Size of the hidden layer of additive and concat scores. Default: that of the query.
        use_bias: Whether additive, concat and tanh_concat have a bias. Default: as in their papers, all but concat.
        coverage: How additive and concat scores include the previous attention to each key: "none", "sum" or
            "fertility".

    Raises:
        InputError: For an unknown name; the message suggests similar names.
    """
    if name == "location":
        return EndlessLocationScore(max_length, dtype=dtype)
    if coverage != "none":
        use_bias = name == "additive" if use_bias is None else use_bias
        return layers.CoverageScore(units, use_bias, max_fertility=MAX_FERTILITY[coverage], dtype=dtype)
    if name == "concat" and use_bias:
        name = "additive"  # the same with a bias
    options = {"units": units} if name in ("additive", "concat", "normalized_additive") else {}
    if use_bias is not None and name != "concat":
        options["use_bias"] = use_bias
    return get_score(name, dtype=dtype, **options)
