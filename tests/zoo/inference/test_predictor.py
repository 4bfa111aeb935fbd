"""Models as functions of arrays."""

import threading
import time

import keras
import numpy as np
import pytest
from keras import ops

from zoo.inference import predictor
from zoo.inference.base_run import MAX_PREDICTORS
from zoo.inference.predictor import Predictor


class Sums(keras.Model):
    """Adds up rows, and counts how often it is traced or called."""

    def __init__(self):
        super().__init__()
        self.calls, self.built = [], True

    def call(self, inputs, training=True):
        assert not training
        self.calls.append(inputs["rows"].shape)
        return {"sum": ops.sum(inputs["rows"], axis=1)}


def batches():
    return [{"rows": np.arange(6, dtype="int32").reshape(-1, width)} for width in (1, 2, 3, 6)]


def test_answers_come_in_order():
    found = list(Predictor(Sums()).predict_batches(batches()))
    assert [each["sum"].tolist() for each in found] == [[0, 1, 2, 3, 4, 5], [1, 5, 9], [3, 12], [15]]
    assert list(Predictor(Sums()).predict_batches([])) == []


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="others compile each size, or nothing")
def test_one_graph_serves_all_sizes():
    model = Sums()
    predict = Predictor(model)
    assert [predict(each)["sum"].sum() for each in batches()] == [15] * 4
    assert [shape.as_list() for shape in model.calls] == [[None, None]]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="one at a time elsewhere")
def test_as_many_at_a_time_as_there_are_cores(monkeypatch):
    monkeypatch.setattr(predictor, "computing_cores", lambda: 3)
    meeting = threading.Barrier(3)

    class Meeting(Predictor):
        def __call__(self, inputs):
            meeting.wait(60)  # for two others
            return inputs["rows"].shape[1]

    assert list(Meeting(Sums()).predict_batches(batches()[:3])) == [1, 2, 3]


def test_a_failing_batch_fails_with_its_own_error(monkeypatch):
    """And what nobody wants any more is not begun."""
    monkeypatch.setattr(predictor, "computing_cores", lambda: 2)
    asked = []

    class Failing(Predictor):
        def __call__(self, inputs):
            asked.append(inputs["rows"].shape[1])
            time.sleep(0.02)
            if inputs["rows"].shape[1] == 3:
                raise ValueError("width 3")

    with pytest.raises(ValueError, match="width 3"):
        list(Failing(Sums()).predict_batches([{"rows": np.zeros((1, width), "int32")} for width in range(100)]))
    assert 3 < len(asked) < 20


def test_a_run_keeps_the_graphs_that_it_used_last(lines_run):
    run, made = lines_run.with_draft(lines_run), []
    for key in (*range(MAX_PREDICTORS), 0, "new", 0, 1):
        predictor = run._predictor(key, lambda key=key: made.append(key))
        assert predictor is run._predictor(key, None)
    assert made == [*range(MAX_PREDICTORS), "new", 1]
