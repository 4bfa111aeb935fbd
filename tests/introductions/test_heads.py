"""Heads, as they are taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, numpy, softmax
from support.commands import parse

import zoo
from zoo import layers

X = array(1, 5, 8)
SIZES = {"query_dim": 3, "key_dim": 4, "value_dim": 5, "output_dim": 6}


def split(x, layer, name):
    """Returns the projections of each head, [N, T, H]."""
    return np.stack([x[0] @ numpy(kernel) for kernel in layer.head_kernels()[name]])


def additive_weights(x, layer, scores):
    """Returns the weights of additive heads, [N, T, S], by loops; a score has W₁, b, W₂ and v."""
    query, key = split(x, layer, "query"), split(x, layer, "key")
    e = np.zeros((len(query), len(x[0]), len(x[0])))
    for head, (w_1, w_2, v) in enumerate(scores):
        for i, q in enumerate(query[head]):
            for j, k in enumerate(key[head]):
                e[head, i, j] = np.tanh(q @ w_1 + k @ w_2) @ v
    return softmax(e)


def of_score(score):
    return [numpy(part.kernel) for part in (score.query_dense, score.key_dense)] + [
        numpy(score.score_dense.kernel)[:, 0]
    ]


def row_the_matrices_of_each_head(lines):
    layer = layers.MultiHeadAttention(num_heads=8, key_dim=64, use_bias=False)
    x = array(1, 2, 512)
    expected = numpy(layer(x, x))
    w_q, w_k, w_v, w_o = (numpy(kernels) for kernels in lines(layer=layer)["kernels"].values())
    assert w_q.shape == w_k.shape == w_v.shape == (8, 512, 64) and w_o.shape == (8, 64, 512)
    heads = [softmax((x @ w_q[i]) @ (x @ w_k[i]).swapaxes(1, 2) / 8) @ (x @ w_v[i]) @ w_o[i] for i in range(8)]
    close(sum(heads), expected, 1e-4)


def row_heads_of_any_size(lines):
    names = lines(q=array(1, 2, 7), v=array(1, 5, 9), k=array(1, 5, 8))
    assert names["output"].shape == (1, 2, 6)
    shapes = [numpy(kernels).shape for kernels in names["layer"].head_kernels().values()]
    assert shapes == [(2, 7, 3), (2, 8, 4), (2, 9, 5), (2, 5, 6)]


def row_additive_heads(lines):
    layer = lines(x=X)["layer"]
    _, weights = layer(X, X, return_attention_scores=True)
    close(weights[0], additive_weights(X, layer, [of_score(layer.score)] * 2))


def row_a_score_for_each_head(lines):
    layer = lines(x=X)["layer"]
    shared = layers.MultiHeadAttention(num_heads=2, key_dim=4, score="additive")
    shared(X, X)
    assert layer.score.count_params() == 2 * shared.score.count_params()
    _, weights = layer(X, X, return_attention_scores=True)
    first, _ = numpy(weights)[0]
    for weight in layer.score.weights[: len(shared.score.weights)]:
        weight.assign(array(*weight.shape))
    _, weights = layer(X, X, return_attention_scores=True)
    assert np.abs(numpy(weights)[0, 0] - first).max() > 1e-3


def row_sizes_of_heads_in_a_model(lines):
    kernels = lines()["model"].encoder_blocks[0].attention.head_kernels().values()
    assert [numpy(kernel).shape[2] for kernel in kernels][:3] == [6, 10, 14]


def row_concatenation_then_w_o(lines):
    names = lines(x=X)
    w_o = np.concatenate(list(names["layer"].head_kernels()["output"]))
    close(names["output"], names["concatenation"] @ numpy(w_o))
    assert names["concatenation"].shape == (1, 5, 8)


def row_concatenation_without_w_o(lines):
    names = lines(x=X)
    assert names["output"].shape == (1, 5, 8)
    layer = layers.MultiHeadAttention(num_heads=2, key_dim=4, output_projection=False, use_bias=False)
    output, weights = layer(X, X, return_attention_scores=True)
    close(output, np.concatenate(list(numpy(weights)[0] @ split(X, layer, "value")), axis=-1)[None])
    assert not names["model"].output_projection


@pytest.fixture(scope="module")
def eight():
    layer = layers.MultiHeadAttention(num_heads=8, key_dim=8, use_bias=False)
    layer.build((None, None, 64), (None, None, 64))
    return layer


def row_eight_layers_and_one_matrix_are_equal(lines, eight):
    x = array(1, 5, 64)
    names = lines(layer=eight, x=x)
    close(names["by_eight"], names["by_one"])
    close(names["by_one"], zoo.trace(eight, x)["query"])


def row_eight_layers_and_one_matrix_cost_the_same(lines, eight):
    heads = [layers.SelfAttention(units=8) for _ in range(8)]
    for head in heads:
        head.build((None, None, 64))
    names = lines(layer=eight, heads=heads)
    assert sum(names["parts"]) == names["whole"] == 5 * 64 * 64


def row_eight_layers_and_one_matrix_measured(command_lines):
    from benchmarks.growth import LAYERS

    ((module, arguments),) = command_lines
    assert module == "benchmarks.growth" and [LAYERS[name].heads for name in arguments[1::2]] == [1, 8, 8]


def row_what_each_head_sees(lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = lines()
    weights = names["weights"]
    assert weights.shape[1] > 1 and weights.shape[-1] == len(names["tokens"])
    looked_at = weights[0, :, 1:].argmax(axis=-1)
    assert len({tuple(row) for row in looked_at}) == len(looked_at), "every head looks elsewhere"
    assert (tmp_path / "heads.png").stat().st_size > 1000


def row_one_sharp_head(lines):
    names = lines()
    assert names["weights"].shape[:2] == (1, 1) and names["sees"] == "▁juicy"


def row_the_heads_of_a_served_model(command_lines):
    ((module, arguments),) = command_lines
    options = parse(module, arguments)
    assert (options.layer, options.head, str(options.heatmap)) == (0, "all", "heads.png")


def test_rows(check_rows):
    check_rows()
