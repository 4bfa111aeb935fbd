"""Heads, as they are taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, numpy, softmax
from support.commands import parse

import export.heatmap
import zoo
from zoo import layers

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


def row_the_matrices_of_each_head(names):
    x = array(1, 2, 512)
    expected = numpy(names["layer"](x, x))
    w_q, w_k, w_v, w_o = (numpy(kernels) for kernels in names["kernels"].values())
    assert w_q.shape == w_k.shape == w_v.shape == (8, 512, 64) and w_o.shape == (8, 64, 512)
    heads = [softmax((x @ w_q[i]) @ (x @ w_k[i]).swapaxes(1, 2) / 8) @ (x @ w_v[i]) @ w_o[i] for i in range(8)]
    close(sum(heads), expected, 1e-4)


def row_heads_of_any_size(names):
    assert names["output"].shape == (1, 3, 6)
    shapes = [numpy(kernels).shape for kernels in names["heads"].head_kernels().values()]
    assert shapes == [(2, 4, 3), (2, 4, 4), (2, 2, 5), (2, 5, 6)]


def row_additive_heads(names):
    heads = names["heads"]
    close(names["weights"][0], additive_weights(names["x"], heads, [of_score(heads.score)] * 2))


def row_a_score_for_each_head(names):
    heads, x = names["heads"], names["x"]
    shared = layers.MultiHeadAttention(num_heads=2, key_dim=4, score="additive")
    shared(x, x)
    assert heads.score.count_params() == 2 * shared.score.count_params()
    for weight in heads.score.weights[: len(shared.score.weights)]:
        weight.assign(array(*weight.shape))
    _, weights = heads(x, x, return_attention_scores=True)
    assert np.abs(numpy(weights)[0, 0] - numpy(names["weights"])[0, 0]).max() > 1e-3


def row_sizes_of_heads_in_a_model(names):
    kernels = names["model"].encoder_blocks[0].attention.head_kernels().values()
    assert [numpy(kernel).shape[2] for kernel in kernels][:3] == [6, 10, 14]


def row_concatenation_then_w_o(names):
    w_o = np.concatenate(list(names["heads"].head_kernels()["output"]))
    close(names["output"], names["concatenation"] @ numpy(w_o))
    assert names["concatenation"].shape == (1, 5, 8)
    assert "2 ×" in names["svg"] and "concatenation W_o, [T, 8]" in names["svg"]


def row_concatenation_without_w_o(names):
    heads = list(numpy(names["weights"])[0] @ split(names["x"], names["heads"], "value"))
    close(names["output"], np.concatenate(heads, axis=-1)[None])
    assert not names["model"].output_projection


def row_eight_layers_and_one_matrix_are_equal(names):
    close(names["by_eight"], names["by_one"])
    close(names["by_one"], zoo.trace(names["layer"], names["words"])["query"])


def row_eight_layers_and_one_matrix_cost_the_same(names):
    assert names["parts"] == [5 * 512 * 64] * 8 and names["whole"] == [5 * 512 * 512]


def row_eight_layers_and_one_matrix_measured(command_lines):
    from benchmarks.growth import LAYERS

    ((module, arguments),) = command_lines
    assert module == "benchmarks.growth" and [LAYERS[name].heads for name in arguments[1::2]] == [1, 8, 8]


def row_what_each_head_attends_to(names, pictures):
    weights = names["weights"]
    assert weights.shape[1] > 1 and weights.shape[-1] == len(names["tokens"])
    looked_at = weights[0, :, 1:].argmax(axis=-1)
    assert len({tuple(row) for row in looked_at}) == len(looked_at), "every head looks elsewhere"
    drawn = export.heatmap._draw(names["tokens"], names["tokens"], weights[0], None, names["axes"])
    panels = [axes.get_title() for axes in drawn.axes if axes.get_title()]
    assert panels == [f"head {number}" for number in range(weights.shape[1])]
    assert (pictures / "heads.png").stat().st_size > 1000


def row_one_sharp_head(names):
    assert names["weights"].shape[:2] == (1, 1) and names["attended"] == "▁juicy"


def row_the_heads_of_a_served_model(command_lines):
    ((module, arguments),) = command_lines
    options = parse(module, arguments)
    assert (options.layer, options.head, str(options.heatmap)) == (0, "all", "heads.png")


@pytest.mark.nightly
def test_rows(check_rows):
    check_rows()
