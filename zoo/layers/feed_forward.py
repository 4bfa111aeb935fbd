"""Position-wise feed-forward network."""

import keras

from zoo.layers.dropout import Dropout
from zoo.layers.flat import at_positions
from zoo.layers.quantized import KeepsQuantization
from zoo.layers.sizes import check_size


@keras.saving.register_keras_serializable(package="attention_zoo")
class FeedForward(KeepsQuantization):
    """Two linear maps with a nonlinearity between them: `activation(x W₁ + b₁) W₂ + b₂`, each position by itself.

    Args:
        intermediate_dim: Size between the two maps, a positive integer.
        activation: Nonlinearity, by name (`"relu"`, `"gelu"`, `"silu"`, …) or as a callable.
        dropout: Rate of dropout after the nonlinearity.
        seed: Seed of the dropout.
        use_bias: Whether the maps have biases.

    Call arguments:
        inputs: [B, T, D].
        training: Whether dropout is active.

    Returns:
        [B, T, D].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import FeedForward
        >>> FeedForward(intermediate_dim=7)(np.ones((2, 3, 5), "float32")).shape
        TensorShape([2, 3, 5])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.3, https://arxiv.org/abs/1706.03762
    """

    def __init__(self, intermediate_dim, activation="relu", dropout=0.0, seed=None, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.intermediate_dim = check_size("intermediate_dim", intermediate_dim)
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.seed = seed
        self.use_bias = use_bias
        self.intermediate_dense = self.dense("intermediate", self.intermediate_dim, self.activation)
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def dense(self, name, size, activation=None):
        """Returns a linear map with the options of this layer.

        Args:
            name: Its name.
            size: Last axis of its output.
            activation: What is applied to its output.
        """
        return keras.layers.Dense(
            size, activation=activation, use_bias=self.use_bias, dtype=self.dtype_policy, name=name
        )

    def build(self, input_shape):
        self.intermediate_dense.build(input_shape)
        self.output_dense = self.dense("output", input_shape[-1])
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def intermediate(self, inputs):
        """Returns what stands between the two maps, [P, intermediate_dim] from [P, D]."""
        return self.intermediate_dense(inputs)

    def call(self, inputs, training=None):
        def transform(rows):
            return self.output_dense(self.dropout_layer(self.intermediate(rows), training=training))

        return at_positions(transform, inputs)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "seed": self.seed,
            "use_bias": self.use_bias,
        }
