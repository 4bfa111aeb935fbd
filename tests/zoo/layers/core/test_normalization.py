"""Layer normalisation with a written-out gradient beside Keras', which differentiates its operations."""

import keras
import numpy as np
from keras import ops
from support.every import every
from support.layers.contract import gradients, tensorflow_only, to_numpy

from zoo import layers
from zoo.layers.core import normalization
from zoo.layers.core.normalization import LayerNormalization

SHAPE = (3, 5, 8)


def outputs_and_gradients(cls, **options):
    """Returns output, and the gradients of inputs and weights, of a layer in training."""
    chance = np.random.default_rng(0)
    layer = cls(**options)
    layer.build(SHAPE)
    for weight in layer.weights:
        weight.assign(chance.normal(size=weight.shape))
    inputs = keras.Variable(chance.normal(2.0, 3.0, size=SHAPE), dtype=layer.compute_dtype)
    factors = ops.convert_to_tensor(chance.normal(size=SHAPE), dtype="float32")
    training = {"training": True} if cls is LayerNormalization else {}

    def outputs():
        return layer(ops.convert_to_tensor(inputs), **training)

    found = gradients(lambda: ops.sum(ops.cast(outputs(), "float32") * factors), [inputs, *layer.trainable_variables])
    assert keras.backend.standardize_dtype(outputs().dtype) == layer.compute_dtype
    return [to_numpy(each) for each in (ops.stop_gradient(outputs()), *found)]


def test_outputs_and_gradients_are_those_of_keras():
    kinds = [{}, {"epsilon": 0.1}, {"axis": 2}, {"axis": [1, 2]}, {"scale": False}, {"center": False}]
    with every() as failures:
        for options in kinds:
            with failures.of(options):
                classes = LayerNormalization, keras.layers.LayerNormalization
                ours, theirs = (outputs_and_gradients(cls, **options) for cls in classes)
                for own, other in zip(ours, theirs, strict=True):
                    np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


def test_half_precision_is_worked_out_in_float32():
    wholes = outputs_and_gradients(LayerNormalization, dtype="float32")
    for dtype in ("mixed_bfloat16", "mixed_float16"):
        for half, whole in zip(outputs_and_gradients(LayerNormalization, dtype=dtype), wholes, strict=True):
            np.testing.assert_allclose(half, whole, rtol=0.02, atol=0.02 * np.abs(whole).max())


@tensorflow_only("elsewhere it is Keras' own")
def test_the_gradient_is_written_out_in_training_alone(monkeypatch):
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.norm = LayerNormalization()

        def call(self, inputs, training=None):
            return self.norm(inputs)

    asked, normalize = [], normalization._normalize
    monkeypatch.setattr(normalization, "_normalize", lambda *args: asked.append(True) or normalize(*args))
    block, inputs = Block(), np.random.default_rng(0).normal(size=SHAPE)
    rest = block(inputs)
    assert not asked
    np.testing.assert_allclose(to_numpy(block(inputs, training=True)), to_numpy(rest), atol=1e-6)
    assert asked


def test_blocks_pass_the_masks_of_embeddings_on_without_a_warning():
    embedded = keras.layers.Embedding(5, 8, mask_zero=True)(np.array([[3, 0]]))
    for kind in normalization.NORMALIZATIONS:
        block = layers.TransformerEncoderBlock(
            layers.MultiHeadAttention(2, 4), layers.FeedForward(5), normalize_first=True, normalization=kind
        )
        np.testing.assert_array_equal(to_numpy(block(embedded)._keras_mask), [[True, False]])


@tensorflow_only("elsewhere the layer is Keras' own")
def test_second_derivatives_are_those_of_the_first_ones():
    import tensorflow as tf

    chance, layer = np.random.default_rng(3), LayerNormalization(dtype="float64")
    layer.build(SHAPE)
    inputs, direction, factors = (tf.constant(chance.normal(size=SHAPE)) for _ in range(3))

    def derivative(inputs, training):
        """Returns the derivative of the squared gradient in the direction."""
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                loss = tf.reduce_sum(layer(inputs * inputs, training=training) * factors)
            squared = tf.reduce_sum(tf.square(tape.gradient(loss, inputs)))
        return squared, tf.reduce_sum(outer.gradient(squared, inputs) * direction)

    step = 1e-5
    for training in (False, True):
        after, before = (derivative(inputs + sign * step * direction, training)[0] for sign in (1, -1))
        np.testing.assert_allclose(derivative(inputs, training)[1], (after - before) / (2 * step), rtol=1e-5)
