"""From a vector for each token to one for the text."""

import keras
from keras import ops

from zoo import layers


def make_pooling(pooling, **kwargs):
    """Returns a layer `(inputs [B, S, D], mask [B, S]) → [B, D]`; a text without real positions has zeros.

    Args:
        pooling: `"mean"` or `"max"`, of the real positions, or `"attention"`: their weighted mean, by additive
            attention from a learned query with a hidden layer of size D; or `"first"`, the first of them.
        **kwargs: Options of the layer.

    Reference:
        Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2,
        https://aclanthology.org/N16-1174
    """
    if pooling == "attention":
        attention = layers.AdditiveAttention(dtype=kwargs.get("dtype"), name="attention")
        return layers.AttentionPooling(attention, **kwargs)
    return {"mean": MeanPooling, "max": MaxPooling, "first": FirstPooling}[pooling](**kwargs)


class MaskedPooling(keras.layers.Layer):
    """Base of the poolings that need no weights.

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
        """Returns no mask: the result has no padding."""
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
    """The first of the real positions, such as that of a token that begins every text."""

    def call(self, inputs, mask):
        first = ops.take_along_axis(inputs, ops.argmax(ops.cast(mask, "int32"), axis=1)[:, None, None], axis=1)[:, 0]
        return ops.where(ops.any(mask, axis=1)[:, None], first, ops.zeros_like(first))


class TokenDropout(keras.layers.Layer):
    """Hides tokens at random, in training only.

    Args:
        rate: Share of the tokens that are hidden, 0 ≤ rate < 1.
        seed: Seed of the choice.

    Call arguments:
        mask: Boolean [B, S], True at real positions.
        training: Whether dropout is active.

    Returns:
        Boolean [B, S], True at those of them that are left; in a short text there may be none.
    """

    def __init__(self, rate=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, mask, training=None):
        if not training or not self.rate:
            return mask
        chance = keras.random.uniform(ops.shape(mask), seed=self.seed_generator)
        return ops.logical_and(mask, chance >= self.rate)
