"""The weights that each text asks for, against loops."""

import itertools

import numpy as np
import tensorflow as tf

from export.graph.attention_weights import ALL, NUMBERS, chosen

LAYERS, HEADS = 3, 2
WEIGHTS = np.random.default_rng(0).random([5, LAYERS, HEADS, 2, 7], np.float32)  # of five texts
OF_LAYERS = [[ALL], -1, [0, ALL, -3, 2, 1], [[1, -1], [0, 0], [ALL, 0], [2, 1], [1, 2]]]
OF_HEADS = [ALL, 1, [-1, 0, ALL, 1, -2], [[1, 0]]]


@tf.function(input_signature=[tf.TensorSpec([None] * 5, tf.float32), NUMBERS, NUMBERS], autograph=False)
def function(weights, layer, head):
    return chosen({"kind": weights}, layer, head)["kind"]


def asked(numbers, text, count):
    """Returns the numbers that a text asks for, of so many."""
    numbers = np.asarray(numbers)
    row = np.atleast_1d(numbers if numbers.ndim == 0 else numbers[text if len(numbers) > 1 else 0])
    return list(range(count)) if ALL in row else row.tolist()


def test_each_text_gets_what_it_asks_for_and_then_zeros():
    for layer, head in itertools.product(OF_LAYERS, OF_HEADS):
        received = function(WEIGHTS, layer, head).numpy()
        widths = []
        for text, weights in enumerate(WEIGHTS):
            layers, heads = asked(layer, text, LAYERS), asked(head, text, HEADS)
            expected = np.zeros_like(received[text])
            for place, number in enumerate(layers):
                for column, other in enumerate(heads):
                    expected[place, column] = weights[number, other]
            np.testing.assert_array_equal(received[text], expected, err_msg=f"{layer}, {head}")
            widths.append((len(layers), len(heads)))
        assert received.shape[1:3] == tuple(np.max(widths, axis=0)), "as many as the text that asks for most"
    half = tf.cast(WEIGHTS, tf.bfloat16)
    assert chosen({"kind": half}, tf.constant([0] * 5), tf.constant(ALL))["kind"].dtype == tf.float32
