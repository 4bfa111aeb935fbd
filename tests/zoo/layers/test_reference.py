"""Each layer against NumPy loops written from its formula, and against one example worked out by hand."""

import math
from pathlib import Path

import keras
import numpy as np
import pytest
from support.layers.cases import CASES
from support.layers.cases import scores as cases_scores
from support.layers.contract import arrays, build, call, case_masks, to_numpy

from zoo import layers

BY_NAME = {case.name: case for case in CASES}


def _softmax(scores, allowed):
    """Softmax of a list over the allowed places; all zeros where there are none."""
    exponentials = [math.exp(score) if ok else 0.0 for score, ok in zip(scores, allowed, strict=True)]
    return [value / sum(exponentials) if value else 0.0 for value in exponentials]


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
    bias = to_numpy(score.query_dense.bias)[0]
    return lambda query, key, place: math.tanh(_dot(w, [*query, *key]) + bias)


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
    layers.DotScore: _dot_score,
    layers.GeneralScore: _general_score,
    layers.LocationScore: _location_score,
    layers.ScaledDotScore: _scaled_dot_score,
    layers.TanhConcatScore: _tanh_concat_score,
}


def _score_function(score):
    assert type(score) in _SCORES, f"{type(score).__name__} has no reference in `_SCORES`."
    return _SCORES[type(score)](score)


def _attend(score, query, value, key, allowed):
    """Returns output [T, Dv] and weights [T, S] of one sequence and one head."""
    weights = np.zeros((len(query), len(key)))
    output = np.zeros((len(query), value.shape[1]))
    for t in range(len(query)):
        weights[t] = _softmax([score(query[t], key[s], s) for s in range(len(key))], allowed[t])
        for s in range(len(key)):
            output[t] += weights[t, s] * value[s]
    return output, weights


def _single_head(layer, query, value, key, allowed):
    return _attend(_score_function(layer.score), query, value, key, allowed)


def _multi_head(layer, query, value, key, allowed):
    """Returns output [T, D] and weights [N, T, S] of one sequence: each head with matrices of its own, then the sum."""
    kernel, bias = _weights(layer.output_dense)  # [N·H, D]
    output, weights = np.zeros((len(query), kernel.shape[1])), []
    for head in range(layer.num_heads):
        group = head * getattr(layer, "num_key_value_heads", layer.num_heads) // layer.num_heads
        projected = (
            _dense(layer.query_dense, query, _columns(head, layer.query_dim)),
            _dense(layer.value_dense, value, _columns(group, layer.value_dim)),
            _dense(layer.key_dense, key, _columns(group, layer.key_dim)),
        )
        attended, head_weights = _attend(_score_function(layer.score), *projected, allowed)
        weights.append(head_weights)
        output += attended @ kernel[_columns(head, layer.value_dim)]
    output += bias
    output[~allowed.any(axis=1)] = 0.0
    return output, np.array(weights)


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
    score, lengths = _score_function(layer), case.output[-2:]
    # Whatever axes lead, the score of a pair depends on that pair alone.
    queries, keys = (value.reshape(-1, *value.shape[-2:]) for value in inputs.values())
    expected = np.zeros((len(queries), *lengths))
    for b, t, s in np.ndindex(expected.shape):
        expected[b, t, s] = score(queries[b][t], keys[b][s], s)
    _check(call(case, layer, inputs), expected.reshape(case.output))


# Layers whose references are with their other tests.
_EFFICIENT = ("BlockLocalAttention", "LinearAttention", "PerformerAttention", "SlidingWindowAttention")
_ELSEWHERE = {"LocalAttention": "test_local.py", **dict.fromkeys(_EFFICIENT, "test_efficient.py")}
_ATTENTION = [
    case for case in CASES if issubclass(case.covers, layers.BaseAttention) and case.covers.__name__ not in _ELSEWHERE
]


def test_references_in_other_files_exist():
    for name, file in _ELSEWHERE.items():
        assert f"layers.{name}(" in Path(__file__).parent.joinpath("attention", file).read_text(encoding="utf-8")


@pytest.mark.parametrize("case", _ATTENTION, ids=lambda case: case.name)
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


# By hand. With scores (ln 3, 0) the weights are (3/4, 1/4), with equal scores (1/2, 1/2).
_LN3 = math.log(3.0)
_EYE = np.eye(2)
_VALUE = np.array([[4.0, 4.0], [0.0, 8.0]])


def _single(layer, *inputs, **options):
    results = layer(*(np.array([value], "float32") for value in inputs), return_attention_scores=True, **options)
    return tuple(to_numpy(result)[0] for result in results)


def _set(layer, *weights):
    layer.set_weights(
        [np.array(weight, "float32").reshape(w.shape) for weight, w in zip(weights, layer.weights, strict=True)]
    )


@pytest.mark.parametrize(
    "layer",
    [layers.ScaledDotProductAttention(), layers.Attention(layers.ScaledDotScore())],
    ids=lambda x: type(x).__name__,
)
def test_scaled_dot_by_hand(layer):
    query = [[math.sqrt(2.0) * _LN3, 0.0], [0.0, 0.0]]  # divided by √2: scores (ln 3, 0) and (0, 0)
    score = layers.ScaledDotScore()(np.array([query], "float32"), np.array([_EYE], "float32"))
    _check((to_numpy(score)[0],), [[_LN3, 0.0], [0.0, 0.0]])
    _check(_single(layer, query, _VALUE, _EYE), [[3.0, 5.0], [2.0, 6.0]], [[0.75, 0.25], [0.5, 0.5]])


def test_additive_by_hand():
    layer = layers.AdditiveAttention(1)
    layer.build((1, 2, 2), (1, 2, 2))
    # Hidden values: tanh of 99 or −99, or of 0, with v = ln 3. The bias takes 99 off.
    _set(layer, [[99.0], [0.0]], [-99.0], [[0.0], [99.0]], [[_LN3]])
    query, value = [[1.0, 5.0], [0.0, 5.0]], [[4.0, 1.0], [8.0, 0.0]]
    # Row 1: tanh(99 − 99 + 99) = 1, tanh(0) = 0 → (ln 3, 0). Row 2: tanh(0) = 0, tanh(−99) = −1 → (0, −ln 3).
    scores = to_numpy(layer.score(np.array([query], "float32"), np.array([value], "float32")))
    _check((scores[0],), [[_LN3, 0.0], [0.0, -_LN3]])
    _check(_single(layer, query, value), [[5.0, 0.75], [5.0, 0.75]], [[0.75, 0.25], [0.75, 0.25]])


def _identity_heads(layer, query_scale=1.0, key_scale=1.0):
    """Makes two heads of size 1: head i sees feature i, and the output puts them side by side."""
    layer.build((1, 2, 2), (1, 2, 2))
    zeros = np.zeros(2)
    weights = [_EYE * query_scale, zeros, _EYE * key_scale, zeros, _EYE, zeros, _EYE, zeros]
    _set(layer, *weights)
    return layer


def test_multi_head_by_hand():
    layer = _identity_heads(layers.MultiHeadAttention(num_heads=2, key_dim=1))
    # Head 1: queries (ln 3, 0), keys (1, 0), values (4, 0). Head 2: queries (0, ln 3), keys (0, 1), values (4, 8).
    output, weights = _single(layer, _EYE * _LN3, _VALUE, _EYE)
    _check((weights,), [[[0.75, 0.25], [0.5, 0.5]], [[0.5, 0.5], [0.25, 0.75]]])
    _check((output,), [[3.0, 6.0], [2.0, 7.0]])


def _identity_feed_forward():
    layer = layers.FeedForward(2)
    layer.build((1, 2, 2))
    _set(layer, _EYE, np.zeros(2), _EYE, np.zeros(2))
    return layer


def test_feed_forward_by_hand():
    layer = layers.FeedForward(2)
    layer.build((1, 2, 2))
    _set(layer, [[1.0, 0.0], [1.0, -1.0]], [0.0, 1.0], [[2.0, 0.0], [0.0, 3.0]], [0.5, 0.0])
    # (1, 2) → (3, −1) → (3, 0) → (6.5, 0);  (0, −1) → (−1, 2) → (0, 2) → (0.5, 6).
    _check((to_numpy(layer(np.array([[[1, 2], [0, -1]]], "float32")))[0],), [[6.5, 0.0], [0.5, 6.0]])


def test_maxout_by_hand():
    output = to_numpy(layers.Maxout(2)(np.array([[1, 3, 5, 2], [-1, -2, 0, 0]], "float32")))
    _check((output,), [[3.0, 5.0], [-1.0, 0.0]])


@pytest.mark.parametrize(
    ("normalize_first", "expected"),
    # Uniform attention adds the mean of the rows; a norm of two features is (1, −1) or (−1, 1); ReLU keeps the 1.
    # Post-norm: rows + (1, 2) = (3, 2), (1, 6) → (1, −1), (−1, 1) → + (1, 0), (0, 1) = (2, −1), (−1, 2) → norm.
    # Pre-norm: the mean of the normed rows is 0; rows + (1, 0), (0, 1).
    [(False, [[1.0, -1.0], [-1.0, 1.0]]), (True, [[3.0, 0.0], [0.0, 5.0]])],
)
def test_encoder_block_by_hand(normalize_first, expected):
    attention = _identity_heads(layers.MultiHeadAttention(2, 1), query_scale=0.0)
    block = layers.TransformerEncoderBlock(attention, _identity_feed_forward(), normalize_first, epsilon=1e-9)
    _check((_single(block, [[2.0, 0.0], [0.0, 4.0]])[0],), expected)


@pytest.mark.parametrize(
    ("normalize_first", "expected"),
    # Post-norm: self-attention adds (2, 0) to row 1 and the mean (1, 2) to row 2: (4, 0), (1, 6) → (1, −1), (−1, 1);
    # cross-attention adds the memory's mean (2, 6): (3, 5), (1, 7) → (−1, 1) twice; + (0, 1) = (−1, 2) → (−1, 1).
    # Pre-norm: normed rows (1, −1), (−1, 1), so + (1, −1) and + (0, 0): (3, −1), (0, 4); + (2, 6) = (5, 5), (2, 10);
    # a row of equal features is normed to 0 and adds 0, the other adds (0, 1).
    [(False, [[-1.0, 1.0], [-1.0, 1.0]]), (True, [[5.0, 5.0], [2.0, 11.0]])],
)
def test_decoder_block_by_hand(normalize_first, expected):
    heads = [_identity_heads(layers.MultiHeadAttention(2, 1, name=name), query_scale=0.0) for name in ("own", "cross")]
    block = layers.TransformerDecoderBlock(*heads, _identity_feed_forward(), normalize_first, epsilon=1e-9)
    _check((_single(block, [[2.0, 0.0], [0.0, 4.0]], _VALUE)[0],), expected)
