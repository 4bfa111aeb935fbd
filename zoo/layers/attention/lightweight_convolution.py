"""Lightweight and dynamic convolution: learned or predicted weights of nearby positions, without comparisons."""

import keras
from keras import ops

from zoo.layers.attention.self_mixing import SelfMixing
from zoo.layers.core.checks import check_padding, check_size
from zoo.layers.core.masks import zero_masked
from zoo.layers.core.projections import apply_positionwise, projection


@keras.saving.register_keras_serializable(package="attention_zoo")
class LightweightConvolution(SelfMixing):
    """Weighted sums of nearby positions, with weights per head: `yₜ = (Σⱼ softmax(W_h)ⱼ gₜ₊ⱼ₋ₗ) W_o`.

    `g = a ⊙ sigmoid(b)` with `[a; b] = X W_i`, of the size D of the inputs. Each of the N heads has D / N of the
    features, which share its k weights W_h. Position t reads l positions before it and k − 1 − l after it:
    `l = ⌊k / 2⌋`, or with causal padding `l = k − 1`. Positions outside the sequence and masked ones count as zeros;
    the weights of the others do not change.

    It costs T · k · D and has 3 D² + N · k weights without biases. The cache contains the last k − 1 vectors g.

    Args:
        num_heads: N, a divisor of D.
        width: Number of positions in the window, k, a positive integer.
        padding: `"same"`: a position is in the middle of its window (right of the middle for an even width);
            `"causal"`: at the end of its window.
        dropout: Rate of dropout on the weights of the positions (DropConnect).
        seed: Seed of the dropout.
        use_bias: Whether W_i and W_o have biases.
        kernel_initializer: Initializer of W_i, W_o and W_h.

    Call arguments and results: see `SelfMixing`; weights are [B, N, T, T], zero outside the k positions.

    Raises:
        ValueError: If D is not a multiple of `num_heads`, or for an unknown padding.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import LightweightConvolution
        >>> LightweightConvolution(num_heads=2, width=3)(np.ones((2, 7, 4), "float32")).shape
        TensorShape([2, 7, 4])

    Reference:
        Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions", section 3, equation 4, and
        figure 2, https://arxiv.org/abs/1901.10430
    """

    saved_options = ("num_heads", "width", "padding", "dropout", "seed", "use_bias", "kernel_initializer")

    def __init__(
        self,
        num_heads,
        width,
        padding="same",
        dropout=0.0,
        seed=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = check_size("num_heads", num_heads)
        self.width = check_size("width", width)
        self.padding = check_padding(padding)
        self.dropout = dropout
        self.seed = seed
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.size = query_shape[-1]
        if self.size % self.num_heads:
            raise ValueError(
                "The size of the inputs must be a multiple of `num_heads`. "
                f"Received: size {self.size}, num_heads={self.num_heads}."
            )
        self.input_dense = projection(self, 2 * self.size, "input", self.use_bias, self.kernel_initializer)
        self.output_dense = projection(self, self.size, "output", self.use_bias, self.kernel_initializer)
        self.input_dense.build(query_shape)
        self.output_dense.build(query_shape)
        self.build_weights(query_shape)

    def build_weights(self, inputs_shape):
        """Builds the weights of the positions, or the projection that predicts them, for inputs [B, T, D]."""
        self.position_weights = self.add_weight(
            name="position_weights", shape=(self.num_heads, self.width), initializer=self.kernel_initializer
        )

    @property
    def is_causal(self):
        return self.padding == "causal"

    def predict_weights(self, gated):
        """Returns the weights before the softmax from vectors g [B, T, D]; they broadcast to [B, T, N, k]."""
        return ops.cast(self.position_weights, gated.dtype)[None, None]

    def mix(self, inputs, real, training, cache, return_attention_scores):
        batch, length = ops.shape(inputs)[:2]
        values, gates = ops.split(apply_positionwise(self.input_dense, inputs), 2, axis=-1)
        gated = zero_masked(values * ops.sigmoid(gates), real)
        wide = keras.backend.result_type(self.compute_dtype, "float32")
        weights = ops.softmax(ops.cast(self.predict_weights(gated), wide), axis=-1)  # [B or 1, T or 1, N, k]
        weights = ops.cast(weights, self.compute_dtype)
        before = self.width - 1 if self.is_causal else self.width // 2
        if cache is None:
            padded = ops.pad(gated, ((0, 0), (before, self.width - 1 - before), (0, 0)))
        else:
            padded = ops.concatenate([cache["inputs"], gated], axis=1)
            cache = {"inputs": padded[:, length:], "index": cache["index"] + length}
        if training and self.dropout:
            # Dropout differs between positions, even if they share the weights.
            repeated = ops.broadcast_to(weights, (batch, length, self.num_heads, self.width))
            dropped = self.dropout_layer(repeated, training=True)
        else:
            dropped = weights
        heads = (batch, length + self.width - 1, self.num_heads, self.size // self.num_heads)
        padded = ops.reshape(padded, heads)
        mixed = sum(padded[:, j : j + length] * dropped[..., j, None] for j in range(self.width))
        output = apply_positionwise(self.output_dense, ops.reshape(mixed, (batch, length, self.size)))
        pairs = self._pair_weights(weights, batch, length, before, real) if return_attention_scores else None
        return output, pairs, cache

    def _pair_weights(self, weights, batch, length, before, real):
        """Returns the weights of all pairs of positions, [B, N, T, T]."""
        positions = ops.arange(length, dtype="int32")
        index = positions - positions[:, None] + before  # [T, T]: the index of a pair's weight among the k weights
        inside = ops.logical_and(index >= 0, index < self.width)[None, None]
        weights = ops.broadcast_to(weights, (batch, length, self.num_heads, self.width))
        index = ops.broadcast_to(
            ops.clip(index, 0, self.width - 1)[None, None], (batch, self.num_heads, length, length)
        )
        pairs = ops.take_along_axis(ops.transpose(weights, (0, 2, 1, 3)), index, axis=-1)
        if real is not None:
            inside = ops.logical_and(inside, ops.logical_and(real[:, None, :, None], real[:, None, None]))
        return ops.where(inside, pairs, ops.zeros_like(pairs))

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache: the last k − 1 vectors g, and the number of positions, `index`.

        Args:
            batch_size: B.
            length: Not used: the size of the cache does not depend on the number of positions.
        """
        inputs = ops.zeros((batch_size, self.width - 1, self.size), dtype=self.compute_dtype)
        return {"inputs": inputs, "index": ops.zeros((), dtype="int32")}


@keras.saving.register_keras_serializable(package="attention_zoo")
class DynamicConvolution(LightweightConvolution):
    """Lightweight convolution with weights predicted at each position: `yₜ = (Σⱼ softmax(W_q gₜ)_hj gₜ₊ⱼ₋ₗ) W_o`.

    W_q [D, N · k] has no bias. The rest is as in `LightweightConvolution`; it costs T · D · N · k more.

    Args:
        num_heads: N, a divisor of D.
        width: Number of positions in the window, k, a positive integer.
        padding: `"same"` or `"causal"`.
        **kwargs: Other options of `LightweightConvolution`.

    Call arguments and results: see `SelfMixing`; weights are [B, N, T, T], zero outside the k positions.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import DynamicConvolution
        >>> layer = DynamicConvolution(num_heads=2, width=3, padding="causal")
        >>> layer(np.ones((2, 7, 4), "float32"), use_causal_mask=True).shape
        TensorShape([2, 7, 4])

    Reference:
        Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions", section 4, equation 5,
        https://arxiv.org/abs/1901.10430
    """

    def __init__(self, num_heads, width, padding="same", **kwargs):
        super().__init__(num_heads, width, padding, **kwargs)

    def build_weights(self, inputs_shape):
        units = self.num_heads * self.width
        self.weight_dense = projection(self, units, "weight", kernel_initializer=self.kernel_initializer)
        self.weight_dense.build(inputs_shape)

    def predict_weights(self, gated):
        batch, length = ops.shape(gated)[:2]
        weights = apply_positionwise(self.weight_dense, gated)
        return ops.reshape(weights, (batch, length, self.num_heads, self.width))
