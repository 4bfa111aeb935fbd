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


def _pooling():
    return layers.SegmentPooling(2)


def _bidirectional():
    return layers.BidirectionalEncoder(3)


SEGMENTS = np.array([[0, 0, 1, 1, 1]] * 2)


def test_masks_of_embeddings_arrive():
    makers = ((_decoder, ()), (_recurrent, ()), (_convolution, (random_array((2, 5, 4), 2),)), (_pooling, None))
    with every() as failures:
        for make, extra in makers:
            with failures.of(make.__name__):
                _check(make(), extra)


def test_masks_of_embeddings_arrive_beside_segments():
    embedded, layer = keras.layers.Embedding(7, 4, mask_zero=True)(TOKENS), _bidirectional()
    vectors = keras.ops.convert_to_tensor(to_numpy(embedded))
    expected = to_numpy(layer(vectors, mask=TOKENS != 0, segments=SEGMENTS))
    np.testing.assert_array_equal(to_numpy(layer(embedded, segments=SEGMENTS)), expected)
    assert not np.array_equal(to_numpy(layer(vectors, segments=SEGMENTS)), expected)


def _check(layer, extra):
    embedding = keras.layers.Embedding(7, 4, mask_zero=True)
    memory = (MEMORY, MEMORY) if extra else (MEMORY,)
    extra, memory = ((), (SEGMENTS,)) if extra is None else (extra, memory)
    embedded = embedding(TOKENS)
    found = to_numpy(layer(embedded, *extra, *memory))
    vectors, mask = keras.ops.convert_to_tensor(to_numpy(embedded)), TOKENS != 0
    np.testing.assert_array_equal(found, to_numpy(layer(vectors, *extra, *memory, mask=mask)))
    assert not np.array_equal(found, to_numpy(layer(vectors, *extra, *memory)))
    everything = np.ones(TOKENS.shape, bool)  # what is given wins
    given = to_numpy(layer(embedded, *extra, *memory, mask=everything))
    np.testing.assert_array_equal(given, to_numpy(layer(vectors, *extra, *memory)))
