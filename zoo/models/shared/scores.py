"""Score functions of models, for texts of any length."""

import keras

from zoo import layers
from zoo.layers.scores import get_score


@keras.saving.register_keras_serializable(package="attention_zoo")
class EndlessLocationScore(layers.LocationScore):
    """Location score for texts of any length: places after its last row get no attention where others may get it.

    A served graph, which knows no lengths, does this in any case; so the model does the same everywhere.
    """

    def check_length(self, length):
        """Accepts any number of keys."""


# N, the largest fertility, is that of Tu et al. 2016, section 3.1.1.
MAX_FERTILITY = {"sum": None, "fertility": 2}


def model_score(name, dtype, max_length=512, units=None, use_bias=None, coverage="none"):
    """Returns the score of an attention layer by its name.

    Args:
        name: What `get_score` knows.
        dtype: Dtype or policy.
        max_length: Places of a location score.
        units: Size of the hidden layer of additive and concat scores. Default: that of the query.
        use_bias: Whether additive, concat and tanh_concat have a bias. Default: as in their papers, all but concat.
        coverage: Whether additive and concat know how much attention each key has had: "none", "sum" or "fertility".

    Raises:
        InputError: For an unknown name; the close ones are named.
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
