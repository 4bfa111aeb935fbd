"""Tables that also give the logits."""

import types

import keras
import numpy as np
import pytest
from keras import ops
from support.model_cases import case
from support.seq2seq_models import unbuilt

from zoo.layers.core.constants import computed_constants
from zoo.models.shared.embeddings import ReversibleEmbedding, tied_tables, weights_of_steps


@pytest.fixture
def table():
    table = ReversibleEmbedding(11, 5)
    table.build((None, None))
    return table


def model_with(table):
    return keras.Sequential([keras.Input([None], dtype="int32"), table])


def steps_with(*tables):
    """Returns what `weights_of_steps` needs of a model."""
    return types.SimpleNamespace(
        weights=[weight for table in tables for weight in table.weights], layers_of_steps=tables
    )


def logits(table, hidden):
    return ops.convert_to_numpy(table(hidden, reverse=True))


def test_logits_are_the_same_with_a_table_transposed_before(table):
    hidden = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    expected = hidden @ ops.convert_to_numpy(table.embeddings).T
    np.testing.assert_allclose(logits(table, hidden), expected, rtol=1e-5)
    with weights_of_steps(steps_with(table)):
        np.testing.assert_allclose(logits(table, hidden), expected, rtol=1e-5)


def test_logits_of_any_shape(table):
    for shape in ((3, 5), (2, 3, 5), (0, 5)):
        hidden = np.random.default_rng(0).normal(size=shape).astype("float32")
        np.testing.assert_allclose(logits(table, hidden), hidden @ ops.convert_to_numpy(table.embeddings).T, rtol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="differentiates with TensorFlow")
@pytest.mark.parametrize("length", [3, None])
def test_gradients_of_logits(table, length):
    import tensorflow as tf

    rng = np.random.default_rng(0)
    hidden, upstream = (rng.normal(size=(2, 3, size)).astype("float32") for size in (5, 11))

    @tf.function(input_signature=[tf.TensorSpec([None, length, 5]), tf.TensorSpec([None, length, 11])])
    def gradients(hidden, upstream):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            total = tf.reduce_sum(table(hidden, reverse=True) * upstream)
        return tape.gradient(total, [hidden, table._embeddings.value])

    of_hidden, of_table = gradients(hidden, upstream)
    embeddings = ops.convert_to_numpy(table.embeddings)
    np.testing.assert_allclose(of_hidden, upstream @ embeddings, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(of_table, np.einsum("btv,btd->vd", upstream, hidden), rtol=1e-4, atol=1e-6)


def test_what_is_given_counts_and_is_left_alone_inside(table):
    hidden = np.ones((2, 5), "float32")
    with computed_constants([table], [ops.ones((5, 11))]):
        with weights_of_steps(steps_with(table)):
            assert np.all(logits(table, hidden) == 5.0)
        assert np.all(logits(table, hidden) == 5.0)
    assert not np.any(logits(table, hidden) == 5.0)


def test_an_error_inside_ends_it(table):
    hidden = np.ones((2, 5), "float32")
    with pytest.raises(KeyError), computed_constants([table], [ops.ones((5, 11))]):
        raise KeyError
    assert not np.any(logits(table, hidden) == 5.0)


def test_logits_have_the_precision_of_the_policy():
    table = ReversibleEmbedding(11, 5, dtype="mixed_bfloat16")
    table.build((None, None))
    for nothing in (True, False):
        with weights_of_steps(steps_with() if nothing else steps_with(table)):
            found = table(ops.ones((2, 5)), reverse=True)
            assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"


def test_the_tables_of_a_model():
    assert len(tied_tables(unbuilt(num_layers=1, tied_embeddings="target"))) == 1
    assert not tied_tables(unbuilt(num_layers=1, tied_embeddings="none"))
    assert len(tied_tables(case("luong_dot").model)) == 1


@pytest.mark.filterwarnings("ignore:[^x]*The use of `x.T`:UserWarning")  # Keras' own, with PyTorch
def test_a_quantised_table_is_left_to_keras(table, new_garbage_alone):
    table.quantize("int8")
    model = model_with(table)
    assert not tied_tables(model)
    with weights_of_steps(steps_with(table)):
        assert table(np.ones((2, 5), "float32"), reverse=True).shape == (2, 11)


def test_configuration(table):
    again = ReversibleEmbedding.from_config(table.get_config())
    assert again.get_config() == table.get_config()
