"""A model made as large as another one answers as before."""

import numpy as np
import pytest
from support.models import numpy

import zoo
from benchmarks.widening import Size, widened

SMALL = {"num_layers": 1, "model_dim": 8, "num_heads": 2, "intermediate_dim": 6, "max_length": 9}


def small(**options):
    sizes = {"source_vocab_size": 11, "target_vocab_size": 11, "tied_embeddings": "all", "normalize_first": True}
    model = zoo.create_model("transformer_tiny", **sizes, **SMALL, **options)
    chance = np.random.default_rng(0)
    model.set_weights([chance.normal(size=weight.shape) for weight in model.weights])
    return model


@pytest.mark.parametrize("size", [Size(3, 32, 4, 20), None])
def test_a_larger_model_answers_as_before(size):
    model = small()
    inputs = {"source": np.array([[3, 4, 5], [6, 0, 0]]), "target": np.array([[7, 8, 9, 10], [4, 5, 0, 0]])}
    large = widened(model, 17, size)
    logits, expected = numpy(large(inputs)), numpy(model(inputs))
    np.testing.assert_allclose(logits[..., :11], expected, rtol=1e-4, atol=1e-4)
    assert np.all(logits[..., 11:] < expected.min() - 1e6)
    if size is not None:
        assert vars(size).items() <= vars(large.options).items()


@pytest.mark.parametrize("options", [{"normalize_first": False}, {"positions": "learned"}, {"tied_embeddings": "none"}])
def test_other_models_are_refused(options):
    with pytest.raises(ValueError, match="normalize_first"):
        widened(zoo.create_model("transformer_tiny", source_vocab_size=11, target_vocab_size=11, **options), 17)
