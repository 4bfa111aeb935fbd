"""Masks that come with the inputs, as from `Embedding(mask_zero=True)`, are as those that are given."""

import keras
import numpy as np
from support.every import every
from support.layers.contract import random_array, to_numpy

from zoo import layers

TOKENS = np.array([[3, 5, 2, 0, 0], [4, 1, 0, 0, 0]])
MEMORY = random_array((2, 7, 4), 1)


def _decoder():
    heads = (layers.MultiHeadAttention(2, 3) for _ in range(2))
    return layers.TransformerDecoderBlock(*heads, layers.FeedForward(5))


def _recurrent():
    return layers.AttentionRNN(layers.LuongAttentionCell(keras.layers.GRUCell(4), layers.AdditiveAttention(3), 4))


def _convolution():
    return layers.GatedConvolutionBlock(3, attention=layers.DotAttention())


def test_masks_of_embeddings_arrive():
    makers = ((_decoder, ()), (_recurrent, ()), (_convolution, (random_array((2, 5, 4), 2),)))
    with every() as failures:
        for make, extra in makers:
            with failures.of(make.__name__):
                _check(make(), extra)


def _check(layer, extra):
    embedding = keras.layers.Embedding(7, 4, mask_zero=True)
    memory = (MEMORY, MEMORY) if extra else (MEMORY,)
    embedded = embedding(TOKENS)
    found = to_numpy(layer(embedded, *extra, *memory))
    vectors, mask = keras.ops.convert_to_tensor(to_numpy(embedded)), TOKENS != 0
    np.testing.assert_array_equal(found, to_numpy(layer(vectors, *extra, *memory, mask=mask)))
    assert not np.array_equal(found, to_numpy(layer(vectors, *extra, *memory)))
    everything = np.ones(TOKENS.shape, bool)  # what is given wins
    given = to_numpy(layer(embedded, *extra, *memory, mask=everything))
    np.testing.assert_array_equal(given, to_numpy(layer(vectors, *extra, *memory)))
