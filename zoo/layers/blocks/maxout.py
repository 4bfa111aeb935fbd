"""Maxout."""

import keras
from keras import ops

from zoo.layers.core.base import SavesOptions
from zoo.layers.core.checks import check_size
from zoo.layers.core.projections import sizes_of


@keras.saving.register_keras_serializable(package="attention_zoo")
class Maxout(SavesOptions):
    """Maximum of each group of adjacent features: `y_j = max(x_{2j}, x_{2j+1})` for groups of two.

    Args:
        group_size: Number of features in a group, a positive integer.

    Call arguments:
        inputs: [..., D], D a multiple of `group_size`.

    Returns:
        [..., D / group_size].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import Maxout
        >>> print(np.array(Maxout()(np.array([[1.0, 3.0, 5.0, 2.0]], "float32"))))
        [[3. 5.]]

    Reference:
        Goodfellow et al. 2013, "Maxout Networks", section 3, https://arxiv.org/abs/1302.4389;
        Bahdanau et al. 2015, section A.2.2, https://arxiv.org/abs/1409.0473
    """

    saved_options = ("group_size",)

    def __init__(self, group_size=2, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.group_size = check_size("group_size", group_size)

    def build(self, input_shape):
        if input_shape[-1] % self.group_size:
            raise ValueError(
                f"The last axis must be a multiple of `group_size`={self.group_size}. "
                f"Received: input_shape={tuple(input_shape)}."
            )

    def call(self, inputs):
        positions = sizes_of(inputs, *range(len(inputs.shape) - 1))
        groups = (*positions, inputs.shape[-1] // self.group_size, self.group_size)
        return ops.max(ops.reshape(inputs, groups), axis=-1)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], input_shape[-1] // self.group_size)
