"""Dropout of whole words."""

import keras
from keras import ops

from zoo.vocabulary import UNKNOWN


class WordDropout(keras.layers.Layer):
    """Replaces tokens at random by the unknown one, in training only.

    A model trained on texts with holes does not depend on a single word, and it has learned to read the unknown
    token. Padding and the other special tokens stay.

    Args:
        rate: Share of the tokens that are replaced, 0 ≤ rate < 1.
        seed: Seed of the choice.

    Call arguments:
        tokens: Ids [B, S].
        training: Whether dropout is active.

    Returns:
        Ids [B, S].

    Reference:
        Bowman et al. 2016, "Generating Sentences from a Continuous Space", section 3.1,
        https://arxiv.org/abs/1511.06349
    """

    def __init__(self, rate=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, tokens, training=None):
        if not training or not self.rate:
            return tokens
        chance = keras.random.uniform(ops.shape(tokens), seed=self.seed_generator)
        dropped = ops.logical_and(chance < self.rate, tokens > UNKNOWN)
        return ops.where(dropped, ops.full_like(tokens, UNKNOWN), tokens)
