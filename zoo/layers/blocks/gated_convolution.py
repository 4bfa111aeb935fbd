"""Convolution with a gated linear unit, with or without attention."""

import math

import keras
from keras import ops

from zoo.layers.core.base import KeepsQuantization, ReturnsMore, pack_results
from zoo.layers.core.checks import check_layer, check_padding, check_size
from zoo.layers.core.dropout import Dropout
from zoo.layers.core.masks import check_mask, single_mask, zero_masked

# √½: with this factor, the sum of two terms of equal variance has the variance of one.
HALF = math.sqrt(0.5)


@keras.saving.register_keras_serializable(package="attention_zoo")
class GatedConvolutionBlock(ReturnsMore, KeepsQuantization):
    """Convolution with a gated linear unit in a residual connection: `h = (x + a ⊙ σ(b)) √½`, `[a; b] = W * x + w`.

    In a decoder the block attends to a memory z of tokens with embeddings e. With the embedding g of the target:
    `d = W_d h + b_d + g`, `c = √m · Σ_s softmax_s(score(d, z_s)) (z_s + e_s)` over m real positions, and the output is
    `(h + W_o c) √½`, without W_o if c has the size of h.

    Args:
        width: Number of positions in the window of the convolution, k, a positive integer.
        padding: `"same"`: a position is in the middle of its window (left of the middle for an even width);
            `"causal"`: at the end of its window.
        attention: A single-head attention layer that follows the contract of `BaseAttention`, or `None`.
        dropout: Rate of dropout on the input of the convolution.
        seed: Seed of the dropout.
        kernel_initializer: Initializer of the convolution. Default: normal with variance 4 (1 − dropout) / (k D), so
            that the gate's output keeps the variance (section 3.5).

    Call arguments:
        inputs: [B, T, D].
        target_embedding: g, [B, T, E]; like `memory` and `memory_embedding` only with attention.
        memory: z, [B, S, M]; or the result of `project_memory`.
        memory_embedding: e, [B, S, M], or `None` for none.
        mask: Boolean [B, T]. Masked positions count as zeros. Default: the Keras mask of `inputs`, such as that of an
            `Embedding(mask_zero=True)`, which Keras passes as `inputs_mask`.
        memory_mask: Boolean [B, S].
        return_attention_scores: Whether to return the attention weights as well.
        training: Whether dropout is active.
        cache: Dict from `create_cache`, for decoding step by step with causal padding.

    Returns:
        [B, T, D]; with `return_attention_scores` the weights [B, T, S]; the new cache, if any, comes last.

    Raises:
        ValueError: If `attention` is not a layer, a block with attention is called without one of its inputs or a
            block without attention with one, a block that is not causal has a cache, or a mask is floating point.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import GatedConvolutionBlock
        >>> GatedConvolutionBlock(width=3)(np.ones((2, 7, 5), "float32")).shape
        TensorShape([2, 7, 5])

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", sections 3.2-3.5,
        https://arxiv.org/abs/1705.03122
    """

    saved_options = ("width", "padding", "attention", "dropout", "seed", "kernel_initializer")

    def __init__(
        self, width, padding="same", attention=None, dropout=0.0, seed=None, kernel_initializer=None, **kwargs
    ):
        super().__init__(**kwargs)
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.VarianceScaling(
                4.0 * (1.0 - dropout), "fan_in", "untruncated_normal"
            )
        self.supports_masking = True
        self.width = check_size("width", width)
        self.padding = check_padding(padding)
        self.attention = None if attention is None else check_layer("attention", attention)
        self.dropout = dropout
        self.seed = seed
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape, target_embedding_shape=None, memory_shape=None, memory_embedding_shape=None):
        size, lead = inputs_shape[-1], tuple(inputs_shape[:-1])
        self.inputs_dim = size
        # A `Dense` layer over the window, as in the paper's formula; unlike a convolution, it can be quantised.
        self.convolution_dense = keras.layers.Dense(
            2 * size, kernel_initializer=self.kernel_initializer, dtype=self.dtype_policy, name="convolution"
        )
        self.convolution_dense.build((*lead, self.width * size))
        if self.attention is not None:
            self._build_attention((*lead, size), target_embedding_shape, memory_shape)

    def _build_attention(self, inputs_shape, target_embedding_shape, memory_shape):
        self._check_attention(target_embedding_shape, memory_shape)
        query_shape = (*inputs_shape[:-1], target_embedding_shape[-1])
        self.query_dense = keras.layers.Dense(query_shape[-1], dtype=self.dtype_policy, name="query")
        self.query_dense.build(inputs_shape)
        if not self.attention.built:  # a reloaded layer is built already
            self.attention.build(query_shape, memory_shape, memory_shape)
        context_shape = self.attention.compute_output_shape(query_shape, memory_shape, memory_shape)
        self.context_dense = None
        if context_shape[-1] != inputs_shape[-1]:
            self.context_dense = keras.layers.Dense(
                inputs_shape[-1], use_bias=False, dtype=self.dtype_policy, name="context"
            )
            self.context_dense.build(context_shape)

    def _check_attention(self, target_embedding, memory):
        if self.attention is None and not (target_embedding is None and memory is None):
            raise ValueError("A block without `attention` takes no memory. Received: attention=None.")
        if self.attention is not None and (target_embedding is None or memory is None):
            missing = "memory" if memory is None else "target_embedding"
            raise ValueError(f"`{missing}` is required by `attention`; pass it to the call. Received: {missing}=None.")

    def project_memory(self, memory, memory_embedding=None):
        """Returns the attention's keys z and values z + e, to be passed as `memory` at every step.

        Args:
            memory: z, [B, S, M].
            memory_embedding: e, [B, S, M], or `None`.
        """
        return self.attention.project_memory(_values(memory, memory_embedding), memory)

    def create_cache(self, batch_size):
        """Returns an empty cache: the last inputs of the convolution, and the number of positions, `index`.

        Args:
            batch_size: B.
        """
        inputs = ops.zeros((batch_size, self.width - 1, self.inputs_dim), dtype=self.compute_dtype)
        return {"inputs": inputs, "index": ops.zeros((), dtype="int32")}

    def call(
        self,
        inputs,
        target_embedding=None,
        memory=None,
        memory_embedding=None,
        mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
        *,
        cache=None,
        inputs_mask=None,
    ):
        mask = inputs_mask if mask is None else mask
        self._check_attention(target_embedding, memory)
        mask = check_mask(mask, "mask", (2,))
        memory_mask = check_mask(single_mask(memory_mask), "memory_mask", (2,))
        index = 0 if cache is None else cache["index"]
        hidden, cache = self._convolve(inputs, mask, training, cache)
        if self.attention is None:
            return pack_results(hidden, cache)
        query = self.query_dense(hidden) + target_embedding
        options = {"query_mask": mask, "value_mask": memory_mask, "training": training}
        if self.attention.needs_query_position:
            options["start_index"] = index
        options["return_attention_scores"] = return_attention_scores
        if isinstance(memory, dict):
            results = self.attention(query, memory=memory, **options)
        else:
            results = self.attention(query, _values(memory, memory_embedding), memory, **options)
        context, weights = results if return_attention_scores else (results, None)
        # The attention may have another dtype policy.
        context = ops.cast(context, self.compute_dtype) * self._scale(memory, memory_mask)
        if self.context_dense is not None:
            context = self.context_dense(context)
        return pack_results((hidden + context) * HALF, weights, cache)

    def _convolve(self, inputs, mask, training, cache):
        """Returns the gated convolution with its residual, [B, T, D], and the new cache or `None`."""
        if cache is not None and self.padding != "causal":
            raise ValueError(f"`cache` requires `padding='causal'`. Received: padding={self.padding!r}.")
        inputs = zero_masked(inputs, mask)
        dropped = self.dropout_layer(inputs, training=training)
        length = ops.shape(inputs)[1]
        if cache is None:
            left = self.width - 1 if self.padding == "causal" else (self.width - 1) // 2
            padded = ops.pad(dropped, ((0, 0), (left, self.width - 1 - left), (0, 0)))
        else:
            padded = ops.concatenate([cache["inputs"], dropped], axis=1)
            cache = {"inputs": padded[:, length:], "index": cache["index"] + length}
        window = ops.concatenate([padded[:, i : i + length] for i in range(self.width)], axis=-1)  # [B, T, k · D]
        values, gates = ops.split(self.convolution_dense(window), 2, axis=-1)
        return (inputs + values * ops.sigmoid(gates)) * HALF, cache

    def _scale(self, memory, memory_mask):
        """Returns √m: the variance of a mean over m positions is 1 / m of that of a single position."""
        if memory_mask is None:
            values = memory["value"] if isinstance(memory, dict) else memory
            return ops.cast(ops.sqrt(ops.cast(ops.shape(values)[-2], "float32")), self.compute_dtype)
        count = ops.sum(ops.cast(memory_mask, "float32"), axis=-1)
        return ops.cast(ops.sqrt(count), self.compute_dtype)[:, None, None]

    def compute_output_shape(self, inputs_shape, *args, **kwargs):
        return inputs_shape


def _values(memory, memory_embedding):
    return memory if memory_embedding is None else memory + memory_embedding
