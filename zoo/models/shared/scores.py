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


def model_score(name, dtype, max_length=512):
    """Returns the score of an attention layer by its name; location scores have `max_length` places.

    Raises:
        InputError: For an unknown name; the close ones are named.
    """
    return EndlessLocationScore(max_length, dtype=dtype) if name == "location" else get_score(name, dtype=dtype)
