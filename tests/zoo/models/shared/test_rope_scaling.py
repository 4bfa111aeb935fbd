"""`rope_scaling` of the Transformers of all tasks: what the layers get, and what is refused."""

import numpy as np
import pytest
from support import models

import zoo
from zoo import layers
from zoo.errors import InputError

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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, None),
        ({"rope_scaling": "linear", "rope_factor": 4}, {"factor": 4.0}),
        ({"rope_scaling": "ntk", "rope_factor": 2}, {"factor": 2.0}),
        ({"rope_scaling": "yarn", "rope_factor": 4}, {"factor": 4.0, "original_max_position_embeddings": 13}),
        (
            {"rope_scaling": "llama3", "rope_factor": 8, "rope_original_length": 19},
            {"factor": 8.0, "original_max_position_embeddings": 19, **LLAMA},
        ),
    ],
)
@pytest.mark.parametrize("name", SIZES)
def test_rotary_positions_get_the_scaling(name, options, expected):
    known = zoo.get_spec(name).config
    small = {option: value for option, value in SMALL.items() if option in known}
    model = zoo.create_model(name, max_length=53, **small, **SIZES[name], **options)
    expected = expected and {"rope_type": options["rope_scaling"], **expected}
    assert scalings(model) == [expected] * len(scalings(model))


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rope_scaling": "yarn", "positions": "alibi"},
            "`rope_scaling` is for the positions rotary and xpos. Received: rope_scaling='yarn', positions='alibi'.",
        ),
        (
            {"rope_factor": 4},
            "`rope_factor` needs a `rope_scaling`: linear, ntk, yarn, llama3. "
            "Received: rope_factor=4.0, rope_scaling='none'.",
        ),
        (
            {"rope_original_length": 64},
            "`rope_original_length` needs a `rope_scaling`: linear, ntk, yarn, llama3. "
            "Received: rope_original_length=64, rope_scaling='none'.",
        ),
        (
            {"rope_scaling": "linear", "rope_factor": 0.5},
            "`rope_factor` must be a finite number of 1 or more. Received: rope_factor=0.5.",
        ),
        ({"rope_scaling": "long"}, "`rope_scaling` must be none, linear, ntk, yarn or llama3. Received: .*'long'."),
        (
            {"rope_scaling": "ntk", "rope_factor": 2, "model_dim": 4, "num_heads": 2, "num_key_value_heads": 0},
            "`rope_scaling='ntk'` rotates pairs of features: heads need at least four. .* num_heads=2.",
        ),
    ],
)
def test_errors(options, message):
    with pytest.raises(InputError, match=message):
        zoo.create_model("causal_lm_modern", vocab_size=13, **options)


@pytest.mark.parametrize("name", ["transformer_modern", "transformer_classifier"])
def test_retention_is_for_language_models(name):
    with pytest.raises(InputError, match="`self_attention` must be full, local, .* Received: .*'retention'"):
        zoo.create_model(name, self_attention="retention", **SIZES[name])


def test_retention_has_no_scores():
    for options in ({"score": "additive"}, {"attention_dropout": 0.1}, {"positions": "alibi"}):
        with pytest.raises(InputError, match="does not go together with self_attention='retention'"):
            zoo.create_model("retnet_lm", vocab_size=13, **options)


def test_a_part_of_each_head_is_rotated():
    model = zoo.create_model("causal_lm_modern", vocab_size=13, **SMALL, key_dim=10, rotary_fraction=0.5)
    assert [part.fraction for part in model._flatten_layers() if isinstance(part, layers.RotaryPositions)] == [0.5]
    assert model.options.rotated_dim == 4
    with pytest.raises(InputError, match="`rotary_fraction` is for the positions rotary and xpos"):
        zoo.create_model("gpt2", vocab_size=13, rotary_fraction=0.5)
    with pytest.raises(InputError, match="heads need at least two"):
        zoo.create_model("causal_lm_modern", vocab_size=13, **SMALL, rotary_fraction=0.25)


def test_parallel_parts_need_pre_norm():
    with pytest.raises(InputError, match="`parallel_residual` needs `normalize_first`"):
        zoo.create_model("gpt2", vocab_size=13, normalize_first=False, parallel_residual=True)
