"""`zoo.trace`: every layer of the contract, with masks; vectors and sequences without a batch; subclasses."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.cases import ATTENTION_CASES, CASES, with_each
from support.layers.contract import arrays, build, case_masks, random_array, randomize, to_numpy

import zoo
from zoo import layers
from zoo.errors import InputError

TRACED = [*ATTENTION_CASES, *(case for case in CASES if case.covers is layers.AttentionPooling)]
MULTI_HEAD = ["query", "key", "value", "raw_scores", "scaled_scores", "weights", "weighted_sum", "concatenation"]
X = random_array((2, 5, 8), 0)


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def assert_equal(first, second, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(first, "float32"), np.asarray(second, "float32"), 1e-5, tolerance)


@pytest.fixture(scope="module")
def attention():
    layer = layers.MultiHeadAttention(num_heads=2, key_dim=3)
    layer.build((None, None, 8), (None, None, 8))
    return randomize(layer)


@with_each(TRACED)
def test_the_last_step_is_what_the_layer_returns(case):
    layer, inputs = build(case), arrays(case)
    masked = dict(case_masks(case))
    if isinstance(layer, layers.BaseAttention):
        masked |= {"use_causal_mask": True}
        masked |= {} if case.signed else {"attention_bias": random_array((3, 5), 1)}
    for options in ({}, masked):
        output, weights = layer(*inputs.values(), return_attention_scores=True, **options)
        trace = zoo.trace(layer, *inputs.values(), **options)
        assert list(trace)[-1] == "output" and [step.name for step in trace.steps] == list(trace)
        assert_equal(trace["output"], to_numpy(output), 1e-5 if "performer" in case.name else 2e-6)
        assert_equal(trace.weights, to_numpy(weights), 1e-5)
        assert all(isinstance(step.array, np.ndarray) and step.formula for step in trace.steps)
        assert str(trace)


def test_the_steps_of_the_course(attention):
    trace = zoo.trace(attention, X)
    w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o = (to_numpy(weight) for weight in attention.weights)

    def heads(array):
        return array.reshape(2, 5, 2, 3).transpose(0, 2, 1, 3)

    query, key, value = heads(X @ w_q + b_q), heads(X @ w_k + b_k), heads(X @ w_v + b_v)
    raw = query @ key.swapaxes(-1, -2)
    weights = softmax(raw / np.sqrt(3))
    concatenation = (weights @ value).transpose(0, 2, 1, 3).reshape(2, 5, 6)
    expected = [query, key, value, raw, raw / np.sqrt(3), weights, weights @ value, concatenation]
    assert list(trace) == [*MULTI_HEAD, "output"]
    for name, array in zip(MULTI_HEAD, expected, strict=True):
        assert_equal(trace[name], array)
    assert_equal(trace["output"], concatenation @ w_o + b_o)
    assert trace["heads"] is trace["weighted_sum"] and trace["softmax"] is trace.weights
    assert trace["scores"] is trace["Scaled scores"]


def test_operations_of_the_steps(attention):
    operations = {step.name: step.operations for step in zoo.trace(attention, X).steps}
    assert operations["query"].multiplications == 2 * 5 * 8 * 6
    assert operations["raw_scores"].multiplications == operations["weighted_sum"].multiplications == 2 * 5 * 5 * 6
    assert operations["scaled_scores"].multiplications == operations["weights"].multiplications == 2 * 2 * 5 * 5
    assert operations["concatenation"].multiplications == operations["concatenation"].additions == 0


def test_a_sequence_without_a_batch(attention):
    mask, bias = np.arange(5) < 3, random_array((2, 5, 5), 3)
    pairs = np.tril(np.ones((5, 5), bool))
    whole = zoo.trace(attention, X[:1], value_mask=mask[None], attention_bias=bias, attention_mask=pairs[None])
    single = zoo.trace(attention, X[0], value_mask=mask, attention_bias=bias, attention_mask=pairs)
    assert list(single) == list(whole) and {"bias", "mask", "scores"} <= {*single}
    for name in whole:
        assert_equal(single[name], whole[name][0], 0)


def test_a_single_vector(attention):
    mask = np.array([True, False, True, True, False])
    whole = zoo.trace(attention, X[:1, :1], X[1:], value_mask=mask[None], attention_bias=random_array((2, 1, 5), 3))
    single = zoo.trace(attention, X[0, 0], X[1], value_mask=mask, attention_bias=random_array((2, 1, 5), 3)[:, 0])
    assert single["output"].shape == (8,) and single["weights"].shape == (2, 5) and single["key"].shape == (2, 5, 3)
    assert_equal(single["output"], whole["output"][0, 0], 0)
    assert_equal(single["weights"], whole["weights"][0, :, 0], 0)
    assert (single["mask"] == mask).all()
    hidden = zoo.trace(attention, X[0, 0], X[1], query_mask=False)
    assert not hidden["output"].any() and not hidden["weights"].any()
    masked = zoo.trace(attention, X[0, 0], X[1], attention_mask=mask)
    assert_equal(masked["weights"], zoo.trace(attention, X[0, 0], X[1], value_mask=mask)["weights"])


def test_a_vector_that_looks_at_itself(attention):
    trace = zoo.trace(attention, X[0, 0])
    assert trace["key"].shape == (2, 3) and trace["output"].shape == (8,)
    assert (trace["weights"] == 1).all() and trace["weights"].shape == (2, 1)


class Nearby(layers.BaseAttention):
    """A user's attention without any of the usual parts."""

    def compare(self, query, key, visibility):
        steps = ops.abs(visibility.key_positions - visibility.query_positions[:, None])
        return 0 * query[..., :1] - ops.cast(steps, query.dtype)

    def normalize(self, scores, query, visibility):
        return super().normalize(2 * scores, query, visibility)


class Doubled(layers.MultiHeadAttention):
    """A user's attention that changes one step of a layer."""

    def compare(self, query, key, visibility):
        return 2 * super().compare(query, key, visibility)


class Unscaled(layers.MultiHeadAttention):
    """A user's attention that has a `score` and does not ask it."""

    def compare(self, query, key, visibility):
        return self.compare_heads(query, key)


class Named(layers.BaseAttention):
    """A user's attention in which `score` is something else."""

    score = "the usual one"

    def compare(self, query, key, visibility):
        return ops.matmul(query, ops.swapaxes(key, -1, -2))


def test_a_subclass_that_uses_other_parts():
    for layer in (Unscaled(2, 3), Named()):
        trace = zoo.trace(layer, X)
        assert_equal(trace["scores"], trace["query"] @ trace["key"].swapaxes(-1, -2))
        assert_equal(trace["output"], to_numpy(layer(X, X)))


def test_what_a_subclass_overrides_is_traced():
    trace = zoo.trace(Nearby(), X[0])
    assert_equal(trace["scores"], -np.abs(np.subtract.outer(np.arange(5), np.arange(5))))
    assert_equal(trace["weights"], softmax(2 * trace["scores"]))
    formulas = {step.name: step.formula for step in trace.steps}
    assert formulas["scores"] == "Nearby.compare" and formulas["weights"] == "Nearby.normalize"
    layer = Doubled(2, 3)
    trace = zoo.trace(layer, X)
    assert_equal(trace["scores"], 2 * trace["scaled_scores"])
    assert_equal(trace["output"], to_numpy(layer(X, X)))


def test_the_terms_of_positions():
    layer = layers.MultiHeadAttention(2, 4, positions=layers.ALiBiPositions())
    trace = zoo.trace(layer, X)
    assert_equal(trace["scores"], trace["scaled_scores"] + trace["position_bias"])
    trace = zoo.trace(layers.MultiHeadAttention(2, 4, positions=layers.ShawRelativePositions(3)), X)
    assert_equal(trace["scores"], trace["scaled_scores"] + trace["position_scores"])
    assert trace["position_values"].shape == trace["weighted_sum"].shape
    trace = zoo.trace(layers.MultiHeadAttention(2, 4, positions=layers.RotaryPositions()), X)
    assert_equal(trace["query"], to_numpy(layers.RotaryPositions()(trace["query_unrotated"])))
    trace = zoo.trace(layers.MultiHeadAttention(2, 4, positions=layers.SinusoidalPositions()), X)
    assert_equal(trace["query_with_positions"], to_numpy(layers.SinusoidalPositions()(X)))


def test_the_two_sides_of_an_additive_score():
    layer = layers.AdditiveAttention(7)
    trace = zoo.trace(layer, X[0], X[1, :3])
    score = layer.score
    assert_equal(trace["score_query"], X[0] @ to_numpy(score.query_dense.kernel) + to_numpy(score.query_dense.bias))
    hidden = np.tanh(trace["score_query"][:, None] + trace["score_key"])
    assert_equal(trace["raw_scores"], (hidden @ to_numpy(score.score_dense.kernel))[..., 0])
    assert "v · tanh(W₁ s + W₂ h + b)" in str(trace)


def test_linear_attention_shows_the_weights_that_it_does_not_compute():
    layer = layers.LinearAttention(2, 3)
    trace = zoo.trace(layer, X, use_causal_mask=True)
    products = trace["query_features"] @ trace["key_features"].swapaxes(-1, -2) * np.tril(np.ones((5, 5)))
    assert_equal(trace["weights"], products / products.sum(-1, keepdims=True))
    assert_equal(trace["output"], to_numpy(layer(X, X, use_causal_mask=True)))


def test_windows_show_all_pairs():
    for layer in (layers.SlidingWindowAttention(2, 3, window=1), layers.BlockLocalAttention(2, 3, block_size=2)):
        trace = zoo.trace(layer, X)
        assert trace["raw_scores"].shape == trace["weights"].shape == trace["mask"].shape == (2, 2, 5, 5)
        output, weights = layer(X, X, return_attention_scores=True)
        assert_equal(trace["weights"], to_numpy(weights))
        assert not trace["weights"][~trace["mask"]].any()


def test_blocks_with_two_attentions():
    block = layers.TransformerDecoderBlock(
        layers.MultiHeadAttention(2, 4, name="self"),
        layers.MultiHeadAttention(2, 4, name="cross"),
        layers.FeedForward(8),
    )
    trace = zoo.trace(block, X, X[:, :3])
    assert trace["self/weights"].shape == (2, 2, 5, 5) and trace["cross/weights"].shape == (2, 2, 5, 3)
    assert_equal(trace["output"], to_numpy(block(X, X[:, :3])))


def test_caches_and_projected_memories(attention):
    cache = attention.create_cache(2)
    _, cache = attention(X[:, :3], X[:, :3], cache=cache)
    trace = zoo.trace(attention, X[:, 3:], X[:, 3:], cache=cache)
    assert trace["key"].shape == (2, 2, 5, 3)
    assert_equal(trace["output"], to_numpy(attention(X, X, use_causal_mask=True))[:, 3:])
    memory = attention.project_memory(ops.convert_to_tensor(X))
    assert_equal(zoo.trace(attention, X, memory=memory)["output"], to_numpy(attention(X, X)))


def test_the_layer_does_not_change(attention):
    before = dict(vars(attention)), [len(part._inbound_nodes) for part in attention._flatten_layers()]
    zoo.trace(attention, X)
    assert {**vars(attention), "_called": True} == {**before[0], "_called": True}
    assert [len(part._inbound_nodes) for part in attention._flatten_layers()] == before[1]


def test_dropout_is_a_step_like_in_a_call():
    layer = layers.MultiHeadAttention(2, 3, dropout=0.5, seed=1)
    trace = zoo.trace(layer, X, training=True)
    kept = trace["dropped_weights"] != 0
    assert 0 < kept.mean() < 1
    assert_equal(trace["dropped_weights"][kept], 2 * trace["weights"][kept])
    assert_equal(trace["weighted_sum"], trace["dropped_weights"] @ trace["value"])


def test_heads_by_option():
    layer = layers.MultiHeadAttention(2, 3, output_projection=False)
    trace = zoo.trace(layer, X)
    assert_equal(trace["output"], trace["concatenation"], 0)
    layer = layers.MultiHeadAttention(2, 3, score="additive", share_score=False)
    assert_equal(zoo.trace(layer, X)["output"], to_numpy(layer(X, X)))
    layer = layers.SelfAttention(3)
    trace = zoo.trace(layer, X[0])
    assert_equal(trace["query"], X[0] @ to_numpy(layer.query_dense.kernel))
    assert_equal(trace["output"], to_numpy(layer(X))[0])


def test_pooling_of_a_sequence():
    layer = layers.AttentionPooling(layers.AdditiveAttention(3))
    trace = zoo.trace(layer, X[0], mask=np.arange(5) < 3)
    assert_equal(trace["output"], to_numpy(layer(X[:1], mask=np.arange(5)[None] < 3))[0])
    assert {step.name: step.operations.multiplications for step in trace.steps}["score_key"] == 5 * 8 * 3


def test_what_is_hidden_may_be_nan(attention):
    mask = np.arange(5) < 4
    trace = zoo.trace(attention, np.where(mask[:, None], X[0], np.nan), query_mask=mask, value_mask=mask)
    assert np.isfinite(trace["output"]).all()
    assert_equal(trace["output"][:4], zoo.trace(attention, X[0, :4])["output"])


def test_half_precision():
    for dtype in ("float16", "mixed_bfloat16"):
        layer = layers.MultiHeadAttention(2, 4, dtype=dtype)
        trace = zoo.trace(layer, X, use_causal_mask=True)
        assert_equal(trace["output"], to_numpy(layer(X, X, use_causal_mask=True)), 0.02)
        assert trace["output"].dtype.name == layer.compute_dtype and str(trace)


def test_short_sequences():
    for layer in (layers.ScaledDotProductAttention(), layers.MultiHeadAttention(2, 3)):
        for queries, keys in ((0, 3), (3, 0), (0, 0), (1, 1)):
            trace = zoo.trace(layer, X[:, :queries], X[:, :keys])
            assert trace["output"].shape == (2, queries, 8) and trace["weights"].shape[-2:] == (queries, keys)
            assert_equal(trace["output"], to_numpy(layer(X[:, :queries], X[:, :keys])), 0)
            assert str(trace)


def test_wrong_input():
    with pytest.raises(InputError, match=r"query.*\(1, 1, 1, 2\)"):
        zoo.trace(layers.DotAttention(), np.ones((1, 1, 1, 2)))
    with pytest.raises(InputError, match="Dense"):
        zoo.trace(keras.layers.Dense(3), X)
    trace = zoo.trace(layers.DotAttention(), X)
    with pytest.raises(KeyError, match="weihgts.*weights"):
        trace["weihgts"]
    with pytest.raises(AttributeError, match="mask"):
        trace.mask  # noqa: B018
    assert "mask" not in trace
