"""Cases of the contract: score functions."""

import keras
from keras import ops
from support.layers.contract import ATTENTION, DROPOUT, FLAT, Case

from zoo import layers

_PAIR = {"query": (2, 3, 11), "key": (2, 5, 17)}
# Where there are no steps, nothing has been attended to.
_COVERAGE = ("coverage/kernel", "fertility/kernel")
_EQUAL_PAIR = {"query": (2, 3, 11), "key": (2, 5, 11)}


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
class Distance(keras.layers.Layer):
    """A score of one's own with weights, −|W₁ q + b − W₂ k − c|² / units; it leaves its building to its first call."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.query_dense = keras.layers.Dense(units, dtype=self.dtype_policy, name="query")
        self.key_dense = keras.layers.Dense(units, dtype=self.dtype_policy, name="key")

    def call(self, query, key):
        query, key = self.query_dense(query), self.key_dense(key)
        return -ops.mean(ops.square(ops.expand_dims(query, -2) - ops.expand_dims(key, -3)), axis=-1)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
def first_feature(query, key):
    """A score of one's own without weights, |q₁ − k₁|."""
    return ops.abs(query[..., :1] - ops.swapaxes(key[..., :1], -1, -2))


_SCORES = [
    Case(
        "dot_score",
        layers.DotScore,
        lambda policy: layers.DotScore(dtype=policy),
        _EQUAL_PAIR,
        (2, 3, 5),
        0,
    ),
    Case(
        "scaled_dot_score",
        layers.ScaledDotScore,
        lambda policy: layers.ScaledDotScore(dtype=policy),
        _EQUAL_PAIR,
        (2, 3, 5),
        0,
    ),
    Case(
        "coverage_score",
        layers.CoverageScore,
        lambda policy: layers.CoverageScore(31, use_bias=False, kernel_initializer="he_normal", dtype=policy),
        _PAIR,
        (2, 3, 5),
        31 * (11 + 17 + 1 + 1),
        flat=_COVERAGE,
    ),
    Case(
        "coverage_score_with_fertility",
        layers.CoverageScore,
        lambda policy: layers.CoverageScore(31, max_fertility=2, dtype=policy),
        _PAIR,
        (2, 3, 5),
        31 * (11 + 1 + 17 + 1 + 1) + 17,
        flat=_COVERAGE,
    ),
    Case(
        "normalized_additive_score",
        layers.NormalizedAdditiveScore,
        lambda policy: layers.NormalizedAdditiveScore(31, False, kernel_initializer="he_normal", dtype=policy),
        _PAIR,
        (2, 3, 5),
        31 * (11 + 17 + 1) + 1,
    ),
    Case(
        "general_score",
        layers.GeneralScore,
        lambda policy: layers.GeneralScore(kernel_initializer="he_normal", dtype=policy),
        _PAIR,
        (2, 3, 5),
        11 * 17,
    ),
    Case(
        "concat_score",
        layers.ConcatScore,
        lambda policy: layers.ConcatScore(31, kernel_initializer="he_normal", dtype=policy),
        _PAIR,
        (2, 3, 5),
        31 * (11 + 17 + 1),
    ),
    Case(
        "tanh_concat_score",
        layers.TanhConcatScore,
        lambda policy: layers.TanhConcatScore(kernel_initializer="he_normal", use_bias=False, dtype=policy),
        _PAIR,
        (2, 3, 5),
        11 + 17,
    ),
    Case(
        "additive_score",
        layers.AdditiveScore,
        lambda policy: layers.AdditiveScore(31, use_bias=False, kernel_initializer="he_normal", dtype=policy),
        _PAIR,
        (2, 3, 5),
        31 * (11 + 17 + 1),
    ),
    Case(
        "additive_score_as_large_as_the_query",
        layers.AdditiveScore,
        lambda policy: layers.AdditiveScore(dtype=policy),
        {"query": (2, 7, 3, 11), "key": (2, 7, 5, 17)},
        (2, 7, 3, 5),
        11 * (11 + 1 + 17 + 1),
    ),
    Case(
        "cosine_score",
        layers.CosineScore,
        lambda policy: layers.CosineScore(temperature=0.7, dtype=policy),
        _EQUAL_PAIR,
        (2, 3, 5),
        0,
    ),
    Case(
        "cosine_score_with_learned_temperature",
        layers.CosineScore,
        lambda policy: layers.CosineScore(temperature=0.7, learn_temperature=True, dtype=policy),
        {"query": (2, 7, 3, 11), "key": (2, 7, 5, 11)},
        (2, 7, 3, 5),
        1,
    ),
    Case(
        "location_score",
        layers.LocationScore,
        lambda policy: layers.LocationScore(31, kernel_initializer="he_normal", dtype=policy),
        _PAIR,
        (2, 3, 5),
        11 * 31,
        flat=("key",),
    ),
    Case(
        "per_head_score",
        layers.PerHeadScore,
        lambda policy: layers.PerHeadScore("additive", 7, dtype=policy),
        {"query": (2, 7, 3, 11), "key": (2, 7, 5, 17)},
        (2, 7, 3, 5),
        7 * 11 * (11 + 1 + 17 + 1),
    ),
    Case(
        "callable_score_of_a_layer",
        layers.CallableScore,
        lambda policy: layers.CallableScore(Distance(31, dtype=policy), hidden_size=31, dtype=policy),
        _PAIR,
        (2, 3, 5),
        31 * (11 + 1 + 17 + 1),
    ),
    Case(
        "callable_score_of_a_function",
        layers.CallableScore,
        lambda policy: layers.CallableScore(first_feature, dtype=policy),
        _PAIR,
        (2, 3, 5),
        0,
    ),
]

# Scores that no named single-head layer has.
_SINGLE_HEAD = [
    Case(
        f"attention_with_{name}_score",
        layers.Attention,
        lambda policy, score=score: layers.Attention(score(policy), dtype=policy, **DROPOUT),
        output=(2, 3, 13),
        weights=(2, 3, 5),
        parameters=parameters,
        flat=flat,
        **ATTENTION,
    )
    for name, score, parameters, flat in (
        ("tanh_concat", lambda policy: "tanh_concat", 11 + 1 + 17, ()),
        ("location", lambda policy: layers.LocationScore(31, dtype=policy), 11 * 31, ("key",)),
        ("layer_as", lambda policy: Distance(31, dtype=policy), 31 * (11 + 1 + 17 + 1), ()),
        ("function_as", lambda policy: first_feature, 0, ()),
    )
]

_MULTI_HEAD = [
    Case(
        f"multi_head_{name}_attention",
        layers.MultiHeadAttention,
        lambda policy, score=score, size=size: layers.MultiHeadAttention(
            7, 19, score=score(policy), query_dim=size, dtype=policy, **DROPOUT
        ),
        output=(2, 3, 11),
        weights=(2, 7, 3, 5),
        parameters=7 * size * (11 + 1) + 7 * 19 * (17 + 1 + 13 + 1) + (7 * 19 + 1) * 11 + parameters,
        flat=flat,
        **ATTENTION,
    )
    for name, score, size, parameters, flat in (
        ("dot", lambda policy: "dot", 19, 0, FLAT),
        ("general", lambda policy: "general", 37, 19 * 37, FLAT),
        ("concat", lambda policy: "concat", 37, 37 * (37 + 19 + 1), ()),
        ("tanh_concat", lambda policy: "tanh_concat", 37, 37 + 1 + 19, ()),
        ("cosine", lambda policy: layers.CosineScore(0.3, learn_temperature=True, dtype=policy), 19, 1, ()),
        (
            "location",
            lambda policy: layers.LocationScore(31, dtype=policy),
            37,
            37 * 31,
            ("key", "key/kernel", "key/bias"),
        ),
        ("layer_as_score", lambda policy: Distance(31, dtype=policy), 19, 31 * (19 + 1 + 19 + 1), ()),
        (
            "layer_as_score_of_each_head",
            lambda policy: layers.PerHeadScore(Distance(31, dtype=policy), 7, dtype=policy),
            19,
            7 * 31 * (19 + 1 + 19 + 1),
            (),
        ),
        (
            "location_of_each_head",
            lambda policy: layers.PerHeadScore(layers.LocationScore(31, dtype=policy), 7, dtype=policy),
            37,
            7 * 37 * 31,
            ("key", "key/kernel", "key/bias"),
        ),
        ("function_as_score", lambda policy: first_feature, 37, 0, ()),
    )
]

CASES = _SCORES + _SINGLE_HEAD + _MULTI_HEAD
