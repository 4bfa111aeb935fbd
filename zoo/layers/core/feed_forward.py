"""Position-wise feed-forward networks, and activations by name."""

import keras

from zoo.layers.core.base import KeepsQuantization
from zoo.layers.core.checks import check_size
from zoo.layers.core.dropout import Dropout
from zoo.layers.core.projections import apply_positionwise, multiply, projection


@keras.saving.register_keras_serializable(package="attention_zoo")
def gelu_tanh(inputs):
    """Returns `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, GPT-2's approximation of GELU.

    Args:
        inputs: A tensor of any shape.

    Reference:
        Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2, https://arxiv.org/abs/1606.08415
    """
    return keras.activations.gelu(inputs, approximate=True)


def get_activation(name):
    """Returns an activation by name, `"gelu_tanh"` or one of Keras' names, or a callable unchanged.

    Raises:
        ValueError: For an unknown name.
    """
    return gelu_tanh if name == "gelu_tanh" else keras.activations.get(name)


@keras.saving.register_keras_serializable(package="attention_zoo")
class FeedForward(KeepsQuantization):
    """Position-wise feed-forward network: `activation(x W₁ + b₁) W₂ + b₂`.

    Args:
        intermediate_dim: Size of the hidden layer, a positive integer.
        activation: Activation by name (`"relu"`, `"gelu"`, `"silu"`, …, or `"gelu_tanh"`: GPT-2's approximation of
            GELU) or as a callable.
        dropout: Rate of dropout after the activation.
        seed: Seed of the dropout.
        use_bias: Whether the projections have biases.

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

    saved_options = ("intermediate_dim", "activation", "dropout", "seed", "use_bias")

    def __init__(self, intermediate_dim, activation="relu", dropout=0.0, seed=None, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.intermediate_dim = check_size("intermediate_dim", intermediate_dim)
        self.activation = get_activation(activation)
        self.dropout = dropout
        self.seed = seed
        self.use_bias = use_bias
        self.intermediate_dense = self.dense("intermediate", self.intermediate_dim, self.activation)
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def dense(self, name, size, activation=None):
        """Returns a projection with the options of this layer."""
        return projection(self, size, name, self.use_bias, activation=activation)

    def build(self, input_shape):
        self.intermediate_dense.build(input_shape)
        self.output_dense = self.dense("output", input_shape[-1])
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def intermediate(self, inputs):
        """Returns the hidden layer, [P, intermediate_dim] from [P, D]."""
        return multiply(self.intermediate_dense, inputs)

    def call(self, inputs, training=None):
        def transform(rows):
            return multiply(self.output_dense, self.dropout_layer(self.intermediate(rows), training=training))

        return apply_positionwise(transform, inputs)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "activation": keras.activations.serialize(self.activation)}


@keras.saving.register_keras_serializable(package="attention_zoo")
class GatedFeedForward(FeedForward):
    """Position-wise feed-forward network with a gate: `(activation(x W) ⊙ x V) W₂`.

    This is SwiGLU with the activation `"silu"`, GEGLU with `"gelu"`, ReGLU with `"relu"`, and Dauphin's GLU with
    `"sigmoid"`. It has three projections and `FeedForward` two: at two thirds of the size, the costs are equal.

    Args:
        intermediate_dim: Size of the hidden layer, a positive integer.
        activation: Activation of the gate, by name or as a callable.
        dropout: Rate of dropout after the gate.
        seed: Seed of the dropout.
        use_bias: Whether the projections have biases.

    Call arguments:
        inputs: [B, T, D].
        training: Whether dropout is active.

    Returns:
        [B, T, D].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import GatedFeedForward
        >>> GatedFeedForward(intermediate_dim=7)(np.ones((2, 3, 5), "float32")).shape
        TensorShape([2, 3, 5])

    Reference:
        Shazeer 2020, "GLU Variants Improve Transformer", equations 5 and 6, https://arxiv.org/abs/2002.05202;
        Dauphin et al. 2017, "Language Modeling with Gated Convolutional Networks", section 2,
        https://arxiv.org/abs/1612.08083
    """

    def __init__(self, intermediate_dim, activation="silu", dropout=0.0, seed=None, use_bias=False, **kwargs):
        super().__init__(intermediate_dim, activation, dropout, seed, use_bias, **kwargs)
        self.linear_dense = self.dense("linear", self.intermediate_dim)

    def build(self, input_shape):
        super().build(input_shape)
        self.linear_dense.build(input_shape)

    def intermediate(self, inputs):
        return multiply(self.intermediate_dense, inputs) * multiply(self.linear_dense, inputs)
