"""Score functions: examples by hand, their edges, scores of one's own, and how a score is named."""

import functools
import math
import re

import keras
import numpy as np
import pytest
from keras import ops
from support.every import every
from support.layers.cases import CASES, first_of_each_class
from support.layers.cases.scores import Distance, first_feature
from support.layers.contract import (
    build,
    compiled,
    gradients,
    random_array,
    random_mask,
    randomize,
    to_numpy,
)

import zoo
from zoo import layers
from zoo.errors import InputError
from zoo.layers.scores import SCORES, get_score

# A score for each head knows the number of heads, and has a test of its own.
SCORE_CASES = first_of_each_class(
    [case for case in CASES if issubclass(case.covers, layers.Score) and case.covers is not layers.PerHeadScore]
)
_LN2, _LN3 = math.log(2.0), math.log(3.0)
_EYE = [[1.0, 0.0], [0.0, 1.0]]
# The hyperbolic tangent of ±99 is ±1, of ln 2 it is 3/5, and of ln 3 it is 4/5.
BY_HAND = {
    "dot": (layers.DotScore(), [], [[1, 2]], [[3, 4], [5, 0]], [[11, 5]]),
    "scaled_dot": (layers.ScaledDotScore(), [], [[1, 2, 3, 4]], [[1, 1, 1, 1], [0, 0, 0, 8]], [[5, 16]]),
    # W k = (7, 9) and (2, 2) for k = (1, 2, 3) and (0, 2, 0).
    "general": (
        layers.GeneralScore(),
        [[[0, 1], [2, 1], [1, 2]]],
        [[1, 0], [1, 2]],
        [[1, 2, 3], [0, 2, 0]],
        [[7, 4], [25, 8]],
    ),
    # The query 1 puts 4/5 into the first hidden unit, the keys put 3/5 and −3/5 into the second; v = (10, 5).
    "concat": (
        layers.ConcatScore(2),
        [[[_LN3, 0]], [[0, 0], [0, _LN2]], [[10], [5]]],
        [[1], [0]],
        [[8, 1], [8, -1]],
        [[8 + 3, 8 - 3], [3, -3]],
    ),
    "tanh_concat": (
        layers.TanhConcatScore(),
        [[[_LN3], [_LN2]], [-_LN2], [[_LN2]]],
        [[1, 1], [0, 1], [0, 0]],
        [[0], [1]],
        # Arguments ln 3 and ln 6; 0 and ln 2; −ln 2 and 0. The hyperbolic tangent of ln 6 is 35/37.
        [[0.8, 35 / 37], [0, 0.6], [-0.6, 0]],
    ),
    # tanh(99 s + 99 h − 99) / 2.
    "additive": (
        layers.AdditiveScore(1),
        [[[99]], [-99], [[99]], [[0.5]]],
        [[0], [1]],
        [[0], [1], [2]],
        [[-0.5, 0, 0.5], [0, 0.5, 0.5]],
    ),
    # The same with 2 · v / |v| in place of 1/2.
    "normalized_additive": (
        layers.NormalizedAdditiveScore(1),
        [2, [[99]], [-99], [[99]], [[0.5]]],
        [[0], [1]],
        [[0], [1], [2]],
        [[-2, 0, 2], [0, 2, 2]],
    ),
    # Of additive, where nothing is covered yet; 99 is the weight of what is.
    "coverage": (
        layers.CoverageScore(1),
        [[[99]], [-99], [[99]], [[0.5]], [[99]]],
        [[0], [1]],
        [[0], [1], [2]],
        [[-0.5, 0, 0.5], [0, 0.5, 0.5]],
    ),
    "cosine": (layers.CosineScore(0.5), [], [[3, 4], [0, 0]], [[0, 9], [-6, -8], [0, 0]], [[1.6, -2, 0], [0, 0, 0]]),
    "learned_cosine": (layers.CosineScore(9.0, True), [-_LN2], [[3, 4]], [[0, 9], [30, 40]], [[1.6, 2]]),
    "location": (
        layers.LocationScore(3),
        [[[1, 2, 3], [0, 10, 20]]],
        [[1, 0], [0, 1], [1, 1]],
        [[7], [-7]],
        [[1, 2], [0, 10], [1, 12]],
    ),
    "callable": (layers.CallableScore(first_feature), [], [[1, 9], [5, 9]], [[2], [3], [8]], [[1, 2, 7], [3, 2, 3]]),
}


def _array(values):
    return np.array(values, "float32")


def _set(layer, weights):
    layer.set_weights([_array(weight).reshape(w.shape) for weight, w in zip(weights, layer.weights, strict=True)])


def test_scores_by_hand():
    with every() as failures:
        for name, (score, weights, query, key, expected) in BY_HAND.items():
            with failures.of(name):
                score.build(_array(query).shape, _array(key).shape)
                _set(score, weights)
                np.testing.assert_allclose(to_numpy(score(_array(query), _array(key))), expected, rtol=1e-5, atol=1e-6)


def test_every_score_has_an_example_by_hand_and_a_name():
    public = {getattr(layers, name) for name in layers.__all__}
    public = {each for each in public if isinstance(each, type) and issubclass(each, layers.Score)}
    public -= {layers.Score, layers.PerHeadScore}
    assert {type(score) for score, *_ in BY_HAND.values()} == public
    assert set(SCORES.values()) == public - {layers.CallableScore, layers.CoverageScore}, (
        "what these need is given by a model"
    )


# Two orthogonal keys, scored ln 3 and 0 by the first query, and alike by the second.
LAYERS_BY_HAND = [
    (layers.DotAttention(), [], [[_LN3, 0], [0, 0]]),
    (layers.ScaledDotProductAttention(), [], [[_LN3 * math.sqrt(2), 0], [0, 0]]),
    (layers.GeneralAttention(), [[[_LN3], [0]]], [[1], [0]]),
    (layers.CosineAttention(temperature=1 / _LN3), [], [[7, 0], [5, 5]]),
    # Hidden value of the first key tanh(99), of the second tanh(0); a query of −99 takes 99 off: 0 and −1.
    (layers.ConcatAttention(1), [[[1]], [[99], [0]], [[_LN3]]], [[0], [99]]),
    (layers.AdditiveAttention(1), [[[1]], [99], [[99], [0]], [[_LN3]]], [[-99], [0]]),
]


def test_single_head_attention_by_hand():
    value = _array([[[4.0, 4.0], [0.0, 8.0]]])
    with every() as failures:
        for layer, weights, query in LAYERS_BY_HAND:
            with failures.of(layer.name):
                layer.build((1, 2, len(query[0])), (1, 2, 2), (1, 2, 2))
                _set(layer, weights)
                output, attention = layer(_array([query]), value, _array([_EYE]), return_attention_scores=True)
                np.testing.assert_allclose(to_numpy(attention)[0], [[0.75, 0.25], [0.5, 0.5]], rtol=1e-5)
                np.testing.assert_allclose(to_numpy(output)[0], [[3.0, 5.0], [2.0, 6.0]], rtol=1e-5)


def test_heads_are_scored_one_by_one_and_a_pair_of_vectors_is_enough():
    with every() as failures:
        for case in SCORE_CASES:
            with failures.of(case.name):
                score, lead = build(case), (2, 3)
                query, key = (random_array((*lead, *shape[-2:]), i) for i, shape in enumerate(case.inputs.values()))
                together = to_numpy(score(query, key))
                assert together.shape == (*lead, query.shape[-2], key.shape[-2])
                for place in ((0, 0), (1, 2)):
                    one = to_numpy(score(query[place], key[place]))
                    np.testing.assert_allclose(together[place], one, rtol=1e-5, atol=1e-6)


def test_how_much_a_pair_costs():
    made = {name: get_score(name) for name in SCORES} | {"own": layers.CallableScore(first_feature, hidden_size=13)}
    for score in made.values():
        score.build((2, 3, 11), (2, 5, 11))
    costs = {name: score.hidden_size for name, score in made.items() if score.hidden_size > 1}
    assert costs == {"additive": 11, "concat": 11, "normalized_additive": 11, "own": 13}
    assert layers.AdditiveScore(31).hidden_size == 31


def test_cosine_of_extreme_vectors_is_finite_with_finite_gradients():
    query = np.stack([np.zeros(257), np.full(257, 6e4), np.full(257, 1e-7), np.eye(257)[0]]).astype("float32")
    key = query[::-1].copy()
    # Zero and almost zero vectors have no direction; the length of the others does not matter.
    near = 2 / math.sqrt(257)
    expected = [[0, 0, 0, 0], [near, 0, 2, 0], [0, 0, 0, 0], [2, 0, near, 0]]
    for policy, learn in (("float32", False), ("float32", True), ("mixed_bfloat16", False), ("mixed_float16", True)):
        score = layers.CosineScore(temperature=0.5, learn_temperature=learn, dtype=policy)
        score.build(query.shape, key.shape)
        variables = [keras.Variable(query), keras.Variable(key), *score.trainable_variables]

        def loss(score=score, variables=variables):
            return ops.sum(ops.cast(score(*map(ops.convert_to_tensor, variables[:2])), "float32"))

        assert all(np.all(np.isfinite(gradient)) for gradient in gradients(loss, variables))
        np.testing.assert_allclose(to_numpy(score(query, key)), expected, rtol=1e-2, atol=1e-6)


def test_learned_temperature_begins_where_it_is_told_and_stays_positive():
    score = layers.CosineScore(temperature=0.25, learn_temperature=True)
    query = _array([[1.0, 0.0]])
    np.testing.assert_allclose(to_numpy(score(query, query)), [[4.0]], rtol=1e-6)
    for weight in (-3.0, 0.0, 3.0):
        score.log_temperature.assign(weight)
        np.testing.assert_allclose(to_numpy(score(query, query)), [[math.exp(-weight)]], rtol=1e-5)


def _unregistered(query, key):
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


def test_a_function_must_be_registered_to_be_saved():
    for function in (_unregistered, lambda query, key: 0.0, functools.partial(_unregistered)):
        for layer in (get_score(function), layers.Attention(function), layers.MultiHeadAttention(2, 3, score=function)):
            with pytest.raises(ValueError, match="function.*register"):
                layer.get_config()
    with keras.saving.custom_object_scope({"_unregistered": _unregistered}):
        config = layers.Attention(_unregistered).get_config()
        assert layers.Attention.from_config(config).score.function is _unregistered


def test_a_function_is_called_as_it_is():
    query, value = random_array((2, 3, 11), 1), random_array((2, 5, 11), 2)
    own, dot = layers.Attention(_unregistered), layers.DotAttention()
    np.testing.assert_allclose(to_numpy(own(query, value)), to_numpy(dot(query, value)), rtol=1e-5, atol=1e-6)


def test_a_function_must_return_scores():
    query, value = random_array((2, 3, 11), 1), random_array((2, 5, 11), 2)
    for function in (lambda query, key: query, lambda query, key: ops.zeros((3, 5))):
        with pytest.raises(ValueError, match=r"function.*\(2, 3, 5\)"):
            layers.Attention(function)(query, value)


def test_a_layer_as_a_score_trains_with_its_attention():
    query, value = random_array((2, 3, 11), 1), random_array((2, 5, 13), 2)
    attention = layers.MultiHeadAttention(2, 3, score=Distance(7))
    attention(query, value)
    weights, own = attention.trainable_variables, attention.score.function.trainable_variables
    assert len(own) == 4 and {id(weight) for weight in own} <= {id(weight) for weight in weights}
    for weight, gradient in zip(own, gradients(lambda: ops.sum(attention(query, value) ** 2), own), strict=True):
        assert np.any(gradient), weight.path


def test_a_built_layer_as_a_score_keeps_its_weights():
    function = Distance(7)
    function(random_array((2, 3, 11), 1), random_array((2, 5, 13), 2))
    before = [to_numpy(weight) for weight in function.weights]
    attention = layers.Attention(function)
    attention.build((2, 3, 11), (2, 5, 13))
    for weight, old in zip(attention.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), old)


def test_masks_that_ride_on_tensors_do_not_trouble_a_layer_as_a_score():
    mask = random_mask((2, 5))
    value = keras.layers.Masking()(np.where(mask[:, :, None], random_array((2, 5, 11), 1), 0.0).astype("float32"))
    for score in (Distance(7), layers.CallableScore(layers.DotScore())):
        assert tuple(layers.Attention(score)(value, value).shape) == (2, 5, 11)  # no warning, which would be an error


SHARED = {
    "general": layers.GeneralScore,
    "concat": layers.ConcatScore,
    "tanh_concat": layers.TanhConcatScore,
    "additive": lambda: layers.AdditiveScore(5),
    "learned_cosine": lambda: layers.CosineScore(learn_temperature=True),
    "location": lambda: layers.LocationScore(7),
    "layer": lambda: layers.CallableScore(Distance(5)),
}


def test_layers_of_other_sizes_need_a_score_of_their_own():
    with every() as failures:
        for name, make in SHARED.items():
            score = make()
            layers.Attention(score).build((2, 3, 4), (2, 5, 4))
            for layer in (layers.Attention(score), layers.MultiHeadAttention(2, 6, score=score)):
                with failures.of((name, layer.name)):
                    if not score.needs:  # weights that fit any size
                        layer.build((2, 3, 6), (2, 5, 6))
                        continue
                    wanted, built = (re.escape(str(dict.fromkeys(score.needs, size))) for size in (6, 4))
                    with pytest.raises(ValueError, match=f"score.*{wanted}.*{built}"):
                        layer.build((2, 3, 6), (2, 5, 6))


def test_scores_without_weights_serve_layers_of_all_sizes():
    for score in (layers.DotScore(), layers.CallableScore(first_feature)):
        for size in (4, 6):
            inputs = random_array((2, 3, size), 1)
            assert layers.Attention(score)(inputs, inputs).shape == (2, 3, size)


def test_scores_by_name():
    for name, score_class in SCORES.items():
        score = get_score(name, dtype="mixed_bfloat16")
        assert type(score) is score_class and score.dtype_policy.name == "mixed_bfloat16"
        for layer in (layers.Attention(name, dtype="bfloat16"), layers.MultiHeadAttention(2, 3, score=name)):
            assert type(layer.score) is score_class and layer.score.dtype_policy == layer.dtype_policy
    score = layers.DotScore()
    assert get_score(score) is score
    for function in (first_feature, Distance(7)):
        wrapped = get_score(function, dtype="bfloat16")
        assert type(wrapped) is layers.CallableScore and wrapped.function is function
        assert wrapped.compute_dtype == "bfloat16"


def test_a_decoder_projects_its_keys_once():
    # What is kept of a key is as small as it can be: W k, one number, or nothing but its place.
    sizes = {"additive": 31, "concat": 31, "cosine": 11, "dot": 11, "general": 11}
    sizes |= {"location": 1, "normalized_additive": 31, "scaled_dot": 11, "tanh_concat": 1}
    for name, score_class in SCORES.items():
        score = score_class(31) if "units" in score_class().get_config() else score_class()
        key_size = 11 if name in ("cosine", "dot", "scaled_dot") else 17
        attention = layers.Attention(score)
        attention.build((2, 3, 11), (2, 5, 13), (2, 5, key_size))
        memory = attention.project_memory(
            *(ops.convert_to_tensor(random_array((2, 5, size), 1)) for size in (13, key_size))
        )
        assert tuple(memory["key"].shape) == (2, 5, sizes[name])


def test_scores_of_half_precision_graphs_stay_in_their_dtype():
    query, key = random_array((2, 3, 11), 1), random_array((2, 5, 11), 2)
    for name in SCORES:
        score = get_score(name, dtype="mixed_float16")
        score.build(query.shape, key.shape)
        result = compiled(score, False)(*(ops.convert_to_tensor(value) for value in (query, key)))
        assert keras.backend.standardize_dtype(result.dtype) == "float16"


def test_each_head_has_weights_of_its_own_and_there_are_as_many_as_heads():
    score = layers.PerHeadScore(layers.GeneralScore(), num_heads=3)
    with pytest.raises(ValueError, match=r"key.*\(2, 4, 5, 7\)"):
        score.build((2, 3, 5, 7), (2, 4, 5, 7))
    score.build((None, None, None, 7), (None, None, None, 7))
    heads = [np.ones((2, heads, 5, 7), "float32") for heads in (3, 4)]
    projected = to_numpy(randomize(score).project_key(heads[0]))
    assert projected.shape[1] == 3 and np.abs(np.diff(projected, axis=1)).max() > 0.01  # each by weights of its own
    with pytest.raises(ValueError, match=r"query.*\(2, 4, 5, 7\)"):
        score.project_query(heads[1])
    with pytest.raises(ValueError, match=r"key.*\(2, 4, 5, 7\)"):
        score.project_key(heads[1])


def test_a_registered_score_is_known_by_its_name():
    @keras.saving.register_keras_serializable(package="tests")
    class HalfDot(layers.DotScore):
        def project_query(self, query):
            return query / 2

    for name in ("transformer_tiny", "luong_general"):
        sizes = {"source_vocab_size": 7, "target_vocab_size": 7, "units" if "luong" in name else "model_dim": 8}
        model = zoo.create_model(name, score="tests>HalfDot", **sizes)
        assert model.options.score == "tests>HalfDot"
        assert np.isfinite(ops.convert_to_numpy(model((np.array([[5, 2]]), np.array([[1, 4, 2]]))))).all()
        assert any(type(layer) is HalfDot for layer in model._flatten_layers())
    for wrong in ("tests>Nothing", "attention_zoo>FeedForward"):
        with pytest.raises(InputError, match=f"{wrong}.*import"):
            get_score(wrong)
