"""Rematerialisation: the same steps with dropout, what is kept, and models that have nothing to compute again."""

import keras
import numpy as np
import pytest

import zoo
from training.optimization.rematerialization import rematerialize
from zoo.errors import InputError

SIDES = {"source_vocab_size": 12, "target_vocab_size": 12}


def steps_of(remat, name, **options):
    """Returns losses, weights and the states of the generators of seeds after three steps."""
    keras.utils.set_random_seed(1)
    model = zoo.create_model(name, dropout=0.3, **options)
    if remat:
        rematerialize(model)
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    draw = np.random.default_rng(0)
    source, target, following = (draw.integers(4, 12, (3, 5)).astype("int32") for _ in range(3))
    source[0, 3:] = 0
    inputs = {"source": source, "target": target} if "source_vocab_size" in options else {"tokens": target}
    losses = [float(model.train_on_batch(inputs, following)) for _ in range(3)]
    weights, seeds = model.trainable_variables, model.non_trainable_variables
    return losses, *([keras.ops.convert_to_numpy(variable) for variable in group] for group in (weights, seeds))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("causal_lm_tiny", {"vocab_size": 12, "num_layers": 1, "model_dim": 16, "intermediate_dim": 16}),
        pytest.param(
            "transformer_tiny_relative",
            {**SIDES, "num_layers": 1, "model_dim": 16, "intermediate_dim": 16},
            marks=pytest.mark.nightly,
        ),
        pytest.param("convs2s_small", {**SIDES, "embedding_dim": 8, "units": 8}, marks=pytest.mark.nightly),
    ],
)
def test_steps_are_the_same_with_dropout(name, sizes):
    losses, weights, seeds = steps_of(False, name, **sizes)
    again, other, seeds_again = steps_of(True, name, **sizes)
    np.testing.assert_allclose(again, losses, rtol=1e-5)
    for before, after in zip(weights, other, strict=True):
        np.testing.assert_allclose(after, before, atol=1e-5)
    np.testing.assert_array_equal(seeds_again, seeds)  # the masks of the next step are others
    assert len(set(losses)) == 3


def test_a_model_without_blocks_is_refused():
    with pytest.raises(InputError, match=r"training\.remat.*Transformer"):
        rematerialize(zoo.create_model("rnnsearch", source_vocab_size=9, target_vocab_size=9))
