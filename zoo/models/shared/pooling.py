"""Layers of text encoders: pooling of token vectors, and dropout of whole tokens."""

import keras
from keras import ops

from zoo import layers
from zoo.vocabulary import UNKNOWN


def make_pooling(pooling, **kwargs):
    """Returns a layer `(inputs [B, S, D], mask [B, S]) → [B, D]`; the vector of an empty text is zero.

    Args:
        pooling: `"mean"` or `"max"` of the real positions; `"attention"`, their weighted mean by additive attention
            from a learned query with a hidden layer of size D; or `"first"`, the first of them.
        **kwargs: Arguments of the layer.

    Reference:
        Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2,
        https://aclanthology.org/N16-1174
    """
    if pooling == "attention":
        attention = layers.AdditiveAttention(dtype=kwargs.get("dtype"), name="attention")
        return layers.AttentionPooling(attention, **kwargs)
    return {"mean": MeanPooling, "max": MaxPooling, "first": FirstPooling}[pooling](**kwargs)


class MaskedPooling(keras.layers.Layer):
    """Base of the poolings without weights.

    Call arguments:
        inputs: [B, S, D].
        mask: Boolean [B, S], True at real positions.

    Returns:
        [B, D].
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_mask(self, inputs, mask=None):
        """Returns no mask, because the result has no padding."""
        return None


class MeanPooling(MaskedPooling):
    """Mean of the real positions, summed in float32."""

    def call(self, inputs, mask):
        real = ops.cast(mask, "float32")[:, :, None]
        total = ops.sum(ops.cast(inputs, "float32") * real, axis=1)
        return ops.cast(total / ops.maximum(ops.sum(real, axis=1), 1.0), inputs.dtype)


class MaxPooling(MaskedPooling):
    """Largest value of each feature among the real positions."""

    def call(self, inputs, mask):
        largest = ops.max(ops.where(mask[:, :, None], inputs, ops.cast(-6e4, inputs.dtype)), axis=1)
        return ops.where(ops.any(mask, axis=1)[:, None], largest, ops.zeros_like(largest))


class FirstPooling(MaskedPooling):
    """The vector of the first real position, such as that of a classification token."""

    def call(self, inputs, mask):
        # PyTorch's exporter fixes the batch size of `ops.take_along_axis`.
        places = ops.arange(ops.shape(mask)[1], dtype="int32")
        is_first = places == ops.cast(ops.argmax(ops.cast(mask, "int32"), axis=1), "int32")[:, None]
        first = ops.sum(ops.where(is_first[..., None], inputs, ops.zeros_like(inputs)), axis=1)
        return ops.where(ops.any(mask, axis=1)[:, None], first, ops.zeros_like(first))


class RandomTokens(keras.layers.Layer):
    """Base of the layers that select random tokens in training.

    Args:
        rate: Fraction of the tokens, 0 ≤ rate < 1.
        seed: Seed of the selection.
    """

    def __init__(self, rate=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def select(self, shape):
        """Returns a boolean tensor, `True` at the selected tokens."""
        return keras.random.uniform(shape, seed=self.seed_generator) < self.rate


class TokenDropout(RandomTokens):
    """Masks random tokens in training; see `RandomTokens` for the arguments.

    Call arguments:
        mask: Boolean [B, S], True at real positions.
        training: Whether dropout is active.

    Returns:
        Boolean [B, S], True at the remaining positions; a short text may have none.
    """

    def call(self, mask, training=None):
        if not training or not self.rate:
            return mask
        return ops.logical_and(mask, ops.logical_not(self.select(ops.shape(mask))))


class WordDropout(RandomTokens):
    """Replaces random tokens by the unknown token in training; see `RandomTokens` for the arguments.

    The model then depends less on single words, and learns to read the unknown token. Padding and the other special
    tokens are not replaced.

    Call arguments:
        tokens: Ids [B, S].
        training: Whether dropout is active.

    Returns:
        Ids [B, S].

    Reference:
        Bowman et al. 2016, "Generating Sentences from a Continuous Space", section 3.1,
        https://arxiv.org/abs/1511.06349
    """

    def call(self, tokens, training=None):
        if not training or not self.rate:
            return tokens
        dropped = ops.logical_and(self.select(ops.shape(tokens)), tokens > UNKNOWN)
        return ops.where(dropped, ops.full_like(tokens, UNKNOWN), tokens)
