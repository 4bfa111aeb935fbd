"""Requests of several callers run together: how batches form, split, overflow, and forget who has given up."""

import threading
import time
from concurrent import futures

import numpy as np
import pytest
from google.protobuf import text_format
from support.server_models import (
    SECONDS,
    closed_gate,
    publish,
    question,
    refusal,
    serving,
)

from export.server import config_files
from export.server.batching import Batcher, BatchingParameters, join_rows
from export.server.context import RequestContext
from export.server.errors import RequestError, ServingError, invalid_argument


class Graph:
    """Doubles what it is fed and remembers it; holds batches back until `open` is set."""

    def __init__(self, opened=True):
        self.fed = []
        self.started = threading.Semaphore(0)
        self.opened = threading.Event()
        if opened:
            self.opened.set()

    def __call__(self, feeds, context):
        self.fed.append({name: array.tolist() for name, array in feeds.items()})
        self.started.release()
        assert self.opened.wait(SECONDS)
        if any((array == 13).any() for array in feeds.values()):
            raise invalid_argument("thirteen")
        return [2 * array for array in feeds.values()]


@pytest.fixture
def crowd():
    """Asks from many threads: `crowd(batcher, graph, rows, …)` returns futures."""
    with futures.ThreadPoolExecutor(16) as pool:

        def ask(batcher, graph, *inputs, context=None, key="key"):
            context = context or RequestContext(deadline=time.monotonic() + SECONDS)
            return [
                pool.submit(lambda x=x: batcher.run(key, graph, {"x": np.array(x)}, context)[0].tolist())
                for x in inputs
            ]

        yield ask


def held(batcher, graph, crowd):
    """Occupies the one thread of a batcher, so that what follows has to queue."""
    (first,) = crowd(batcher, graph, [0])
    assert graph.started.acquire(timeout=SECONDS)
    return first


def wait_for_rows(batcher, rows):
    deadline = time.monotonic() + SECONDS
    while (
        sum(task.rows for queue in list(batcher._queues.values()) for batch in queue.batches for task in batch) != rows
    ):
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def one_thread(**parameters):
    return Batcher(BatchingParameters(num_batch_threads=1, **parameters))


def results(asked):
    return [one.result(SECONDS) for one in asked]


def test_requests_are_joined_and_split(crowd):
    batcher, graph = one_thread(timeout_seconds=5.0, max_batch_size=6, execution_batch_size=6), Graph()
    begin = time.monotonic()
    asked = crowd(batcher, graph, [1, 2], [3], [4, 5, 6])
    assert results(asked) == [[2, 4], [6], [8, 10, 12]]
    assert [len(feeds["x"]) for feeds in graph.fed] == [6], "a full batch does not wait"
    assert time.monotonic() - begin < 4
    assert results(crowd(one_thread(timeout_seconds=0.01), graph, [7])) == [[14]], "nor does one that is late"
    batcher.stop()


def test_batches_are_padded_to_allowed_sizes(crowd):
    batcher, graph = one_thread(allowed_batch_sizes=(4, 1000)), Graph()
    assert results(crowd(batcher, graph, [5, 7])) == [[10, 14]]
    assert graph.fed == [{"x": [5, 7, 5, 5]}], "padded with a row that is surely valid"
    assert batcher.run("k", graph, {"x": np.zeros([0])}, RequestContext())[0].tolist() == []


def test_inner_shapes(crowd):
    graph = Graph(opened=False)
    batcher = one_thread(pad_variable_length_inputs=True)
    first = held(batcher, graph, crowd)
    asked = crowd(batcher, graph, [[1]], [[2, 3, 4]], key="rows")
    wait_for_rows(batcher, 2)
    graph.opened.set()
    assert first.result(SECONDS) == [0]
    assert sorted(map(str, results(asked))) == ["[[2, 0, 0]]", "[[4, 6, 8]]"]
    strict, graph = one_thread(), Graph(opened=False)
    held(strict, graph, crowd)
    asked = crowd(strict, graph, [[1]], [[2, 3, 4]], key="rows")
    wait_for_rows(strict, 2)
    graph.opened.set()
    assert results(asked) == [[[2]], [[4, 6, 8]]], "requests that cannot be joined run on their own"


def test_one_bad_request_fails_alone(crowd):
    batcher, graph = one_thread(), Graph(opened=False)
    held(batcher, graph, crowd)
    good, bad = crowd(batcher, graph, [1]), crowd(batcher, graph, [13])
    wait_for_rows(batcher, 2)
    graph.opened.set()
    assert results(good) == [[2]]
    with pytest.raises(RequestError, match="thirteen"):
        results(bad)


def test_the_queue_is_bounded(crowd):
    batcher, graph = one_thread(max_batch_size=2, execution_batch_size=2, max_enqueued_batches=2), Graph(opened=False)
    held(batcher, graph, crowd)
    asked = crowd(batcher, graph, [1, 2], [3, 4])
    wait_for_rows(batcher, 4)
    with pytest.raises(RequestError, match="max_enqueued_batches is 2") as e:
        batcher.run("key", graph, {"x": np.ones(1)}, RequestContext())
    assert e.value.code.name == "UNAVAILABLE"
    other = crowd(batcher, graph, [5], key="other")
    graph.opened.set()
    assert results(other) == [[10]], "one full queue does not close the others"
    assert results(asked) == [[2, 4], [6, 8]]


def test_no_part_of_a_refused_request_runs(crowd):
    batcher = one_thread(max_batch_size=6, execution_batch_size=2, max_enqueued_batches=2)
    graph = Graph(opened=False)
    held(batcher, graph, crowd)
    waiting = crowd(batcher, graph, [1])
    wait_for_rows(batcher, 1)
    with pytest.raises(RequestError, match="currently 1 batches .* is 2"):
        batcher.run("key", graph, {"x": np.full(6, 7)}, RequestContext())
    graph.opened.set()
    assert results(waiting) == [[2]] and not any(7 in feeds["x"] for feeds in graph.fed)


def test_large_requests(crowd):
    batcher, graph = one_thread(max_batch_size=5, execution_batch_size=2), Graph()
    assert results(crowd(batcher, graph, [1, 2, 3, 4, 5])) == [[2, 4, 6, 8, 10]]
    assert [len(feeds["x"]) for feeds in graph.fed] == [2, 2, 1]
    with pytest.raises(RequestError, match="6 .* 5"):
        batcher.run("key", graph, {"x": np.ones(6)}, RequestContext())


def test_what_cannot_be_joined_or_split():
    for feeds, message in (
        ({}, "one input"),
        ({"x": np.array(1)}, "one dimension"),
        ({"x": np.ones(2), "y": np.ones(3)}, "equal 0th-dimension size"),
    ):
        with pytest.raises(RequestError, match=message):
            one_thread().run("key", Graph(), feeds, RequestContext())
    for output, message in ((np.array(1), "has 0 dimensions"), (np.ones(3), "dimension .*sum")):
        with pytest.raises(RequestError, match=message) as caught:
            one_thread().run("key", lambda *_, output=output: [output], {"x": np.ones(2)}, RequestContext())
        assert caught.value.code.name == "FAILED_PRECONDITION"
    arrays = [np.array([[b"a"]], object), np.array([[b"b", b"c"]], object)]
    assert join_rows("x", arrays, 2, pad_inner=True).tolist() == [[b"a", b""], [b"b", b"c"]]
    with pytest.raises(RequestError, match="different ranks"):
        join_rows("x", [np.zeros([1, 2]), np.zeros([1, 2, 3])], 2, pad_inner=True)


def test_who_has_given_up_is_not_computed(crowd):
    batcher, graph = one_thread(), Graph(opened=False)
    held(batcher, graph, crowd)
    late = crowd(batcher, graph, [1], context=RequestContext(deadline=time.monotonic() + 0.05))
    gone = crowd(batcher, graph, [2], context=RequestContext(is_cancelled=lambda: True))
    wait_for_rows(batcher, 2)
    with pytest.raises(RequestError) as caught:
        results(late)
    assert caught.value.code.name == "DEADLINE_EXCEEDED"
    graph.opened.set()
    with pytest.raises(RequestError) as caught:
        results(gone)
    assert caught.value.code.name == "CANCELLED"
    assert graph.fed == [{"x": [0]}]


def read(text, tmp_path):
    file = tmp_path / "batching.pbtxt"
    file.write_text(text)
    return BatchingParameters.from_message(config_files.read_config("batching_parameters_file", str(file)))


def test_parameters_from_the_stock_file(tmp_path):
    text = """max_batch_size { value: 8 } batch_timeout_micros { value: 2500 } max_enqueued_batches { value: 3 }
    num_batch_threads { value: 2 } thread_pool_name { value: "pool" } allowed_batch_sizes: 4 allowed_batch_sizes: 8
    pad_variable_length_inputs: true"""
    assert read(text, tmp_path) == BatchingParameters(8, 0.0025, 3, 2, "pool", (4, 8), True, 8)
    assert read("", tmp_path) == BatchingParameters()
    split = (
        "max_batch_size { value: 8 } enable_large_batch_splitting { value: true } max_execution_batch_size { value: 2 }"
    )
    assert read(split, tmp_path).execution_batch_size == 2
    for wrong, message in {
        "max_batch_size { value: 0 }": "must be positive",
        "max_batch_size { value: 8 } allowed_batch_sizes: 4": "last entry was 4; expected 8",
        "max_batch_size { value: 8 } allowed_batch_sizes: 8 allowed_batch_sizes: 8": "monotonically increasing",
        f"{split.replace('2 }', '9 }')}": "must not exceed max_batch_size",
        "max_batch: 8": 'no field named "max_batch"',
    }.items():
        with pytest.raises(ServingError, match=message):
            read(wrong, tmp_path)


def test_batching_over_grpc(scale_models, tmp_path):
    publish(scale_models[2], tmp_path / "1")
    file = tmp_path / "batching.pbtxt"
    parameters = config_files.read_config("batching_parameters_file", "/dev/null")
    parameters.max_batch_size.value, parameters.num_batch_threads.value = 4, 1
    parameters.max_enqueued_batches.value = 1
    file.write_text(text_format.MessageToString(parameters))
    settings = {"enable_batching": True, "batching_parameters_file": str(file)}
    with serving(tmp_path, **settings) as (server, ask), closed_gate() as gate, futures.ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask.predict, [1.0], signature="gate")
        assert gate.waiting.acquire(timeout=SECONDS)
        waiting = [pool.submit(ask.predict, [float(x)], signature="gate") for x in range(2, 6)]
        wait_for_rows(server._batcher, 4)
        assert refusal(ask.prediction.Predict, question([1.0], signature="gate"))[0] == "UNAVAILABLE"
        gate.opened.set()
        assert first.result(SECONDS) == [2.0]
        assert results(waiting) == [[4.0], [6.0], [8.0], [10.0]]
        code, details = refusal(ask.prediction.Predict, question([1.0] * 5))
        assert (code, details) == ("INVALID_ARGUMENT", "Task size 5 is larger than maximum input batch size 4")
        code, details = refusal(ask.prediction.Predict, question([1.0, 2.0], signature="total"))
        assert (code, details) == ("FAILED_PRECONDITION", "Batched output tensor has 0 dimensions")
        assert ask.predict([1.0, 2.0, 4.0]) == [2.0, 4.0, 8.0]
        waited = (
            b':tensorflow:serving:batching_session:queuing_latency_count{thread_pool_name="model_server_batch_threads"}'
        )
        assert waited in server._metrics.page()
