"""The counts of operations in graphs, and that none has grown by more than a tenth."""

import pytest
import tensorflow as tf

from benchmarks import graphs

FEW = ("causal_lm_tiny", "rnnsearch", "transformer_tiny")


def test_no_step_of_decoding_has_grown():
    counts = {(name, "decoding step"): graphs.decoding_step(name).total() for name in FEW}
    assert not graphs.larger(counts)
    before = graphs.stored()
    assert {row: count for row, count in counts.items() if count < 0.9 * before[row]} == {}, "write the table anew"


@pytest.mark.nightly
@pytest.mark.parametrize("kind", graphs.GRAPHS)
def test_no_graph_has_grown(kind, capsys):
    assert graphs.main(["--graph", kind]) == 0, capsys.readouterr().err


def test_a_count_that_has_grown_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(graphs, "TABLE", tmp_path / "graphs.csv")
    monkeypatch.setitem(graphs.GRAPHS, "decoding step", lambda name: graphs.Counter({"MatMul": len(name)}))
    command = ["--graph", "decoding step", "--model", "rnnsearch"]
    assert graphs.main([*command, "--write"]) == 0 and graphs.stored() == {("rnnsearch", "decoding step"): 9}
    assert graphs.main(command) == 0
    monkeypatch.setitem(graphs.GRAPHS, "decoding step", lambda name: graphs.Counter({"MatMul": 10}))
    assert graphs.main(command) == 1
    assert "decoding step of rnnsearch: 10 operations, 9 before" in capsys.readouterr().err


def test_constants_are_not_counted_and_the_innermost_loop_is_the_step():
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
    def nested(number):
        inner = lambda i: tf.while_loop(lambda i: i < 100, lambda i: [i * 2 + 3], [i])  # noqa: E731
        return tf.while_loop(lambda i: i < 1000, inner, [number + 1])

    graph = nested.get_concrete_function().graph.as_graph_def()
    step = graphs.step_of(graph)
    assert step["Mul"] == step["AddV2"] - 1 == 1 and "Const" not in step  # one more counts the iterations
    assert graphs.counted(graph)["While"] + graphs.counted(graph)["StatelessWhile"] == 2
