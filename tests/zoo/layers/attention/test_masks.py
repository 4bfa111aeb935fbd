"""Masks: what they hide, how they combine, and what is refused."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers import references
from support.layers.cases import ATTENTION_CASES, SOFTMAX_CASES, with_each
from support.layers.contract import arrays, build, call, gradients, random_array, random_mask, to_numpy

from zoo import layers
from zoo.layers.attention import masks

one_of_each = with_each(ATTENTION_CASES)
one_of_each_with_softmax = with_each(SOFTMAX_CASES)
B, T, S, N = 2, 3, 5, 7


def _seen(layer, weights, allowed, causal=False):
    """Returns what masks and the layer's own rule let queries see, by loops: boolean [B, N, T, S].

    Args:
        layer: The layer.
        weights: Its weights [B, (N,) T, S].
        allowed: The conjunction of all masks, which broadcasts to [B, N, T, S].
        causal: Whether the causal mask is among them.
    """
    batch, *heads, queries, keys = weights.shape
    shape = (batch, *(heads or [1]), queries, keys)
    masks = {name: np.ones((batch, keys), bool) for name in ("value_mask", "key_mask")}
    masks |= {"query_mask": np.ones((batch, queries), bool), "attention_mask": np.broadcast_to(allowed, shape)}
    return references.visible(layer, shape, masks, causal, references.first_place(layer, queries, keys, causal))


def _check_seen(case, layer, weights, allowed, causal=False):
    """Checks that weights are zero where masks and rules hide, and nowhere else unless scores choose; see `_seen`."""
    seen = _seen(layer, weights, allowed, causal)
    found = weights.reshape(seen.shape) != 0
    if case.sparse or references.choice(layer.visibility):
        assert not found[~seen].any()
    else:
        np.testing.assert_array_equal(found, seen)


def test_masked_softmax_by_hand():
    scores = np.log(np.array([[1.0, 3.0], [2.0, 5.0], [4.0, 4.0]], "float32"))
    mask = np.array([[True, True], [True, False], [False, False]])
    np.testing.assert_allclose(
        to_numpy(masks.masked_softmax(ops.convert_to_tensor(scores))),
        [[0.25, 0.75], [2 / 7, 5 / 7], [0.5, 0.5]],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        to_numpy(masks.masked_softmax(ops.convert_to_tensor(scores), ops.convert_to_tensor(mask))),
        [[0.25, 0.75], [1, 0], [0, 0]],
        rtol=1e-6,
    )


def test_masked_softmax_gradient_is_finite_and_zero_where_masked():
    scores = keras.Variable(random_array((2, 3, 5), 1) * 1e4)
    mask = np.random.default_rng(1).random((2, 3, 5)) < 0.5
    mask[0, 0] = False
    weighted = ops.convert_to_tensor(random_array((2, 3, 5), 2))

    def loss():
        weights = masks.masked_softmax(ops.convert_to_tensor(scores), ops.convert_to_tensor(mask))
        return ops.sum(weights * weighted)

    (gradient,) = gradients(loss, [scores])
    assert np.all(np.isfinite(gradient)) and not np.any(gradient[~mask])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_masked_softmax_keeps_the_dtype_and_large_scores(dtype):
    if dtype == "float64" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 unless told so")
    scores = ops.cast(np.array([[60000.0, 60000.0, -60000.0]]), dtype)
    weights = masks.masked_softmax(scores, ops.convert_to_tensor([[True, True, True]]))
    assert keras.backend.standardize_dtype(weights.dtype) == dtype
    np.testing.assert_array_equal(to_numpy(weights), [[0.5, 0.5, 0.0]])


@pytest.mark.parametrize(("dtype", "rounding"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_masked_softmax_rounds_once(dtype, rounding):
    scores, mask = ops.cast(random_array((5, 97), 1) * 2, dtype), np.random.default_rng(1).random((5, 97)) < 0.7
    terms = np.where(mask, np.exp(to_numpy(scores).astype("float64")), 0.0)
    weights = to_numpy(masks.masked_softmax(scores, ops.convert_to_tensor(mask)))
    np.testing.assert_allclose(weights, terms / terms.sum(axis=1, keepdims=True), rtol=1.01 * rounding)


@pytest.mark.parametrize(
    ("lengths", "first", "expected"),
    [
        ((2, 2), 0, ["10", "11"]),
        ((2, 3), 1, ["110", "111"]),
        ((3, 2), -1, ["00", "10", "11"]),
        ((2, 3), 0, ["100", "110"]),
        ((1, 3), 1, ["110"]),
    ],
)
def test_causal_mask_by_hand(lengths, first, expected):
    mask = ops.convert_to_numpy(masks.build_visibility(lengths, first, causal=True).mask())[0]
    assert ["".join(str(int(allowed)) for allowed in row) for row in mask] == expected


def test_nothing_to_mask_is_no_mask():
    visible = masks.build_visibility((3, 5), 2)
    assert visible.mask() is None and not visible.hides


@one_of_each
@pytest.mark.parametrize(
    ("queries", "keys"), [(3, 5), (5, 3), *(pytest.param(*sizes, marks=pytest.mark.nightly) for sizes in ((1, 5), (3, 3)))]
)
def test_causal_mask_is_aligned_at_the_end(case, queries, keys):
    layer, inputs = build(case), arrays(case)
    rows = {"query": queries, "value": keys, "key": keys}
    inputs = {name: np.resize(value, (B, rows[name], value.shape[-1])) for name, value in inputs.items()}
    output, weights = call(case, layer, inputs, use_causal_mask=True)
    allowed = np.arange(keys)[None] <= np.arange(queries)[:, None] + keys - queries
    _check_seen(case, layer, weights, allowed, causal=True)
    np.testing.assert_array_equal(output[:, ~allowed.any(axis=1)], 0.0)
    # Later keys cannot leak into earlier queries.
    changed = {
        name: np.where(np.arange(value.shape[1])[:, None] == keys - 1, 1e4, value) for name, value in inputs.items()
    }
    again = call(case, layer, {**changed, "query": inputs["query"]}, use_causal_mask=True)[0]
    np.testing.assert_array_equal(again[:, :-1], output[:, :-1])


@one_of_each
def test_masks_are_anded(case):
    query_mask, value_mask, key_mask = random_mask((B, T)), random_mask((B, S), 1), random_mask((B, S), 2)
    attention_mask = np.random.default_rng(3).random((B, T, S)) < 0.8
    given = {"query_mask": query_mask, "value_mask": value_mask, "key_mask": key_mask, "attention_mask": attention_mask}
    if not getattr(case.covers, "forgets_evenly", True):  # such a layer takes no mask of pairs
        attention_mask = np.ones_like(attention_mask)
        del given["attention_mask"]
    allowed = query_mask[:, :, None] & (value_mask & key_mask)[:, None] & attention_mask
    allowed = (allowed & np.tri(T, S, S - T, dtype=bool))[:, None]
    layer, inputs = build(case), arrays(case)
    _, weights = call(case, layer, inputs, use_causal_mask=True, **given)
    _check_seen(case, layer, weights, allowed, causal=True)
    # Integers count as booleans, and one mask with everything in it does what they do together.
    first = call(case, layer, inputs, use_causal_mask=True, **given)
    integers = {name: mask.astype("int32") for name, mask in given.items()}
    for result, expected in zip(call(case, layer, inputs, use_causal_mask=True, **integers), first, strict=True):
        np.testing.assert_array_equal(result, expected)
    if case.whole and "attention_mask" in given:  # else the mask of the keys also says how many there are
        for result, expected in zip(call(case, layer, inputs, attention_mask=allowed[:, 0]), first, strict=True):
            np.testing.assert_array_equal(result, expected)


@one_of_each_with_softmax
def test_each_head_may_have_a_mask(case):
    heads = N if len(case.weights) == 3 else case.weights[1]
    mask = np.random.default_rng(5).random((B, heads, T, S)) < 0.5
    layer = build(case)
    if not layer.has_heads:
        with pytest.raises(ValueError, match=r"`attention_mask` must have rank 3. Received: shape=\(2, 7, 3, 5\)"):
            layer(*arrays(case).values(), attention_mask=mask)
        return
    _, weights = call(case, layer, arrays(case), attention_mask=mask)
    _check_seen(case, layer, weights, mask)


@one_of_each
def test_float_masks_and_wrong_ranks_are_errors(case):
    layer, inputs = build(case), arrays(case).values()
    shapes = {"query_mask": (B, T), "value_mask": (B, S), "key_mask": (B, S), "attention_mask": (B, T, S)}
    for name, shape in shapes.items():
        with pytest.raises(ValueError, match=rf"`{name}` must be boolean.*`attention_bias`. Received: dtype=float32"):
            layer(*inputs, **{name: np.zeros(shape, "float32")})
        with pytest.raises(ValueError, match=rf"`{name}` must have rank .*Received: shape=\({B},\)"):
            layer(*inputs, **{name: np.ones((B,), bool)})


@one_of_each_with_softmax
def test_bias_is_added_before_the_softmax(case):
    layer, inputs, bias = build(case), arrays(case), random_array((T, S), 11)
    _, plain = call(case, layer, inputs)
    _, biased = call(case, layer, inputs, attention_bias=bias)
    if case.whole:
        expected = plain * np.exp(bias)
        np.testing.assert_allclose(biased, expected / expected.sum(axis=-1, keepdims=True), rtol=1e-4)
    # A bias as strong as a mask hides as well as one, but where it would hide all that a rule leaves, that is even.
    mask = np.tri(T, S, 1, dtype=bool)
    _, hidden = call(case, layer, inputs, attention_bias=np.where(mask, 0.0, -1e9).astype("float32"))
    even = ~_seen(layer, hidden, mask).any(axis=-1, keepdims=True)
    _check_seen(case, layer, hidden, mask | even)


@one_of_each
def test_key_defaults_to_value_and_memory_can_be_projected_once(case):
    layer = case.make("float32")
    query, value = arrays(case)["query"], random_array((B, S, 11), 13)
    layer.build(query.shape, value.shape)
    expected = to_numpy(layer(query, value))
    np.testing.assert_array_equal(to_numpy(layer(query, value, value)), expected)
    memory = layer.project_memory(ops.convert_to_tensor(value))
    np.testing.assert_array_equal(to_numpy(layer(query, memory=memory)), expected)


def _with_mask(array, mask):
    """Returns a tensor that carries a Keras mask, by way of the layer that makes them."""
    return keras.layers.Masking(mask_value=9.0)(np.where(mask[:, :, None], array, 9.0).astype("float32"))


@one_of_each
def test_keras_masks_are_used_and_explicit_ones_win(case):
    layer, inputs = build(case), arrays(case)
    query_mask, value_mask = random_mask((B, T)), random_mask((B, S), 1)
    carriers = {"query": query_mask, "value": value_mask, "key": value_mask}
    carried = {name: _with_mask(value, carriers[name]) for name, value in inputs.items()}
    bare = {name: to_numpy(value) for name, value in carried.items()}
    implicit = layer(*carried.values())
    explicit = call(case, layer, bare, query_mask=query_mask, value_mask=value_mask)
    np.testing.assert_array_equal(to_numpy(implicit), explicit[0])
    everything = np.ones((B, S), bool)
    won = call(case, layer, carried, value_mask=everything, key_mask=everything, query_mask=np.ones((B, T), bool))
    np.testing.assert_array_equal(won[0], call(case, layer, bare)[0])


@one_of_each
@pytest.mark.parametrize("scores", [False, True])
def test_output_carries_the_mask_of_the_query(case, scores):
    mask = random_mask((B, T))
    inputs = {**arrays(case), "query": _with_mask(arrays(case)["query"], mask)}
    output = build(case)(*inputs.values(), return_attention_scores=scores)
    output = output[0] if scores else output
    # What comes behind sees the mask: pooling skips the masked positions.
    pooled = to_numpy(keras.layers.GlobalAveragePooling1D()(output))
    values = to_numpy(output)
    for row in range(B):
        np.testing.assert_allclose(pooled[row], values[row][mask[row]].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_blocks_take_keras_masks():
    mask, memory_mask = random_mask((B, T)), random_mask((B, S), 1)
    inputs, memory = _with_mask(random_array((B, T, 11), 1), mask), _with_mask(random_array((B, S, 13), 2), memory_mask)

    def attention():
        return layers.MultiHeadAttention(7, 19)

    encoder = layers.TransformerEncoderBlock(attention(), layers.FeedForward(31))
    decoder = layers.TransformerDecoderBlock(attention(), attention(), layers.FeedForward(31), normalize_first=True)
    pairs = [
        (encoder(inputs), encoder(to_numpy(inputs), mask=mask)),
        (decoder(inputs, memory), decoder(to_numpy(inputs), to_numpy(memory), mask=mask, memory_mask=memory_mask)),
    ]
    for implicit, explicit in pairs:
        np.testing.assert_array_equal(to_numpy(implicit)[mask], to_numpy(explicit)[mask])
        pooled = to_numpy(keras.layers.GlobalAveragePooling1D()(implicit))
        np.testing.assert_allclose(pooled[0], to_numpy(explicit)[0][mask[0]].mean(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("query_mask", (2, 3)), ("value_mask", (2, 5)), ("key_mask", (2, 5)), ("attention_mask", (2, 3, 5))],
)
def test_masks_of_another_batch_do_not_make_the_output_larger(name, shape):
    query, value = np.ones((1, 3, 4), "float32"), np.ones((1, 5, 4), "float32")
    message = rf"`{name}` must have the batch size of `query`, 1. Received: shape=\({', '.join(map(str, shape))}\)"
    with pytest.raises(ValueError, match=message):
        layers.MultiHeadAttention(2, 3)(query, value, **{name: np.ones(shape, bool)})
    shared = np.ones((1, *shape[1:]), bool)  # is for all rows
    assert layers.DotAttention()(query.repeat(2, axis=0), value.repeat(2, axis=0), **{name: shared}).shape == (2, 3, 4)


@pytest.mark.parametrize("name", ["attention_mask", "attention_bias"])
@pytest.mark.parametrize(
    "make", [lambda: layers.MultiHeadAttention(2, 19), lambda: layers.SlidingWindowAttention(2, 19, window=1)]
)
def test_a_first_axis_that_may_be_batch_or_heads_is_refused(name, make):
    layer, query, value = make(), random_array((2, T, 11), 1), random_array((2, S, 11), 2)
    pairs = np.ones((2, T, S), bool if name == "attention_mask" else "float32")
    message = rf"`{name}` must be \[B, 1, T, S\] or \[1, N, T, S\], .*both are 2. Received: shape=\(2, 3, 5\)."
    with pytest.raises(ValueError, match=message):
        layer(query, value, **{name: pairs})
    expected = to_numpy(layer(query, value))
    for clear in (pairs[:, None], pairs[None], pairs[:1], pairs[:1, None]):
        np.testing.assert_allclose(to_numpy(layer(query, value, **{name: clear})), expected, atol=1e-6)
    # Where one of the two axes does not fit, nothing is unclear; nor with a single row and a single head.
    both = {"attention_mask": (3, T, S), "attention_bias": (2, T, S)}[name]
    query, value = (np.concatenate([tensor, tensor[:1]]) for tensor in (query, value))
    layer(query, value, **{name: np.ones(both, pairs.dtype)})
    layers.MultiHeadAttention(1, 19)(query[:1], value[:1], **{name: pairs[:1]})
    layers.AdditiveAttention(19)(query[:2], value[:2], **{name: pairs})


def test_integers_are_masks():
    layer, query, value = layers.MultiHeadAttention(N, 19), random_array((B, T, 11), 1), random_array((B, S, 11), 2)
    mask = random_mask((B, S))
    expected = to_numpy(layer(query, value, value_mask=mask))
    for integers in (mask.astype("int32"), mask * -3):
        np.testing.assert_array_equal(to_numpy(layer(query, value, value_mask=integers)), expected)
