"""What convolution, recurrence and self-attention cost, as it is taught."""

import keras
import numpy as np
import pytest
from introductions.conftest import array, long, numpy

from zoo import layers

N, D, K = 12, 16, 3


def row_the_cost_of_convolution(lines):
    assert lines(n=N, d=D, k=K)["multiplications"] == K * (N - K + 1) * D * D


def row_the_cost_of_recurrence(lines):
    assert lines(n=N, d=D)["multiplications"] == 2 * N * D * D


def row_the_cost_of_self_attention(lines):
    assert lines(x=array(1, N, D), n=N)["multiplications"] == N * N * D


@pytest.fixture(scope="module")
def three():
    """The three layers, built for N positions of size D."""
    made = {
        "convolution": keras.layers.Conv1D(D, K, padding="same"),
        "recurrence": keras.layers.SimpleRNN(D, return_sequences=True),
    }
    for layer in made.values():
        layer.build((1, N, D))
    attention = layers.ScaledDotProductAttention()
    attention(array(1, N, D), array(1, N, D))
    return {**made, "attention": attention}


def row_sequential_steps(lines, three):
    assert lines(n=N, **three)["steps"] == [1, N, 1]


def row_the_longest_path(lines, three):
    assert lines(n=N, **three)["paths"] == [N / K, N, 1]


def row_measured_and_drawn(command_lines):
    from benchmarks.growth import LAYERS

    ((module, arguments),) = command_lines
    measured = [LAYERS[name] for name in arguments[1::2]]
    assert module == "benchmarks.growth"
    assert [layer.multiplications for layer in measured] == ["k·n·d²", "n·d²", "n²·d"]
    assert [(layer.steps, layer.longest_path) for layer in measured] == [("1", "n/k"), ("n", "n"), ("1", "1")]


@long
def row_words_that_are_far_apart(lines):
    def gradient(layer, x):
        """Returns the largest derivative of the last output by each word, by backpropagation."""
        import tensorflow as tf

        words = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(words)
            last = tf.reduce_sum(layer(words)[:, -1])
        return np.abs(numpy(tape.gradient(last, words))[0]).max(axis=-1)

    gru = keras.layers.GRU(32, return_sequences=True)
    attention = layers.MultiHeadAttention(num_heads=2, key_dim=16)
    far = lines(gradient=gradient, x=array(1, 100, 32), gru=gru, attention=lambda x: attention(x, x))["far"]
    assert far["gru"] < 1e-15 < 1e-3 < far["attention"]


def test_rows(check_rows):
    check_rows()


@pytest.mark.nightly
def test_long_rows(check_rows):
    check_rows(are_long=True)
