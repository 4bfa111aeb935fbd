"""Requests that arrive together are answered together, each with its own answer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from export.graph import dynamic_batching
from export.graph.dynamic_batching import MAX_BATCH_SIZE, MAX_REQUEST_SIZE, batched
from export.server.models.saved_model import LoadedModel

LARGE = ["fg"] * (2 * MAX_BATCH_SIZE + 5)
TOO_LARGE = ["n"] * (MAX_REQUEST_SIZE + 1)
REQUESTS = [["a"], ["bcd", "e"], [], LARGE, ["hi", "", "jklm"], TOO_LARGE] * 3


def test_every_request_gets_its_own_answer(monkeypatch):
    monkeypatch.setattr(dynamic_batching, "TIMEOUT_MICROSECONDS", 200_000)  # a busy machine is slow to ask
    together = []

    def lengths(text):
        tf.py_function(lambda size: together.append(int(size)), [tf.shape(text)[0]], [])
        return {"text": tf.strings.upper(text), "length": tf.strings.length(text)}

    answer = tf.function(batched(lengths), input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    begin = threading.Barrier(len(REQUESTS))

    def ask(texts):
        begin.wait(60)
        return answer(tf.constant(texts, tf.string))

    with ThreadPoolExecutor(len(REQUESTS)) as pool:
        answers = list(pool.map(ask, REQUESTS, timeout=60))
    for texts, found in zip(REQUESTS, answers, strict=True):
        assert [text.decode() for text in found["text"].numpy()] == [text.upper() for text in texts]
        np.testing.assert_array_equal(found["length"], [len(text) for text in texts])
    assert sum(together) == sum(map(len, REQUESTS))
    alone = [size for size in together if size == 0 or size > MAX_BATCH_SIZE]
    assert sorted(alone) == sorted([0, MAX_REQUEST_SIZE + 1] * 3)
    parts = sum(-(-len(texts) // MAX_BATCH_SIZE) for texts in REQUESTS if len(texts) <= MAX_REQUEST_SIZE)
    assert len(together) - len(alone) < parts, "some were answered together"


def test_sizes_are_known():
    function = tf.function(batched(lambda text: {"length": tf.strings.length(text)}), autograph=False)
    (spec,) = function.get_concrete_function(tf.TensorSpec([None], tf.string)).structured_outputs.values()
    assert spec.shape.as_list() == [None] and spec.dtype == tf.int32


@pytest.fixture(scope="module")
def two_signatures(tmp_path_factory):
    """The folder of a SavedModel whose signatures give different numbers of results of different types."""

    def upper(text):
        return {"text": tf.strings.upper(text)}

    def lengths(text):
        return {"length": tf.strings.length(text), "twice": tf.strings.join([text, text])}

    folder = tmp_path_factory.mktemp("two") / "1"
    texts = [tf.TensorSpec([None], tf.string, name="text")]
    functions = {function.__name__: batched(function) for function in (upper, lengths)}
    signatures = {name: tf.function(each, texts, autograph=False) for name, each in functions.items()}
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    return folder


def test_every_signature_has_a_queue_of_its_own(two_signatures):
    proto = saved_model_pb2.SavedModel.FromString((two_signatures / "saved_model.pb").read_bytes())
    functions = proto.meta_graphs[0].graph_def.library.function
    nodes = [node for function in functions for node in function.node_def if node.op == "BatchFunction"]
    queues = {node.attr["shared_name"].s for node in nodes}
    assert len(nodes) == len(queues) == 2 and b"" not in queues


def test_models_that_are_made_alike_share_no_queue():
    def queue():
        function = tf.function(batched(lambda text: {"length": tf.strings.length(text)}), autograph=False)
        graph = function.get_concrete_function(tf.TensorSpec([None], tf.string)).graph.as_graph_def()
        nodes = [node for each in graph.library.function for node in each.node_def]
        (name,) = [node.attr["shared_name"].s for node in nodes if node.op == "BatchFunction"]
        return name

    assert queue() != queue()


def test_requests_to_several_signatures_do_not_mix(two_signatures):
    model = LoadedModel(two_signatures, 1)
    chosen = [("upper", ()), ("lengths", ()), ("lengths", ["twice"]), ("lengths", ["length"])] * 3
    begin = threading.Barrier(len(chosen))

    def ask(index):
        signature, outputs = chosen[index]
        begin.wait(60)
        for turn in range(20):
            text = f"text {index} {turn}".encode()
            expected = {"text": text.upper()} if signature == "upper" else {"length": len(text), "twice": 2 * text}
            found = model.predict(signature, {"text": np.array([text], object)}, outputs)
            assert {name: values.tolist() for name, values in found.items()} == {
                name: [value] for name, value in expected.items() if not outputs or name in outputs
            }

    with ThreadPoolExecutor(len(chosen)) as pool:
        list(pool.map(ask, range(len(chosen)), timeout=120))
