"""Self-attention step by step, its heads and its scale, as they are taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, numpy, softmax
from support.commands import parse

import zoo
from zoo import layers

X = array(1, 5, 8)


def test_one_head_without_w_o(lines):
    layer = lines(x=X)["layer"]
    w_q, w_k, w_v = (numpy(dense.kernel) for dense in (layer.query_dense, layer.key_dense, layer.value_dense))
    assert w_q.shape == (8, 16)
    close(layer(X), softmax((X @ w_q) @ (X @ w_k).swapaxes(1, 2) / 4) @ (X @ w_v))


def test_each_step_to_look_at(lines):
    q, k, v = array(1, 3, 4), array(1, 5, 4), array(1, 5, 2)
    raw, scaled, weights, output = lines(q=q, k=k, v=v)["steps"]
    close(raw, q @ k.swapaxes(1, 2))
    close(scaled, raw / 2)
    close(weights, softmax(scaled))
    close(output, weights @ v)


def test_without_any_weights(lines):
    close(lines(x=X)["y"], softmax(X @ X.swapaxes(1, 2) / np.sqrt(8)) @ X)
    assert not layers.ScaledDotProductAttention().weights


def test_a_query_and_its_memory(lines):
    q, k, v = array(1, 1, 4), array(1, 5, 4), array(1, 5, 2)
    close(lines(q=q, k=k, v=v)["output"], softmax(q @ k.swapaxes(1, 2)) @ v)


def test_a_single_query_vector(lines):
    vector, values = array(4), array(5, 4)
    close(lines(vector=vector, values=values)["output"], softmax(values @ vector) @ values)


def test_cross_attention(lines):
    names = lines(target=array(1, 5, 8), source=array(1, 7, 6))
    assert names["weights"].shape == (1, 8, 5, 7) and names["output"].shape == (1, 5, 8)


def test_the_causal_mask(lines):
    weights = numpy(lines(x=X)["weights"])
    assert not np.triu(weights, 1).any() and np.tril(weights).sum() == pytest.approx(5, abs=1e-5)


def test_what_it_costs(lines):
    cost = lines()["cost"]
    projections = [cost[name].multiplications for name in ("query", "key", "value", "output")]
    assert projections == [5 * 512 * 512] * 4 == [1_310_720] * 4
    assert cost["raw_scores"].multiplications == cost["weighted_sum"].multiplications == 12_800
    assert cost["scaled_scores"].per_head.multiplications == cost["softmax"].per_head.multiplications == 25
    assert cost["query"].per_head.multiplications == 5 * 512 * 64
    assert cost["raw_scores"].per_head.multiplications == 1_600
    assert "1,310,720" in str(cost)
    assert cost.multiplications == 4 * 5 * 512**2 + 2 * 5**2 * 512 + 2 * 8 * 5**2


def test_the_matrices_of_each_head(lines):
    layer = layers.MultiHeadAttention(num_heads=8, key_dim=64, use_bias=False)
    x = array(1, 2, 512)
    expected = numpy(layer(x, x))
    w_q, w_k, w_v, w_o = (numpy(kernels) for kernels in lines(layer=layer)["kernels"].values())
    assert w_q.shape == w_k.shape == w_v.shape == (8, 512, 64) and w_o.shape == (8, 64, 512)
    heads = [softmax((x @ w_q[i]) @ (x @ w_k[i]).swapaxes(1, 2) / 8) @ (x @ w_v[i]) @ w_o[i] for i in range(8)]
    close(sum(heads), expected, 1e-4)


def test_heads_of_any_size(lines):
    names = lines(q=array(1, 2, 7), v=array(1, 5, 9), k=array(1, 5, 8))
    layer = names["layer"]
    assert names["output"].shape == (1, 2, 6)
    assert [numpy(kernels).shape for kernels in layer.head_kernels().values()] == [
        (2, 7, 3),
        (2, 8, 4),
        (2, 9, 5),
        (2, 5, 6),
    ]
    shared = layers.MultiHeadAttention(num_heads=2, query_dim=3, key_dim=4, value_dim=5, output_dim=6, score="additive")
    shared(array(1, 2, 7), array(1, 5, 9), array(1, 5, 8))
    assert layer.score.count_params() == 2 * shared.score.count_params()


def test_concatenation_then_w_o_or_without(lines):
    x = array(1, 5, 6)
    names = lines(x=x)
    assert names["with_projection"].shape == (1, 5, 6) and names["without"].shape == (1, 5, 8)
    layer = layers.MultiHeadAttention(num_heads=2, key_dim=4, output_projection=False, use_bias=False)
    output, weights = layer(x, x, return_attention_scores=True)
    w_v = list(layer.head_kernels().values())[2]
    close(output, np.concatenate([numpy(weights)[:, i] @ (x @ numpy(w_v[i])) for i in range(2)], axis=-1))


def test_eight_layers_against_one_matrix(lines):
    def built(units, count):
        layer = layers.MultiHeadAttention(num_heads=count, key_dim=units, use_bias=False)
        layer.build((None, None, 64), (None, None, 64))
        return layer

    names = lines(layer=built(8, 8), heads=[built(8, 1) for _ in range(8)])
    assert sum(names["parts"]) == names["whole"] == 5 * 64 * 64


def test_what_each_head_sees(lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = lines()
    weights = names["weights"]
    assert weights.shape[1] > 1 == names["single"].shape[1] and weights.shape[-1] == len(names["tokens"])
    looked_at = weights[0, :, 1:].argmax(axis=-1)
    assert len({tuple(row) for row in looked_at}) == len(looked_at), "every head looks elsewhere"
    assert (tmp_path / "heads.png").stat().st_size > 1000


@pytest.mark.parametrize("d", [16, 256])
def test_the_variance_of_a_dot_product(lines, d):
    raw, scaled = lines(d=d)["variances"]
    assert raw == pytest.approx(d, rel=0.1) and scaled == pytest.approx(1, rel=0.1)


def test_saturation(lines):
    q, k = array(1, 200, 1024), array(1, 5, 1024)
    unscaled, scaled = lines(q=q, k=k)["largest"]
    assert unscaled > 0.9 and scaled < 0.6
    # The gradient of softmax is α (1 − α): nothing where the weights are 0 and 1.
    slopes = {}
    for name in ("dot", "scaled_dot"):
        _, weights = layers.Attention(name)(q, k, return_attention_scores=True)
        alpha = numpy(weights)
        slopes[name] = np.median((alpha * (1 - alpha)).max(axis=-1))
    assert slopes["dot"] < 1e-3 < 0.1 < slopes["scaled_dot"]


def test_training_without_the_scale(command_lines):
    scaled, unscaled = (zoo.get_spec(parse(*command).model).config["score"] for command in command_lines)
    assert (scaled, unscaled) == ("scaled_dot", "dot")
