"""Self-attention step by step and its scale, as they are taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, numpy, softmax
from support.commands import parse

import zoo
from zoo import layers

X = array(1, 5, 8)
QKV = {"q": array(1, 3, 4), "k": array(1, 5, 4), "v": array(1, 5, 2)}
SCORES = QKV["q"] @ QKV["k"].swapaxes(1, 2)


def row_queries_keys_and_values(lines):
    names = lines(x=X)
    layer = names["layer"]
    for name in ("query", "key", "value"):
        close(names[name[0]], X @ numpy(getattr(layer, f"{name}_dense").kernel))


def row_one_head_without_w_o(lines):
    layer = lines(x=X)["layer"]
    w_q, w_k, w_v = (numpy(dense.kernel) for dense in (layer.query_dense, layer.key_dense, layer.value_dense))
    assert w_q.shape == (8, 16)
    close(layer(X), softmax((X @ w_q) @ (X @ w_k).swapaxes(1, 2) / 4) @ (X @ w_v))


def row_the_scores(lines):
    close(lines(**QKV)["scores"], SCORES)


def row_the_scaled_scores(lines):
    close(lines(**QKV)["scaled"], SCORES / 2)


def row_the_softmax(lines):
    close(lines(**QKV)["weights"], softmax(SCORES / 2))


def row_the_weighted_sum(lines):
    close(lines(**QKV)["weighted_sum"], softmax(SCORES / 2) @ QKV["v"])


def row_each_step_to_look_at(lines, capsys):
    lines(**QKV)
    printed = capsys.readouterr().out
    steps = ["query", "key", "value", "raw_scores", "scaled_scores", "weights", "weighted_sum", "output"]
    assert [line.split()[1] for line in printed.splitlines() if line[:1].isdigit()] == steps
    assert "softmax(scaled_scores)" in printed and "multiplications" in printed


def row_without_any_weights(lines):
    close(lines(x=X)["y"], softmax(X @ X.swapaxes(1, 2) / np.sqrt(8)) @ X)
    assert not layers.ScaledDotProductAttention().weights


def row_a_query_and_its_memory(lines):
    close(lines(**QKV)["output"], softmax(SCORES) @ QKV["v"])


def row_attention_q_k_v(lines):
    names = lines(**QKV)
    close(names["by_name"], softmax(SCORES / 2) @ QKV["v"])
    close(names["by_place"], numpy(names["by_name"]))
    with pytest.raises(ValueError, match=r"called as \(query, value, key\)"):
        layers.ScaledDotProductAttention()(*QKV.values())


def row_a_single_query_vector(lines):
    vector, values = array(4), array(5, 4)
    close(lines(vector=vector, values=values)["output"], softmax(values @ vector) @ values)


def row_self_attention(lines):
    names = lines(x=X)
    assert names["weights"].shape == (1, 8, 5, 5) and names["output"].shape == X.shape


def row_cross_attention(lines):
    names = lines(target=array(1, 5, 8), source=array(1, 7, 6))
    assert names["weights"].shape == (1, 8, 5, 7) and names["output"].shape == (1, 5, 8)


def row_cross_attention_in_five_steps(lines):
    names = lines(target=array(1, 5, 8), source=array(1, 7, 6))
    assert names["shapes"] == [(1, 5, 4), (1, 5, 7), (1, 5, 7), (1, 5, 7), (1, 5, 4)]
    trace = names["trace"]
    close(trace["weights"], softmax(trace["query"] @ trace["key"].swapaxes(1, 2) / 2))
    close(trace["weighted_sum"], trace["weights"] @ trace["value"])


def row_the_causal_mask(lines):
    weights = numpy(lines(x=X)["weights"])
    assert not np.triu(weights, 1).any() and np.tril(weights).sum() == pytest.approx(5, abs=1e-5)


@pytest.fixture(scope="module")
def multi_head():
    layer = layers.MultiHeadAttention(num_heads=8, key_dim=64, use_bias=False)
    layer.build((None, None, 512), (None, None, 512))
    return layer


N, D = 5, 512


def row_the_cost_of_the_projections(lines):
    assert lines()["projections"] == [N * D * D] * 3 == [1_310_720] * 3


def row_the_cost_of_the_scores(lines, multi_head):
    assert lines(layer=multi_head)["scores"] == N * N * D == 12_800


def row_the_cost_of_scale_and_softmax(lines, multi_head):
    names = lines(layer=multi_head)
    assert names["scale"] == names["softmax"] == N * N == 25


def row_the_cost_of_the_weighted_sum(lines, multi_head):
    assert lines(layer=multi_head)["weighted_sum"] == N * N * D == 12_800


def row_the_cost_of_the_output(lines, multi_head):
    assert lines(layer=multi_head)["output"] == N * D * D


def row_the_cost_of_each_head(lines, multi_head):
    names = lines(layer=multi_head)
    assert (names["projection"], names["scores"]) == (N * D * 64, N * N * 64) == (163_840, 1_600)


def row_the_total_of_a_single_head(lines):
    assert lines()["total"] == 3 * N * D**2 + 2 * N**2 * D + 2 * N**2


def row_the_total_of_several_heads(lines, multi_head, capsys):
    assert lines(layer=multi_head)["total"] == 4 * N * D**2 + 2 * N**2 * D + 2 * 8 * N**2
    assert "1,310,720" in capsys.readouterr().out


def row_the_variance_of_a_dot_product(lines):
    for d, sigma in ((16, 1), (256, 1.5)):
        assert lines(d=d, sigma=sigma)["variance"] == pytest.approx(d * sigma**4, rel=0.1)


def row_the_variance_after_scaling(lines):
    for d, sigma in ((16, 1), (256, 1.5)):
        assert lines(d=d, sigma=sigma)["variance"] == pytest.approx(sigma**4, rel=0.1)


def row_saturation(lines):
    assert lines()["largest"] == pytest.approx((0.97, 0.32), abs=0.02)


def row_gradients_that_vanish(lines):
    unscaled, scaled = lines()["gradients"]
    assert unscaled < 1e-9 and scaled == pytest.approx(6.5e-2, abs=5e-3)


def row_training_without_the_scale(command_lines):
    scaled, unscaled = (zoo.get_spec(parse(*command).model).config["score"] for command in command_lines)
    assert (scaled, unscaled) == ("scaled_dot", "dot")


def test_rows(check_rows):
    check_rows()
