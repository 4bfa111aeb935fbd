"""Self-attention step by step and its scale, as they are taught."""

import numpy as np
import pytest
from introductions.conftest import close, numpy, softmax
from introductions.page import numbers
from support.commands import parse

import zoo
from zoo import layers


def unscaled(names):
    return names["q"] @ names["k"].swapaxes(1, 2)


def row_queries_keys_and_values(names):
    layer = names["layer"]
    for name, of_layer in (("queries", "query"), ("keys", "key"), ("values", "value")):
        close(names[name], names["x"] @ numpy(getattr(layer, f"{of_layer}_dense").kernel))


def row_one_head_without_w_o(names):
    layer = names["layer"]
    w_q, w_k, w_v = (numpy(dense.kernel) for dense in (layer.query_dense, layer.key_dense, layer.value_dense))
    assert w_q.shape == (8, 16)
    x = names["x"]
    close(names["y"], softmax((x @ w_q) @ (x @ w_k).swapaxes(1, 2) / 4) @ (x @ w_v))


def row_the_scores(names):
    close(names["scores"], unscaled(names))


def row_the_scaled_scores(names):
    close(names["scaled"], unscaled(names) / 2)


def row_the_softmax(names):
    close(names["weights"], softmax(unscaled(names) / 2))


def row_the_weighted_sum(names):
    close(names["weighted_sum"], softmax(unscaled(names) / 2) @ names["v"])


def row_each_step_to_look_at(printed):
    steps = ["query", "key", "value", "raw_scores", "scaled_scores", "weights", "weighted_sum", "output"]
    assert [line.split()[1] for line in printed.splitlines() if line[:1].isdigit()] == steps
    assert "softmax(scaled_scores)" in printed and "multiplications" in printed


def row_without_any_weights(names):
    x = names["x"]
    close(names["y"], softmax(x @ x.swapaxes(1, 2) / np.sqrt(8)) @ x)
    assert not names["layer"].weights


def row_a_query_and_its_memory(names):
    close(names["output"], softmax(unscaled(names)) @ names["v"])


def row_attention_q_k_v(names):
    close(names["by_name"], softmax(unscaled(names) / 2) @ names["v"])
    close(names["by_place"], numpy(names["by_name"]))
    with pytest.raises(ValueError, match=r"called as \(query, value, key\)"):
        layers.ScaledDotProductAttention()(names["q"], names["k"], names["v"])


def row_a_single_query_vector(names):
    vector, values = names["vector"], names["values"]
    assert vector.shape == (6,)
    close(names["output"], softmax(values @ vector) @ values)


def row_self_attention(names):
    assert names["weights"].shape == (1, 8, 5, 5) and names["output"].shape == (1, 5, 8)


def row_cross_attention(names):
    assert names["weights"].shape == (1, 8, 2, 5) and names["output"].shape == (1, 2, 6)


def row_cross_attention_in_five_steps(names, printed):
    shapes = [(1, 2, 4), (1, 2, 5), (1, 2, 5), (1, 2, 5), (1, 2, 4)]
    assert numbers(printed) == [size for shape in shapes for size in shape]
    trace = names["trace"]
    close(trace["weights"], softmax(trace["query"] @ trace["key"].swapaxes(1, 2) / 2))
    close(trace["weighted_sum"], trace["weights"] @ trace["value"])


def row_the_causal_mask(names):
    weights = numpy(names["weights"])
    assert not np.triu(weights, 1).any() and np.tril(weights).sum() == pytest.approx(5, abs=1e-5)


N, D = 5, 512


def row_the_cost_of_the_projections(names):
    assert names["projections"] == [N * D * D] * 3 == [1_310_720] * 3


def row_the_cost_of_the_scores(names):
    assert names["scores"] == N * N * D == 12_800


def row_the_cost_of_scale_and_softmax(names):
    assert names["scale"] == names["softmax"] == N * N == 25


def row_the_cost_of_the_weighted_sum(names):
    assert names["weighted_sum"] == N * N * D == 12_800


def row_the_cost_of_the_output(names):
    assert names["output"] == N * D * D


def row_the_cost_of_each_head(names):
    assert (names["projection"], names["scores"]) == (N * D * 64, N * N * 64) == (163_840, 1_600)


def row_the_total_of_a_single_head(names):
    assert names["total"] == 3 * N * D**2 + 2 * N**2 * D + 2 * N**2


def row_the_total_of_several_heads(names, printed):
    assert names["total"] == 4 * N * D**2 + 2 * N**2 * D + 2 * 8 * N**2
    assert "1,310,720" in printed and "5,268,880" in printed


def drawn(keys, size):
    """Returns queries and keys with independent features, as the page draws them."""
    return [np.random.default_rng(number).normal(size=(500, number, size)).astype("float32") for number in (1, keys)]


def row_the_variance_of_a_dot_product(printed):
    small, of_small, large, of_large = numbers(printed)
    assert (small, large) == (16 * 1**4, 256 * 1.5**4)
    assert of_small == pytest.approx(small, rel=0.1) and of_large == pytest.approx(large, rel=0.1)


def row_the_variance_after_scaling(printed):
    small, of_small, large, of_large = numbers(printed)
    assert (small, large) == (1, 1.5**4)
    assert of_small == pytest.approx(small, rel=0.1) and of_large == pytest.approx(large, rel=0.1)


def row_saturation(printed):
    queries, keys = drawn(10, 1024)
    scores = queries @ keys.swapaxes(1, 2)
    largest = [softmax(each).max(axis=-1).mean() for each in (scores, scores / 32)]
    assert numbers(printed) == pytest.approx(largest, rel=1e-4)


def row_gradients_that_vanish(printed):
    queries, keys = drawn(10, 256)
    scores = (queries @ keys.swapaxes(1, 2)).astype("float64")
    weights = [softmax(each) for each in (scores, scores / 16)]
    assert numbers(printed) == pytest.approx([np.median(alpha * (1 - alpha)) for alpha in weights], rel=1e-3)


def row_training_without_the_scale(command_lines):
    scaled, unscaled = (zoo.get_spec(parse(*command).model).config["score"] for command in command_lines)
    assert (scaled, unscaled) == ("scaled_dot", "dot")


@pytest.mark.nightly
def test_rows(check_rows):
    check_rows()
