"""Positions as plain numbers."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.positions.absolute import AbsolutePositions


@keras.saving.register_keras_serializable(package="attention_zoo")
class IntegerPositions(AbsolutePositions):
    """Adds or concatenates the position itself: `x_p + p` or `[x_p; p]`; normalised, `p / (max_length − 1)`.

    This is what courses begin with, to show why sinusoids are better, and is for study. Raw numbers grow with the text
    and soon outweigh the features; normalised ones lie between 0 and 1, but the nearer two neighbours are, the larger
    `max_length` is. The length of the text itself cannot take its place in a decoder, which does not know it before the
    last step.

    Args:
        max_length: Number of positions that are told apart, a positive integer: later ones are 1 like the last, and
            negative ones 0 like the first. Default: `None`, for raw numbers.
        concatenate: Whether the number is concatenated with the features instead of added to each of them.
        size: How many times it is concatenated, a positive integer. Default: as often as there are features.

    Call arguments:
        inputs: [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of the rows in its place, integers [T] or [B, T], such as those of packed texts.

    Returns:
        [B, T, D]; concatenated [B, T, D + size].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import IntegerPositions
        >>> inputs = np.array([[[5.0], [5.0], [5.0]]], "float32")
        >>> print(np.array(IntegerPositions()(inputs))[0, :, 0])
        [5. 6. 7.]
        >>> print(np.array(IntegerPositions(max_length=5, concatenate=True, size=1)(inputs))[0])
        [[5.   0.  ]
         [5.   0.25]
         [5.   0.5 ]]

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1, where a sense of order comes
        from the absolute position, there as a learned vector, https://arxiv.org/abs/1705.03122
    """

    saved_options = ("max_length",)

    def __init__(self, max_length=None, concatenate=False, size=None, **kwargs):
        super().__init__(concatenate=concatenate, size=size, **kwargs)
        self.max_length = check_size("max_length", max_length, optional=True)

    def encodings(self, positions, size):
        numbers = ops.cast(positions, "float32")
        if self.max_length is not None:
            numbers = ops.clip(numbers / max(1, self.max_length - 1), 0.0, 1.0)
        return ops.broadcast_to(numbers[:, None], (ops.shape(positions)[0], size))
