"""Position-wise feed-forward network with a gate."""

import keras

from zoo.layers.feed_forward import FeedForward


@keras.saving.register_keras_serializable(package="attention_zoo")
class GatedFeedForward(FeedForward):
    """Feed-forward network with a gate: `(activation(x W) ⊙ x V) W₂`, each position by itself.

    SwiGLU with the activation `"silu"`, GEGLU with `"gelu"`, ReGLU with `"relu"`, and Dauphin's GLU with `"sigmoid"`.
    It has three maps where `FeedForward` has two: with two thirds of its `intermediate_dim` the costs are equal.

    Args:
        intermediate_dim: Size of the gate and of what it lets through, a positive integer.
        activation: Nonlinearity of the gate, by name or as a callable.
        dropout: Rate of dropout behind the gate.
        seed: Seed of the dropout.
        use_bias: Whether the maps have biases.

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
        return self.intermediate_dense(inputs) * self.linear_dense(inputs)
