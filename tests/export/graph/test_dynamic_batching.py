"""Requests that arrive together are answered together, each with its own answer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, RequestError, ask, meta_graph, texts_of

from export.graph import dynamic_batching
from export.graph.dynamic_batching import MAX_BATCH_SIZE, MAX_REQUEST_SIZE, batched
from export.saved_model import export_saved_model

LARGE = ["fg"] * (2 * MAX_BATCH_SIZE + 5)
TOO_LARGE = ["n"] * (MAX_REQUEST_SIZE + 1)
TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "the old man sees a child", "my horse"]
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


def test_parts_of_a_large_request_have_texts_of_about_equal_length():
    parts = []

    def note(*both):
        parts.append([each.numpy() for each in both])

    def lengths(text, number):
        tf.py_function(note, [tf.strings.length(text), number], [])
        return {"text": text, "number": number}

    specs = [tf.TensorSpec([None], dtype) for dtype in (tf.string, tf.int32)]
    answer = tf.function(batched(lengths, threads=1), specs, autograph=False)
    for size, sizes in ((80, [32, 32, 16]), (300, [128, 128, 44])):
        parts.clear()
        texts, numbers = ["x" * (number * 7 % size) for number in range(size)], list(range(size))
        found = answer(texts, numbers)
        assert texts_of(found["text"].numpy()) == texts and found["number"].numpy().tolist() == numbers
        assert [length for each, _ in parts for length in each] == list(range(size))[::-1]
        assert [len(each) for each, _ in parts] == sizes
        assert all(number * 7 % size == length for part in parts for length, number in zip(*part, strict=True))


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
    def queues(functions):
        nodes = [node for function in functions for node in function.node_def if node.op == "BatchFunction"]
        return [node.attr["shared_name"].s for node in nodes]

    def queues_of_a_model():
        function = tf.function(batched(lambda text: {"length": tf.strings.length(text)}), autograph=False)
        traced = function.get_concrete_function(tf.TensorSpec([None], tf.string))
        (spec,) = traced.structured_outputs.values()
        assert spec.shape.as_list() == [None] and spec.dtype == tf.int32, "sizes are known"
        return queues(traced.graph.as_graph_def().library.function)

    found = queues(meta_graph(two_signatures).graph_def.library.function)
    assert len(found) == len(set(found)) == 2 * 2 and b"" not in found, "one for large requests, one for others"
    assert len({*queues_of_a_model(), *queues_of_a_model()}) == 2 * 2, "models that are made alike share none"


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


@pytest.fixture(scope="module")
def batching(text_workdir, shared):
    options = {"dynamic_batching": True, "num_batch_threads": 3}
    base = shared("exports/batching", lambda base: export_saved_model(text_workdir, base, **options))
    return LoadedModel(base / "1", 1)


@pytest.mark.nightly
def test_requests_that_arrive_together_get_their_own_answers(batching, text_run):
    """Of different lengths and sizes, one empty, one larger than the largest batch."""
    requests = [TEXTS[:1], TEXTS[1:3], [], TEXTS, TEXTS[2:3], TEXTS * 20] * 3
    answers: list = [None] * len(requests)

    def call(index):
        answers[index] = ask(batching, "serving_default", text=requests[index])

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    expected = dict(zip(TEXTS, text_run.nbest(TEXTS, beam_size=1), strict=True))
    for texts, answer in zip(requests, answers, strict=True):
        assert [text.decode() for text in answer["text"]] == [expected[text][0].text for text in texts]
        np.testing.assert_allclose(answer["log_prob"], [expected[text][0].log_prob for text in texts], rtol=1e-3)


@pytest.mark.nightly
@pytest.mark.parametrize("count", [3, MAX_REQUEST_SIZE + 1])
def test_inputs_of_unequal_length_never_reach_a_batch(batching, count):
    with pytest.raises(RequestError, match="source.*target"):
        ask(batching, "score", source=TEXTS[:1], target=TEXTS[:1] * count)
    assert len(ask(batching, "score", source=TEXTS[:1], target=TEXTS[:1])["log_prob"]) == 1


@pytest.mark.nightly
def test_samples_that_are_refused_never_reach_a_batch(lines_workdir, lines_run, shared):
    """Every other request has a temperature that is not a number."""
    options = {"dynamic_batching": True}
    base = shared("exports/batching_lines", lambda base: export_saved_model(lines_workdir, base, **options))
    model = LoadedModel(base / "1", 1)
    begin = threading.Barrier(8)

    def ask(number):
        texts, bad = ["ab", "h", ""][: 1 + number % 3], number % 2
        numbers = {"seed": np.int32(number), "temperature": np.float32(np.nan if bad else 2), "top_p": np.float32(1)}
        begin.wait(60)
        try:
            answer = model.predict("sample", {"text": np.array(texts, object), **numbers})["text"]
        except RequestError as error:
            return bad and "`temperature` must be a finite number" in str(error)
        return [text.decode() for text in answer] == lines_run.generate(texts, temperature=2.0, seed=number)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8), timeout=120))


@pytest.mark.nightly
def test_signatures_keep_their_shapes(batching, text_export):
    plain = LoadedModel(text_export / "1", 1)
    for name, signature in batching.signatures.items():
        for side in ("inputs", "outputs"):
            for key, info in getattr(plain.signatures[name], side).items():
                assert getattr(signature, side)[key].tensor_shape == info.tensor_shape, (name, key)
