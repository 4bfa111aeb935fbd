"""What convolution, recurrence and self-attention cost, as it is taught."""

import numpy as np
import pytest
from introductions.page import numbers

pytestmark = pytest.mark.nightly  # its page computes for ten seconds

N, D, K = 12, 16, 3


def row_the_cost_of_convolution(names, printed):
    at_the_ends = 2 * D * D  # products of the first and the last filter that reach beyond the text
    assert names["multiplications"] == K * N * D * D - at_the_ends
    assert numbers(printed) == [K * N * D * D, K * N * D * D - at_the_ends]


def row_the_cost_of_recurrence(names, printed):
    assert names["multiplications"] == 2 * N * D * D and numbers(printed) == [N * D * D, 2 * N * D * D]


def row_the_cost_of_self_attention(names):
    assert names["scores"] == names["weighted_sum"] == N * N * D


def row_sequential_steps(names):
    assert names["steps"] == [1, N, 1]
    assert [names["svg"].count(word) for word in ("<polyline", "<circle")] == [3 * 5 - 2 + 5 + 4 + 5 * 5, 3 * 2 * 5]


def row_the_longest_path(names):
    assert names["paths"] == [N / K, N, 1]


def row_measured_and_drawn(command_lines):
    from benchmarks.growth import LAYERS

    ((module, arguments),) = command_lines
    measured = [LAYERS[name] for name in arguments[1::2]]
    assert module == "benchmarks.growth"
    assert [layer.multiplications for layer in measured] == ["k·n·d²", "n·d²", "n²·d"]
    assert [(layer.steps, layer.longest_path) for layer in measured] == [("1", "n/k"), ("n", "n"), ("1", "1")]


def row_words_that_are_far_apart(names, printed):
    gru, attention = (np.array(line.get_ydata()) for line in names["figure"].axes[0].lines)  # by their distance
    slopes = [np.polyfit(np.arange(100), np.log(reached), 1)[0] for reached in (gru, attention)]
    assert slopes[0] < -0.3 and abs(slopes[1]) < 0.02  # a power of the distance, and none
    assert numbers(printed) == pytest.approx([gru[97], attention[97]], rel=0.2)  # one digit of them
    assert gru[97] < 1e-15 < 1e-3 < attention[97]


def test_rows(check_rows):
    check_rows()
