"""Where the straight path may not be taken: what is replaced, overridden or of another precision counts."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import random_array, to_numpy

import zoo
from zoo import layers
from zoo.decoding_options import GenerationOptions
from zoo.inference.generator import Generator

X = random_array((2, 3, 8), 1)


def test_a_projection_of_another_precision_keeps_it():
    layer = layers.MultiHeadAttention(2, 4, dtype="mixed_float16")
    layer.build(X.shape, X.shape)
    layer.output_dense.dtype_policy = "float32"
    layer.output_dense.kernel.assign(np.full((8, 8), 1e5))  # more than float16 holds
    assert np.all(np.isfinite(to_numpy(layer(X, X))))


def test_a_projection_whose_call_is_replaced_is_called():
    layer = layers.MultiHeadAttention(2, 4)
    layer(X, X)
    for dense in (layer.query_dense, layer.key_dense):
        dense.call = lambda inputs, training=None: inputs * 0
    weights = to_numpy(layer(X, X, return_attention_scores=True)[1])
    np.testing.assert_allclose(weights, 1 / 3, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: layers.MultiHeadAttention(2, 4), lambda: layers.FeedForward(5)])
def test_inputs_of_another_size_are_one_error(make):
    layer = make()
    inputs = [X] * (2 if isinstance(layer, layers.MultiHeadAttention) else 1)
    layer(*inputs)
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 8"):
        layer(X[..., :6], *inputs[1:])


class InABranch(layers.BaseAttention):
    """Reads positions and masks inside of a branch first."""

    def compare(self, query, key, visibility):
        scores = ops.matmul(query, ops.swapaxes(key, -1, -2))

        def nearer():
            steps = ops.abs(visibility.key_positions - visibility.query_positions[:, None])
            hidden = 0.0 if visibility.mask() is None else ops.cast(visibility.mask(), scores.dtype)
            return scores - ops.cast(steps, scores.dtype) + hidden

        return ops.cond(ops.sum(query) > -1e9, nearer, lambda: scores)


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_read_first_in_a_branch_does_not_leak(causal):
    layer = InABranch()
    expected = to_numpy(layer(X, X, use_causal_mask=causal))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for shape in (X.shape, (None, None, 8)):
            called = tf.function(lambda x: layer(x, x, use_causal_mask=causal), [tf.TensorSpec(shape)], autograph=False)
            np.testing.assert_allclose(called(X), expected, atol=1e-6)
    assert not np.allclose(expected, to_numpy(layers.DotAttention()(X, X, use_causal_mask=causal)))


@pytest.fixture
def model():
    model = zoo.create_model(
        "causal_lm_tiny", vocab_size=13, num_layers=1, model_dim=8, intermediate_dim=11, num_heads=2, max_length=16
    )
    model({"tokens": np.array([[1, 5]], "int32")})
    chance = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(chance.normal(0, 0.6, weight.shape))
    return model


def greedy(model):
    """Returns what the model writes after the start and a token, both included, and its log probability."""
    results = Generator(model, GenerationOptions(max_length=5, temperature=0.0))({"prompt": np.array([[5]], "int32")})
    return [1, *to_numpy(results["ids"]).astype(int).ravel().tolist()], to_numpy(results["log_prob"]).item()


def written_by_teacher_forcing(model):
    ids, total = [1, 5], 0.0
    while len(ids) < 6 and ids[-1] != 2:
        logits = to_numpy(model({"tokens": np.array([ids], "int32")}))[0, -1].astype("float64")
        logits[[0, 1]] = -np.inf
        ids.append(int(logits.argmax()))
        total += logits.max() - np.logaddexp.reduce(logits)
    return ids, total


def _other_projection(attention, **options):
    dense = keras.layers.Dense(8, **options)
    dense.build((None, 8))
    for weight in dense.weights:
        weight.assign(np.random.default_rng(5).normal(0, 0.6, weight.shape))
    attention._tracker.unlock()
    attention.value_dense = dense


def _projection_of_an_instance(attention):
    project = attention.project_memory
    attention.project_memory = lambda *inputs, **options: {
        name: tensor * 0 for name, tensor in project(*inputs, **options).items()
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda attention: None,
        lambda attention: _other_projection(attention, use_bias=False, activation="relu"),
        lambda attention: _other_projection(attention, use_bias=True),
        lambda attention: _other_projection(attention, use_bias=False),
        _projection_of_an_instance,
    ],
)
def test_steps_compute_what_teacher_forcing_does(model, change):
    change(model.blocks[0].attention)
    (expected, log_prob), (written, found) = written_by_teacher_forcing(model), greedy(model)
    assert written[: len(expected)] == expected and len(expected) >= 4
    np.testing.assert_allclose(found, log_prob, rtol=1e-4)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="its loops assign nothing")
def test_what_a_step_assigns_stays(model):
    count, attention = keras.Variable(0.0, trainable=False), model.blocks[0].attention
    compare = attention.compare

    def counting(*inputs):
        count.assign(count + 1.0)
        return compare(*inputs)

    attention.compare = counting
    greedy(model)
    assert float(count) > 1


def test_windows_of_an_unknown_number_of_keys():
    query, value = random_array((2, 4, 8), 1), random_array((2, 7, 8), 2)
    for layer in (
        layers.SlidingWindowAttention(2, 4, window=3, implementation="blockwise"),
        layers.BlockLocalAttention(2, 4, block_size=3, implementation="blockwise"),
    ):
        inputs = [keras.Input((4, 8)), keras.Input((None, 8))]
        model = keras.Model(inputs, layer(*inputs))
        np.testing.assert_allclose(to_numpy(model([query, value])), to_numpy(layer(query, value)), atol=1e-5)
