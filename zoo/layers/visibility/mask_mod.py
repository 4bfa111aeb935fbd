"""A visibility rule defined by a function."""

import keras

from zoo.layers.visibility.base import VisibilityRule


@keras.saving.register_keras_serializable(package="attention_zoo")
class MaskMod(VisibilityRule):
    """A query attends to a key where `function(batch, head, query_position, key_position)` is True.

    The arguments are integers that broadcast to [B, N, T, S], and the function must use operations that broadcast and
    depend on nothing else. No blocks are skipped; to skip blocks, derive from `VisibilityRule`.

    Args:
        function: The function. To save the layer, register it with `keras.saving.register_keras_serializable`.

    Raises:
        ValueError: If the function is not callable.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import MaskMod, MultiHeadAttention
        >>> each_head_its_window = MaskMod(lambda batch, head, query, key: abs(query - key) <= head)
        >>> layer, inputs = MultiHeadAttention(2, 4, visibility=each_head_its_window), np.ones((1, 3, 8), "float32")
        >>> _, weights = layer(inputs, inputs, return_attention_scores=True)
        >>> print(np.round(weights[0, 1], 2))
        [[0.5  0.5  0.  ]
         [0.33 0.33 0.33]
         [0.   0.5  0.5 ]]

    Reference:
        Dong et al. 2024, "Flex Attention: A Programming Model for Generating Optimized Attention Kernels", section 3.2,
        https://arxiv.org/abs/2412.05496
    """

    def __init__(self, function):
        if not callable(function):
            raise ValueError(
                "`function` must take batch, head, query and key, and return a boolean. "
                f"Received: function={function!r}."
            )
        self.function = function

    def allows(self, pairs):
        return self.function(pairs.batch, pairs.head, pairs.query, pairs.key)

    def get_config(self):
        return {"function": keras.saving.serialize_keras_object(self.function)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["function"]))

    def __eq__(self, other):
        return type(self) is type(other) and self.function == other.function

    def __hash__(self):
        return hash(self.function)

    def __repr__(self):
        return f"MaskMod({getattr(self.function, '__name__', self.function)})"
