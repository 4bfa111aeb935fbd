"""Each layer against NumPy loops written from its formula."""

import math
from pathlib import Path

import keras
import numpy as np
import pytest
from support.layers import references
from support.layers.cases import CASES
from support.layers.cases import scores as cases_scores
from support.layers.contract import arrays, build, call, case_masks, to_numpy
from support.tiers import nightly_unless

from zoo import layers

BY_NAME = {case.name: case for case in CASES}


def _weights(dense):
    """Returns kernel and bias of a dense layer; the bias is zero where there is none."""
    kernel = to_numpy(dense.kernel)
    return kernel, np.zeros(kernel.shape[1]) if dense.bias is None else to_numpy(dense.bias)


def _dense(layer, inputs, columns=slice(None)):
    kernel, bias = _weights(layer)
    return inputs @ kernel[:, columns] + bias[columns]


def _dot(query, key):
    return sum(q * k for q, k in zip(query, key, strict=True))


def _dot_score(score):
    return lambda query, key, place: _dot(query, key)


def _scaled_dot_score(score):
    return lambda query, key, place: _dot(query, key) / math.sqrt(len(query))


def _general_score(score):
    kernel, _ = _weights(score.key_dense)  # [Dk, Dq]

    def function(query, key, place):
        return sum(query[i] * kernel[j, i] * key[j] for j, i in np.ndindex(kernel.shape))

    return function


def _additive_score(score):
    (w1, bias), (w2, _), (v, _) = map(_weights, (score.query_dense, score.key_dense, score.score_dense))

    def function(query, key, place):
        return sum(v[u, 0] * math.tanh(query @ w1[:, u] + key @ w2[:, u] + bias[u]) for u in range(len(bias)))

    return function


def _concat_score(score):
    w = np.concatenate([to_numpy(score.query_dense.kernel), to_numpy(score.key_dense.kernel)])  # [Dq + Dk, units]
    v = to_numpy(score.score_dense.kernel)[:, 0]

    def function(query, key, place):
        return _dot(v, [math.tanh(_dot([*query, *key], w[:, u])) for u in range(len(v))])

    return function


def _tanh_concat_score(score):
    w = np.concatenate([to_numpy(score.query_dense.kernel), to_numpy(score.key_dense.kernel)])[:, 0]  # [Dq + Dk]
    bias = to_numpy(score.query_dense.bias)[0] if score.use_bias else 0.0
    return lambda query, key, place: math.tanh(_dot(w, [*query, *key]) + bias)


def _normalized_additive_score(score):
    plain, (v, _) = _additive_score(score), _weights(score.score_dense)
    return lambda query, key, place: plain(query, key, place) * to_numpy(score.gain) / math.sqrt(np.sum(v**2))


def _cosine_score(score):
    temperature = math.exp(to_numpy(score.log_temperature)) if score.learn_temperature else score.temperature

    def function(query, key, place):
        return _dot(query, key) / math.sqrt(_dot(query, query)) / math.sqrt(_dot(key, key)) / temperature

    return function


def _location_score(score):
    kernel, _ = _weights(score.query_dense)  # [Dq, max_length]
    return lambda query, key, place: _dot(query, kernel[:, place])


def _callable_score(score):
    if score.function is cases_scores.first_feature:
        return lambda query, key, place: abs(query[0] - key[0])
    (w1, b1), (w2, b2) = map(_weights, (score.function.query_dense, score.function.key_dense))

    def function(query, key, place):
        pairs = [(query @ w1[:, u] + b1[u], key @ w2[:, u] + b2[u]) for u in range(len(b1))]
        return -sum((q - k) ** 2 for q, k in pairs) / len(pairs)

    return function


# Each makes a function of one query, one key and the place of the key.
_SCORES = {
    layers.AdditiveScore: _additive_score,
    layers.CallableScore: _callable_score,
    layers.ConcatScore: _concat_score,
    layers.CosineScore: _cosine_score,
    layers.CoverageScore: _additive_score,  # with coverage: test_cells.py
    layers.DotScore: _dot_score,
    layers.GeneralScore: _general_score,
    layers.LocationScore: _location_score,
    layers.NormalizedAdditiveScore: _normalized_additive_score,
    layers.ScaledDotScore: _scaled_dot_score,
    layers.TanhConcatScore: _tanh_concat_score,
}


def _score_function(score):
    assert type(score) in _SCORES, f"{type(score).__name__} has no reference in `_SCORES`."
    return _SCORES[type(score)](score)


def _attend(score, query, value, key, allowed, normalization=None, head=0):
    """Returns output [T, Dv] and weights [T, S] of one sequence and one head."""
    weights = np.zeros((len(query), len(key)))
    output = np.zeros((len(query), value.shape[1]))
    for t in range(len(query)):
        scores = [score(query[t], key[s], s) for s in range(len(key))]
        weights[t] = references.normalized(normalization, scores, allowed[t], head)
        for s in range(len(key)):
            output[t] += weights[t, s] * value[s]
    return output, weights


def _self_attention(layer, query, value, key, allowed):
    query, value, key = _dense(layer.query_dense, query), _dense(layer.value_dense, value), _dense(layer.key_dense, key)
    output, weights = _single_head(layer, query, value, key, allowed)
    output[~_seen(layer, allowed).any(axis=1)] = 0.0
    return output, weights


def _single_head(layer, query, value, key, allowed):
    return _attend(_score_function(layer.score), query, value, key, _seen(layer, allowed), layer.normalization)


def _seen(layer, allowed, head=0):
    """Returns what is allowed [T, S] and seen by the layer's rule."""
    if layer.visibility is None:
        return allowed
    seen, before = allowed.copy(), allowed.shape[1] - allowed.shape[0]
    for t, s in np.argwhere(allowed):
        pair = {"batch": 0, "head": head, "query": before + t, "key": s}
        seen[t, s] = references.rule_sees(layer.visibility, pair)
    return seen


def _multi_head(layer, query, value, key, allowed):
    """Returns output [T, D] and weights [N, T, S] of one sequence: each head with matrices of its own, then the sum."""
    if layer.output_projection:
        kernel, bias = _weights(layer.output_dense)  # [N·H, D]
    else:
        kernel, bias = np.eye(layer.num_heads * layer.value_dim), 0.0
    output, weights = np.zeros((len(query), kernel.shape[1])), []
    for head in range(layer.num_heads):
        group = head * getattr(layer, "num_key_value_heads", layer.num_heads) // layer.num_heads
        projected = (
            _dense(layer.query_dense, query, _columns(head, layer.query_dim)),
            _dense(layer.value_dense, value, _columns(group, layer.value_dim)),
            _dense(layer.key_dense, key, _columns(group, layer.key_dim)),
        )
        if layer.qk_norm:
            query_heads, value_heads, key_heads = projected
            if layer.qk_norm_across_heads:
                query_heads = _rms_norm(layer.query_norm, _dense(layer.query_dense, query))
                key_heads = _rms_norm(layer.key_norm, _dense(layer.key_dense, key))
                query_heads = query_heads[:, _columns(head, layer.query_dim)]
                key_heads = key_heads[:, _columns(group, layer.key_dim)]
            else:
                query_heads, key_heads = _rms_norm(layer.query_norm, query_heads), _rms_norm(layer.key_norm, key_heads)
            projected = query_heads, value_heads, key_heads
        score = layer.score if layer.share_score else layer.score.head_scores[head]
        attended, head_weights = _attend(
            _capped(_score_function(score), layer.logit_softcap),
            *projected,
            _seen(layer, allowed, head),
            layer.normalization,
            head,
        )
        weights.append(head_weights)
        if layer.output_gate:
            attended = attended / (1 + np.exp(-_dense(layer.gate_dense, query, _columns(head, layer.value_dim))))
        output += attended @ kernel[_columns(head, layer.value_dim)]
    output += bias
    output[~np.any([_seen(layer, allowed, head) for head in range(layer.num_heads)], axis=(0, 2))] = 0.0
    return output, np.array(weights)


def _rms_norm(norm, rows):
    """Returns each row divided by the root of the mean of its squares, times the learned scale."""
    scale = to_numpy(norm.scale)
    lengths = [math.sqrt(sum(float(x) ** 2 for x in row) / len(row) + 1e-6) for row in rows]
    return np.array(
        [[x / length * s for x, s in zip(row, scale, strict=True)] for row, length in zip(rows, lengths, strict=True)]
    )


def _capped(score, cap):
    return score if cap is None else lambda *pair: cap * math.tanh(score(*pair) / cap)


def _columns(head, size):
    return slice(head * size, (head + 1) * size)


# Each takes the layer, one sequence of queries, values and keys, and which query may attend to which key.
_LAYERS = {
    layers.AdditiveAttention: _single_head,
    layers.Attention: _single_head,
    layers.ConcatAttention: _single_head,
    layers.CosineAttention: _single_head,
    layers.DotAttention: _single_head,
    layers.GeneralAttention: _single_head,
    layers.GroupedQueryAttention: _multi_head,
    layers.MultiHeadAttention: _multi_head,
    layers.ScaledDotProductAttention: _single_head,
    layers.SelfAttention: _self_attention,
}


def _attention(layer, query, value, key, allowed):
    assert type(layer) in _LAYERS, f"{type(layer).__name__} has no reference in `_LAYERS` or `_ELSEWHERE`."
    return _LAYERS[type(layer)](layer, query, value, key, allowed)


def _norm(layer, inputs):
    gamma, beta = to_numpy(layer.gamma), to_numpy(layer.beta)
    rows = [(row - row.mean()) / math.sqrt(row.var() + layer.epsilon) * gamma + beta for row in inputs]
    return np.array(rows)


def _feed_forward(layer, inputs):
    hidden = _dense(layer.intermediate_dense, inputs)
    if layer.activation is keras.activations.relu:
        hidden = np.maximum(hidden, 0.0)
    else:  # GELU
        hidden = hidden * 0.5 * (1.0 + np.vectorize(math.erf)(hidden / math.sqrt(2.0)))
    return _dense(layer.output_dense, hidden)


def _residual(block, number, inputs, part):
    if block.normalize_first:
        return inputs + part(_norm(block.norms[number], inputs))
    return _norm(block.norms[number], inputs + part(inputs))


def _encoder(block, inputs, mask):
    allowed = mask[:, None] & mask[None]
    hidden = _residual(block, 0, inputs, lambda x: _attention(block.attention, x, x, x, allowed)[0])
    return _residual(block, 1, hidden, lambda x: _feed_forward(block.feed_forward, x))


def _decoder(block, inputs, memory, mask, memory_mask):
    causal = mask[:, None] & mask[None] & np.tri(len(mask), dtype=bool)
    cross = mask[:, None] & memory_mask[None]
    hidden = _residual(block, 0, inputs, lambda x: _attention(block.self_attention, x, x, x, causal)[0])
    hidden = _residual(block, 1, hidden, lambda x: _attention(block.cross_attention, x, memory, memory, cross)[0])
    return _residual(block, 2, hidden, lambda x: _feed_forward(block.feed_forward, x))


def _check(results, *expected):
    for result, reference in zip(results, expected, strict=False):
        np.testing.assert_allclose(result, np.array(reference), atol=5e-6, rtol=5e-5)


_SCORE_CASES = [case for case in CASES if issubclass(case.covers, layers.Score)]


@pytest.mark.parametrize("case", _SCORE_CASES, ids=lambda case: case.name)
def test_scores(case):
    layer, inputs = build(case), arrays(case)
    lengths = case.output[-2:]
    scores = [_score_function(score) for score in getattr(layer, "head_scores", [layer])]
    # Whatever axes lead, the score of a pair depends on that pair alone.
    queries, keys = (value.reshape(-1, *value.shape[-2:]) for value in inputs.values())
    expected = np.zeros((len(queries), *lengths))
    for b, t, s in np.ndindex(expected.shape):
        expected[b, t, s] = scores[b % len(scores)](queries[b][t], keys[b][s], s)
    _check(call(case, layer, inputs), expected.reshape(case.output))


_NORMALIZATIONS = [case for case in CASES if issubclass(case.covers, layers.Normalization)]


@pytest.mark.parametrize("case", _NORMALIZATIONS, ids=lambda case: case.name)
def test_normalizations(case):
    layer, scores = build(case), arrays(case)["scores"] * 3
    mask = np.random.default_rng(3).random(scores.shape) < 0.6
    mask[0, 0] = False
    expected = np.zeros(scores.shape)
    for row in np.ndindex(scores.shape[:-1]):
        expected[row] = references.normalized(layer, scores[row], mask[row], 0)
    _check((to_numpy(layer(scores, mask)),), expected)


# Layers whose references are with their other tests.
_EFFICIENT = ("BlockLocalAttention", "LinearAttention", "PerformerAttention", "SlidingWindowAttention")
_ELSEWHERE = {
    "LocalAttention": "test_local.py",
    "MonotonicAttention": "test_monotonic.py",
    "MultiHeadLatentAttention": "test_latent.py",
    **dict.fromkeys(("DifferentialAttention", "TalkingHeadsAttention"), "test_mixed_weights.py"),
    "MultiScaleRetention": "test_retention.py",
    **dict.fromkeys(("DeltaRuleAttention", "GatedLinearAttention"), "test_state_attention.py"),
    **dict.fromkeys(_EFFICIENT, "test_efficient.py"),
}
_ATTENTION = [
    case for case in CASES if issubclass(case.covers, layers.BaseAttention) and case.covers.__name__ not in _ELSEWHERE
]


def test_references_in_other_files_exist():
    for name, file in _ELSEWHERE.items():
        assert f"layers.{name}(" in Path(__file__).parent.joinpath("attention", file).read_text(encoding="utf-8")


# With scores that have references of their own.
_BY_SCORE = {case.name for case in cases_scores.CASES}


@pytest.mark.parametrize(
    "case", nightly_unless(lambda case: case.name not in _BY_SCORE, _ATTENTION), ids=lambda case: case.name
)
def test_attention(case):
    layer, inputs, masks = build(case), arrays(case), case_masks(case)
    masks["query_mask"][0] = False  # a sequence with nothing to attend to
    allowed = masks["query_mask"][:, :, None] & (masks["value_mask"] & masks["key_mask"])[:, None]
    results = call(case, layer, inputs, **masks)
    expected = [_attention(layer, *(value[b] for value in inputs.values()), allowed[b]) for b in range(2)]
    _check(results, *zip(*expected, strict=True))


@pytest.mark.parametrize("name", ["pre_norm_encoder_block", "post_norm_single_head_encoder_block"])
def test_encoder_block(name):
    case = BY_NAME[name]
    layer, inputs, mask = build(case), arrays(case)["inputs"], case_masks(case)["mask"]
    _check(call(case, layer, arrays(case), mask=mask), [_encoder(layer, inputs[b], mask[b]) for b in range(2)])


@pytest.mark.parametrize("name", ["pre_norm_decoder_block", "post_norm_decoder_block"])
def test_decoder_block(name):
    case = BY_NAME[name]
    layer, inputs, masks = build(case), arrays(case), case_masks(case)
    expected = [
        _decoder(layer, inputs["inputs"][b], inputs["memory"][b], masks["mask"][b], masks["memory_mask"][b])
        for b in range(2)
    ]
    _check(call(case, layer, inputs, **masks), expected)


def test_feed_forward():
    case = BY_NAME["feed_forward"]
    layer, inputs = build(case), arrays(case)["inputs"]
    _check(call(case, layer, arrays(case)), [_feed_forward(layer, sequence) for sequence in inputs])


def test_maxout():
    case = BY_NAME["maxout"]
    inputs = arrays(case)["inputs"]
    expected = np.zeros(case.output)
    for b, t, j in np.ndindex(case.output):
        expected[b, t, j] = max(inputs[b, t, 3 * j + k] for k in range(3))
    _check(call(case, case.make("float32"), arrays(case)), expected)
