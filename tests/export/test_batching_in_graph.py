"""Requests that arrive together are answered together, each with its own answer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from export import batching
from export.batching import LARGEST, batched

REQUESTS = [["a"], ["bcd", "e"], [], ["fg"] * LARGEST, ["hi", "", "jklm"], ["n"] * (LARGEST + 1)] * 3


def test_every_request_gets_its_own_answer(monkeypatch):
    monkeypatch.setattr(batching, "TIMEOUT_MICROSECONDS", 200_000)  # a busy machine is slow to ask
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
    assert sum(together) == sum(map(len, REQUESTS)) and len(together) < len(REQUESTS), "some were answered together"


def test_sizes_are_known():
    function = tf.function(batched(lambda text: {"length": tf.strings.length(text)}), autograph=False)
    (spec,) = function.get_concrete_function(tf.TensorSpec([None], tf.string)).structured_outputs.values()
    assert spec.shape.as_list() == [None] and spec.dtype == tf.int32
