"""Deadlines end a computation, and take nobody along who shares its batch in the graph."""

import threading
import time
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from support.server_models import SECONDS, SESSION, closed_gate, pass_gate, until

from export.graph import dynamic_batching
from export.graph.dynamic_batching import batched
from export.server.context import RequestContext
from export.server.errors import RequestError
from export.server.models import saved_model
from export.server.models.saved_model import LoadedModel

HASTY = 0.3  # seconds
STEPS = np.int32(4_000_000)  # ten seconds of work


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """The folder of a model that doubles behind the gate, two texts at a time, in a loop that could be ended."""

    def double(x):
        x = tf.strings.to_number(x)
        held = tf.ensure_shape(tf.numpy_function(pass_gate, [x], tf.float32), [None])
        return {"y": tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y + x / 2), [0, held])[1]}

    path = tmp_path_factory.mktemp("batching") / "1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic_batching, "MAX_BATCH_SIZE", 2)
        patch.setattr(dynamic_batching, "TIMEOUT_MICROSECONDS", int(SECONDS * 1e6))
        together = tf.function(batched(double), [tf.TensorSpec([None], tf.string, name="x")], autograph=False)
        tf.saved_model.save(tf.Module(), str(path), signatures=together)
    return path


@pytest.fixture
def model(version):
    session = tf.compat.v1.ConfigProto()
    text_format.Parse(SESSION.read_text(), session)
    model = LoadedModel(version, 1, session)
    yield model
    model.close()


def ask(model, *x, seconds=SECONDS):
    """Returns the answer, or the name of the status."""
    try:
        context = RequestContext(deadline=time.monotonic() + seconds)
        return model.predict("serving_default", {"x": np.array(list(map(str, x)), object)}, context=context)[
            "y"
        ].tolist()
    except RequestError as error:
        return error.code.name


def test_who_cannot_wait_takes_nobody_along(model):
    with futures.ThreadPoolExecutor() as pool, closed_gate() as gate:
        patient = pool.submit(ask, model, 1.0)
        time.sleep(HASTY)  # A batch ends with the deadline of its last request, if with any.
        begin = time.monotonic()
        assert ask(model, 2.0, seconds=HASTY) == "DEADLINE_EXCEEDED"
        assert HASTY <= time.monotonic() - begin < SECONDS / 2
        assert gate.waiting.acquire(timeout=SECONDS), "the two share a batch"
        gate.opened.set()
        assert patient.result(SECONDS) == [2.0]
        assert ask(model, 2.0, 3.0) == [4.0, 6.0]


def test_steps_that_nobody_waits_for_are_bounded(version, monkeypatch):
    monkeypatch.setattr(saved_model, "_STEPS", 2)
    before, model = threading.active_count(), LoadedModel(version, 1)
    with closed_gate() as gate:
        assert [ask(model, 1.0, 2.0, seconds=HASTY) for _ in range(4)] == ["DEADLINE_EXCEEDED"] * 4
        gate.opened.set()
        assert ask(model, 1.0, 2.0) == [2.0, 4.0]
        model.close()
    assert sum(iter(lambda: gate.waiting.acquire(blocking=False), False)) <= 3, "what had not begun never runs"
    until(lambda: threading.active_count() <= before)


def test_a_computation_ends_with_its_deadline(toy_base):
    model = LoadedModel(toy_base / "3", 3)
    begin = time.monotonic()
    with pytest.raises(RequestError) as caught:
        model.predict("slow", {"steps": STEPS}, context=RequestContext(deadline=begin + HASTY))
    assert (caught.value.code.name, time.monotonic() - begin < SECONDS / 2) == ("DEADLINE_EXCEEDED", True)
    begin = time.process_time()
    time.sleep(HASTY)
    assert time.process_time() - begin < HASTY / 2, "nothing runs on"
    model.close()
