"""Masks: what they hide, how they combine, and what is refused."""

from functools import partial

import keras
import numpy as np
from keras import ops
from support.layers import references
from support.layers.cases import ATTENTION_CASES, SOFTMAX_CASES, with_each
from support.layers.contract import (
    arrays,
    build,
    call,
    few_on_jax,
    gradients,
    random_array,
    random_mask,
    tensorflow_only,
    to_numpy,
)
from support.layers.refusals import check_refusals

from zoo import layers
from zoo.layers.core.softmax import masked_softmax, trained_softmax
from zoo.layers.visibility.visibility import build_visibility

B, T, S, N = 2, 3, 5, 7
# Whose masks are applied where those of others are.
ALIKE = {
    layers.Attention,
    layers.BlockLocalAttention,
    layers.ConcatAttention,
    layers.CosineAttention,
    layers.DotAttention,
    layers.GatedLinearAttention,
    layers.GeneralAttention,
    layers.PerformerAttention,
    layers.ScaledDotProductAttention,
}


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
        to_numpy(masked_softmax(ops.convert_to_tensor(scores))),
        [[0.25, 0.75], [2 / 7, 5 / 7], [0.5, 0.5]],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        to_numpy(masked_softmax(ops.convert_to_tensor(scores), ops.convert_to_tensor(mask))),
        [[0.25, 0.75], [1, 0], [0, 0]],
        rtol=1e-6,
    )


def test_masked_softmax_gradient_is_finite_and_zero_where_masked():
    scores = keras.Variable(random_array((2, 3, 5), 1) * 1e4)
    mask = np.random.default_rng(1).random((2, 3, 5)) < 0.5
    mask[0, 0] = False
    weighted = ops.convert_to_tensor(random_array((2, 3, 5), 2))

    def loss():
        weights = masked_softmax(ops.convert_to_tensor(scores), ops.convert_to_tensor(mask))
        return ops.sum(weights * weighted)

    (gradient,) = gradients(loss, [scores])
    assert np.all(np.isfinite(gradient)) and not np.any(gradient[~mask])


@tensorflow_only("other backends differentiate each operation")
def test_masked_softmax_has_derivatives_in_graphs():
    import tensorflow as tf

    scores, upstream = (tf.constant(random_array((2, 3, 5), seed)) for seed in (1, 2))
    mask = tf.constant(random_mask((2, 3, 5), 3))

    def derivatives(scores):
        with tf.GradientTape() as outer:
            outer.watch(scores)
            with tf.GradientTape() as inner:
                inner.watch(scores)
                with trained_softmax():
                    loss = tf.reduce_sum(masked_softmax(scores, mask) * upstream)
            first = inner.gradient(loss, scores)
            norm = tf.reduce_sum(first**2)
        return first, outer.gradient(norm, scores)

    shape = tf.TensorSpec([None, None, None])
    found = tf.function(derivatives, autograph=False, input_signature=[shape])(scores)
    for result, expected in zip(found, derivatives(scores), strict=True):  # which eagerly are those of each operation
        np.testing.assert_allclose(result, expected, atol=1e-6)
        assert np.any(expected != 0)


def test_masked_softmax_keeps_the_dtype_and_large_scores():
    for dtype in ("float16", "bfloat16", *(["float64"] if keras.backend.backend() != "jax" else [])):
        scores = ops.cast(np.array([[60000.0, 60000.0, -60000.0]]), dtype)
        weights = masked_softmax(scores, ops.convert_to_tensor([[True, True, True]]))
        assert keras.backend.standardize_dtype(weights.dtype) == dtype
        np.testing.assert_array_equal(to_numpy(weights), [[0.5, 0.5, 0.0]])


def test_what_is_masked_is_below_all_other_scores():
    scores = np.array([[-1e30, -1e30, 0.0]], "float32")
    weights = masked_softmax(ops.convert_to_tensor(scores), ops.convert_to_tensor([[True, True, False]]))
    np.testing.assert_array_equal(to_numpy(weights), [[0.5, 0.5, 0.0]])


def test_masked_softmax_rounds_once():
    for dtype, rounding in (("float16", 2**-11), ("bfloat16", 2**-8)):
        scores, mask = ops.cast(random_array((5, 97), 1) * 2, dtype), np.random.default_rng(1).random((5, 97)) < 0.7
        terms = np.where(mask, np.exp(to_numpy(scores).astype("float64")), 0.0)
        weights = to_numpy(masked_softmax(scores, ops.convert_to_tensor(mask)))
        np.testing.assert_allclose(weights, terms / terms.sum(axis=1, keepdims=True), rtol=1.01 * rounding)


def test_causal_mask_by_hand():
    for lengths, first, expected in (
        ((2, 2), 0, ["10", "11"]),
        ((2, 3), 1, ["110", "111"]),
        ((3, 2), -1, ["00", "10", "11"]),
        ((2, 3), 0, ["100", "110"]),
        ((1, 3), 1, ["110"]),
    ):
        mask = ops.convert_to_numpy(build_visibility(lengths, first, causal=True).mask())[0]
        assert ["".join(str(int(allowed)) for allowed in row) for row in mask] == expected


def test_nothing_to_mask_is_no_mask():
    visibility = build_visibility((3, 5), 2)
    assert visibility.mask() is None and not visibility.hides


@with_each(ATTENTION_CASES, {case.covers for case in ATTENTION_CASES} - ALIKE)
def test_masks_of_a_layer(case):
    few_on_jax(case.covers in (layers.GroupedQueryAttention, layers.LinearAttention, layers.DeltaRuleAttention))
    layer, inputs = build(case), arrays(case)
    for queries, keys in ((3, 5), (5, 3)):
        _check_causal_mask(case, layer, queries, keys)
    _check_that_masks_are_anded(case, layer, inputs)
    _check_masks_that_tensors_carry(case, layer, inputs)
    _check_what_is_refused(layer, inputs)
    if case in SOFTMAX_CASES:
        _check_masks_of_heads(case, layer, inputs)
        _check_bias(case, layer, inputs)
    memory = layer.project_memory(*map(ops.convert_to_tensor, (inputs["value"], inputs["key"])))
    once = layer(inputs["query"], memory=memory)
    np.testing.assert_array_equal(to_numpy(once), to_numpy(layer(*inputs.values())), "memory can be projected once")


def _check_causal_mask(case, layer, queries, keys):
    """Checks that the causal mask is aligned at the end."""
    rows = {"query": queries, "value": keys, "key": keys}
    inputs = {name: np.resize(value, (B, rows[name], value.shape[-1])) for name, value in arrays(case).items()}
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


def _check_that_masks_are_anded(case, layer, inputs):
    query_mask, value_mask, key_mask = random_mask((B, T)), random_mask((B, S), 1), random_mask((B, S), 2)
    attention_mask = np.random.default_rng(3).random((B, T, S)) < 0.8
    given = {"query_mask": query_mask, "value_mask": value_mask, "key_mask": key_mask, "attention_mask": attention_mask}
    if not getattr(case.covers, "supports_pair_masks", True):  # such a layer takes no mask of pairs
        attention_mask = np.ones_like(attention_mask)
        del given["attention_mask"]
    allowed = query_mask[:, :, None] & (value_mask & key_mask)[:, None] & attention_mask
    allowed = (allowed & np.tri(T, S, S - T, dtype=bool))[:, None]
    first = call(case, layer, inputs, use_causal_mask=True, **given)
    _check_seen(case, layer, first[1], allowed, causal=True)
    # Integers count as booleans, and one mask with everything in it does what they do together.
    integers = {name: mask.astype("int32") * -3 for name, mask in given.items()}
    for result, expected in zip(call(case, layer, inputs, use_causal_mask=True, **integers), first, strict=True):
        np.testing.assert_array_equal(result, expected)
    if case.whole and "attention_mask" in given:  # else the mask of the keys also says how many there are
        for result, expected in zip(call(case, layer, inputs, attention_mask=allowed[:, 0]), first, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)  # oneDNN may take other kernels


def _check_masks_of_heads(case, layer, inputs):
    heads = N if len(case.weights) == 3 else case.weights[1]
    mask = np.random.default_rng(5).random((B, heads, T, S)) < 0.5
    if not layer.has_heads:
        check_refusals([(partial(layer, *inputs.values(), attention_mask=mask), "`attention_mask`", "(2, 7, 3, 5)")])
        return
    _, weights = call(case, layer, inputs, attention_mask=mask)
    _check_seen(case, layer, weights, mask)


def _check_what_is_refused(layer, inputs):
    """Checks that float masks and those of a wrong rank are errors."""
    shapes = {"query_mask": (B, T), "value_mask": (B, S), "key_mask": (B, S), "attention_mask": (B, T, S)}
    for name, shape in shapes.items():
        wrong = np.zeros(shape, "float32"), np.ones((B,), bool)
        calls = [partial(layer, *inputs.values(), **{name: mask}) for mask in wrong]
        words = ("`attention_bias`", "float32"), (f"({B},)",)
        check_refusals((call, f"`{name}`", *each) for call, each in zip(calls, words, strict=True))


def _check_bias(case, layer, inputs):
    """Checks that a bias is added before the softmax."""
    bias = random_array((T, S), 11)
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


def _check_masks_that_tensors_carry(case, layer, inputs):
    """Checks that Keras' masks are used, that explicit ones win, and that the output carries that of the query."""
    query_mask, value_mask = random_mask((B, T)), random_mask((B, S), 1)
    carriers = {"query": query_mask, "value": value_mask, "key": value_mask}
    carried = {name: _with_mask(value, carriers[name]) for name, value in inputs.items()}
    bare = {name: to_numpy(value) for name, value in carried.items()}
    implicit, (asked, _) = layer(*carried.values()), layer(*carried.values(), return_attention_scores=True)
    explicit = call(case, layer, bare, query_mask=query_mask, value_mask=value_mask)
    np.testing.assert_array_equal(to_numpy(implicit), explicit[0])
    everything = np.ones((B, S), bool)
    won = call(case, layer, carried, value_mask=everything, key_mask=everything, query_mask=np.ones((B, T), bool))
    np.testing.assert_array_equal(won[0], call(case, layer, bare)[0])
    for output in (implicit, asked):  # what comes behind sees the mask: pooling skips the masked positions
        pooled, values = to_numpy(keras.layers.GlobalAveragePooling1D()(output)), to_numpy(output)
        for row in range(B):
            np.testing.assert_allclose(pooled[row], values[row][query_mask[row]].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_the_key_is_the_value_by_default():
    for layer in (layers.AdditiveAttention(19), layers.SelfAttention(19), layers.MultiHeadAttention(7, 19)):
        query, value = random_array((B, T, 11), 1), random_array((B, S, 11), 13)
        np.testing.assert_array_equal(to_numpy(layer(query, value)), to_numpy(layer(query, value, value)))


def _with_mask(array, mask):
    """Returns a tensor that carries a Keras mask, by way of the layer that makes them."""
    return keras.layers.Masking(mask_value=9.0)(np.where(mask[:, :, None], array, 9.0).astype("float32"))


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


def test_masks_of_another_batch_do_not_make_the_output_larger():
    query, value = np.ones((1, 3, 4), "float32"), np.ones((1, 5, 4), "float32")
    shapes = {"query_mask": (2, 3), "value_mask": (2, 5), "key_mask": (2, 5), "attention_mask": (2, 3, 5)}
    layer = layers.MultiHeadAttention(2, 3)
    for name, shape in shapes.items():
        check_refusals([(partial(layer, query, value, **{name: np.ones(shape, bool)}), f"`{name}`", str(shape))])
        shared = {name: np.ones((1, *shape[1:]), bool)}  # is for all rows
        assert layers.DotAttention()(query.repeat(2, axis=0), value.repeat(2, axis=0), **shared).shape == (2, 3, 4)


def test_what_a_mask_or_bias_means_does_not_depend_on_sizes():
    """Of rank 3, a mask is [B, T, S], as Keras has it, and a bias [N, T, S]: also where B = N, or an axis is 1."""
    for batch in (1, 2, 3):
        query, value = random_array((batch, T, 11), 1), random_array((batch, S, 11), 2)
        mask = np.random.default_rng(3).random((batch, T, S)) < 0.7
        bias = random_array((2, T, S), 4)
        for layer in (layers.MultiHeadAttention(2, 19), layers.SlidingWindowAttention(2, 19, window=1)):
            for short, full in (
                ({"attention_mask": mask}, {"attention_mask": mask[:, None]}),
                ({"attention_bias": bias}, {"attention_bias": bias[None]}),
                ({"attention_mask": mask[:1]}, {"attention_mask": mask[:1, None]}),
                ({"attention_bias": bias[:1]}, {"attention_bias": bias[:1, None][0]}),
            ):
                expected = to_numpy(layer(query, value, **full))
                np.testing.assert_array_equal(to_numpy(layer(query, value, **short)), expected)
                assert not np.allclose(expected, to_numpy(layer(query, value)))
    layers.AdditiveAttention(19)(query[:2], value[:2], attention_bias=bias)
