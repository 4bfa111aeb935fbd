"""`rope_scaling` of the Transformers of all tasks: what the layers get."""

import numpy as np
import pytest
from support import models

import zoo
from zoo import layers

SIZES = {
    "transformer_modern": {"source_vocab_size": 13, "target_vocab_size": 13},
    "causal_lm_modern": {"vocab_size": 13},
    "transformer_classifier": {"vocab_size": 13, "num_classes": 3, "positions": "rotary"},
    "self_attention_classifier": {"vocab_size": 13, "num_classes": 3, "positions": "rotary"},
}
SMALL = {"model_dim": 8, "num_layers": 1, "num_heads": 2, "num_key_value_heads": 1, "intermediate_dim": 5}
LLAMA = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


def scalings(model):
    """Returns the scaling of each rotary position object of a model."""
    found = [part.scaling for part in model._flatten_layers() if isinstance(part, layers.RotaryPositions)]
    assert found
    return found


SCALINGS = [
    ({}, None),
    ({"rope_scaling": "linear", "rope_factor": 4}, {"factor": 4.0}),
    ({"rope_scaling": "ntk", "rope_factor": 2}, {"factor": 2.0}),
    ({"rope_scaling": "yarn", "rope_factor": 4}, {"factor": 4.0, "original_max_position_embeddings": 13}),
    (
        {"rope_scaling": "llama3", "rope_factor": 8, "rope_original_length": 19},
        {"factor": 8.0, "original_max_position_embeddings": 19, **LLAMA},
    ),
]


@pytest.mark.parametrize("name", SIZES)
def test_rotary_positions_get_the_scaling(name):
    spec = zoo.get_spec(name)
    small = {option: value for option, value in SMALL.items() if option in spec.config}
    for options, expected in SCALINGS:
        model = spec.load_class()(**{**spec.config, "max_length": 53, **small, **SIZES[name], **options})
        expected = expected and {"rope_type": options["rope_scaling"], **expected}
        assert scalings(model) == [expected] * len(scalings(model)), options


def test_xpos_is_scaled_too():
    options = {**SMALL, "positions": "xpos", "rope_scaling": "linear", "rope_factor": 2}
    model = zoo.create_model("causal_lm_tiny", vocab_size=13, **options)
    assert scalings(model) == [{"rope_type": "linear", "factor": 2.0}]


def test_a_scaling_changes_what_is_far_alone():
    plain, scaled = (
        models.create("causal_lm_modern", vocab_size=13, **SMALL, **options)
        for options in ({}, {"rope_scaling": "linear", "rope_factor": 2})
    )
    tokens = np.array([[1, 4, 5, 6, 7]], "int32")
    first, second = (models.numpy(model({"tokens": tokens})) for model in (plain, scaled))
    assert (first[:, 0] == second[:, 0]).all() and (first[:, 2:] != second[:, 2:]).any()


def test_a_part_of_each_head_is_rotated():
    model = models.create("causal_lm_modern", vocab_size=13, **SMALL, key_dim=10, rotary_fraction=0.5)
    assert [part.fraction for part in model._flatten_layers() if isinstance(part, layers.RotaryPositions)] == [0.5]
    assert model.options.rotated_dim == 4
