"""Heads of multi-head attention one by one, scores of their own, and the single head of `SelfAttention`."""

import time
from functools import partial

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import random_array, randomize, to_numpy
from support.layers.refusals import check_refusals
from support.tiers import nightly_unless

from zoo import layers

QUERY, VALUE = random_array((2, 3, 11), 1), random_array((2, 5, 13), 2)


def multi_head(**options):
    return layers.MultiHeadAttention(**{"num_heads": 7, "key_dim": 2, "use_bias": False, **options})


def grouped(**options):
    return layers.GroupedQueryAttention(**{"num_heads": 6, "num_key_value_heads": 2, "key_dim": 5, **options})


def called(layer, *inputs, **options):
    """Returns the output and the weights of a layer, with random weights where it has none yet."""
    inputs = inputs or (QUERY, VALUE)
    if not layer.built:
        layer.build(*(array.shape for array in inputs))
        randomize(layer)
    return [to_numpy(result) for result in layer(*inputs, return_attention_scores=True, **options)]


def softmax(scores):
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


# Heads.


@pytest.mark.parametrize("layer", [multi_head(value_dim=3), grouped(use_bias=False)], ids=["multi-head", "grouped"])
def test_heads_one_by_one_are_the_layer(layer):
    output, weights = called(layer)
    kernels, expected = layer.head_kernels(), 0.0
    assert kernels["query"].shape == (layer.num_heads, 11, layer.key_dim)
    assert kernels["value"].shape == (layer.memory_heads, 13, layer.value_dim)
    for head in range(layer.num_heads):
        group = head * layer.memory_heads // layer.num_heads
        q, k, v = QUERY @ kernels["query"][head], VALUE @ kernels["key"][group], VALUE @ kernels["value"][group]
        alphas = softmax(q @ k.swapaxes(1, 2) / np.sqrt(layer.key_dim))
        np.testing.assert_allclose(weights[:, head], alphas, atol=1e-6)
        expected = expected + alphas @ v @ kernels["output"][head]
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_kernels_are_what_is_multiplied_with(new_garbage_alone):
    layer = multi_head(use_bias=True)
    called(layer)
    before = layer.head_kernels()
    layer.query_dense.enable_lora(2)
    layer.query_dense.lora_kernel_b.assign(np.ones((2, 14), "float32"))
    assert np.abs(layer.head_kernels()["query"] - before["query"]).max() > 0.01
    for dense in (layer.key_dense, layer.output_dense):
        dense.quantize("int8")
    after = layer.head_kernels()
    np.testing.assert_allclose(after["key"], before["key"], atol=0.01)
    np.testing.assert_allclose(after["output"], before["output"], atol=0.01)
    assert np.any(after["key"] != before["key"])


def test_heads_without_output_projection_stand_side_by_side():
    layer = multi_head(value_dim=3, output_projection=False)
    output, weights = called(layer)
    kernels = layer.head_kernels()
    assert set(kernels) == {"query", "key", "value"} and layer.output_dense is None
    heads = [weights[:, head] @ (VALUE @ kernels["value"][head]) for head in range(7)]
    np.testing.assert_allclose(output, np.concatenate(heads, axis=-1), atol=1e-6)


def test_a_block_needs_heads_as_large_as_its_inputs():
    for size in (3, 1):  # a size of 1 would be broadcast
        attention = multi_head(num_heads=1, value_dim=size, output_projection=False)
        block = layers.TransformerEncoderBlock(attention, layers.FeedForward(5))
        check_refusals([(partial(block, QUERY), "size 11", f"size {size}")])


# A score for each head.


def test_each_head_has_weights_of_its_own():
    score = layers.GeneralScore()
    layers_of_two = [multi_head(score=score, share_score=False) for _ in range(2)]
    for layer in layers_of_two:
        layer.build(QUERY.shape, VALUE.shape)
    kernels = [to_numpy(head.key_dense.kernel) for layer in layers_of_two for head in layer.score.head_scores]
    assert not score.weights and len(kernels) == 14
    assert len({kernel.tobytes() for kernel in kernels}) == 14, "no two of them start equal"
    assert len({weight.path for weight in layers_of_two[0].weights}) == 4 + 7


def test_a_function_needs_no_name_to_compare_each_head():
    layer = multi_head(score=lambda query, key: ops.matmul(query, ops.swapaxes(key, -1, -2)), share_score=False)
    plain = multi_head(score="dot")
    (output, weights), _ = called(layer), called(plain)
    for result, expected in zip((output, weights), called(plain), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_a_single_head_shares_with_nobody():
    alone, shared = (multi_head(num_heads=1, score="additive", share_score=share) for share in (False, True))
    for result, expected in zip(called(alone), called(shared), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_scores_of_heads_do_not_fit_other_numbers_of_heads():
    score, shapes = layers.PerHeadScore("additive", 3), (QUERY.shape, VALUE.shape)
    check_refusals(
        [
            (lambda: multi_head(score=score).build(*shapes), "`query`", "3", "(2, 7, 3, 2)"),
            (lambda: layers.Attention(score).build(*shapes), "`query`", "3"),
        ]
    )
    multi_head(num_heads=3, score=score).build(*shapes)
    check_refusals([(lambda: multi_head(score=score).build(*shapes), "another score")])


def test_what_is_refused():
    check_refusals(
        [
            (lambda: multi_head().head_kernels(), "Build or call MultiHeadAttention"),
            (lambda: multi_head(output_dim=4, output_projection=False), "`output_dim`", "output_dim=4"),
        ]
    )


# Fused kernels.


def _lower(method):
    return {
        "compare": lambda self, *inputs: 2.0 * getattr(super(type(self), self), method)(*inputs),
        "normalize": lambda self, *inputs: 0.5 * getattr(super(type(self), self), method)(*inputs),
    }.get(method, lambda self, *inputs: 3.0 * getattr(super(type(self), self), method)(*inputs))


METHODS = ["compare", "compare_heads", "normalize", "weighted_sum", "sum_heads"]


@pytest.mark.parametrize("method", METHODS)
def test_what_a_subclass_overrides_wins_over_fused_kernels(method):
    for make in (multi_head, grouped):
        base = type(make())
        changed = type(f"Changed{base.__name__}", (base,), {method: _lower(method)})
        dense, fused = (
            changed.from_config({**make().get_config(), "implementation": how}) for how in ("dense", "fused")
        )
        expected = called(dense)
        for layer, equal in ((fused, True), (make(implementation="fused"), False)):
            layer.build(QUERY.shape, VALUE.shape)
            layer.set_weights(dense.get_weights())
            # The output alone: weights that are asked for never come from a kernel.
            output = to_numpy(layer(QUERY, VALUE))
            assert np.allclose(output, expected[0], atol=1e-5) == equal


def test_scores_of_heads_win_over_fused_kernels():
    dense, fused = (multi_head(score="dot", share_score=False, implementation=how) for how in ("dense", "fused"))
    called(fused)
    assert not fused.can_fuse(False, False) and multi_head(score="dot").can_fuse(False, False)
    np.testing.assert_allclose(called(fused)[0], called(dense)[0], atol=1e-6)


# The single head of the notebooks.


def test_self_attention_as_notebooks_write_it():
    x = random_array((6, 16), 4)
    layer = layers.SelfAttention(24, value_dim=28)
    output, weights = called(layer, x[None])
    w_q, w_k, w_v = (to_numpy(dense.kernel) for dense in (layer.query_dense, layer.key_dense, layer.value_dense))
    assert w_q.shape == w_k.shape == (16, 24) and w_v.shape == (16, 28)
    alphas = softmax((x @ w_q) @ (x @ w_k).T / np.sqrt(24))
    np.testing.assert_allclose(weights[0], alphas, atol=1e-5)
    np.testing.assert_allclose(output[0], alphas @ (x @ w_v), atol=1e-5)
    for arguments in ((x[None],), (x[None], x[None], x[None])):
        np.testing.assert_array_equal(called(layer, *arguments)[0], output)


def test_self_attention_of_one_input_takes_its_mask():
    embedded = keras.layers.Embedding(7, 11, mask_zero=True)(np.array([[3, 4, 0], [5, 0, 0]]))
    layer = layers.SelfAttention(5)
    output, weights = layer(embedded, return_attention_scores=True)
    assert not np.any(to_numpy(weights)[0, :, 2]) and not np.any(to_numpy(weights)[1, 1:])
    np.testing.assert_array_equal(to_numpy(output)[0, 2], 0.0)
    inputs = keras.Input((None, 11))
    assert keras.Model(inputs, layer(inputs))(QUERY).shape == (2, 3, 5)


INFERRED = {
    "grouped": lambda: grouped(implementation="fused"),
    "latent": lambda: layers.MultiHeadLatentAttention(6, 6, latent_dim=5, rope_dim=2),
    "linear": lambda: layers.LinearAttention(6, 5),
    "features": lambda: layers.PerformerAttention(6, 5),
    "delta_rule": lambda: layers.DeltaRuleAttention(6, 5),
    "top_blocks": lambda: layers.MultiHeadAttention(6, 5, visibility=layers.Causal() & layers.TopBlocks(16, 2)),
    "relative": lambda: layers.MultiHeadAttention(6, 5, positions=layers.ShawRelativePositions(3)),
    "sparse": lambda: layers.MultiHeadAttention(6, 5, normalization="entmax15"),
}


@pytest.mark.parametrize("kind", nightly_unless(("grouped", "features", "top_blocks").__contains__, INFERRED))
def test_shapes_are_inferred_without_being_computed(kind):
    seconds = []
    for length in (5, 1024):  # the first call loads what the backend needs
        query, started = keras.Input((length, 8)), time.process_time()
        results = INFERRED[kind]()(query, query, return_attention_scores=True)
        seconds.append(time.process_time() - started)
    assert seconds[-1] < 1.0
    assert [result.shape for result in results] == [(None, 1024, 8), (None, 6, 1024, 1024)]
