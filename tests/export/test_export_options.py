"""Exports with smaller weights, those that put requests together, and those that XLA compiles."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from support.tiny_runs import run_quietly
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

import export.graph.xla_buckets
from export import saved_model
from export.graph.dynamic_batching import MAX_REQUEST_SIZE
from export.saved_model import export_saved_model
from export.server.errors import RequestError
from export.server.models.saved_model import LoadedModel

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "the old man sees a child", "my horse"]


def ask(model, signature, **texts):
    return model.predict(
        signature, {name: np.array([t.encode() for t in rows], object) for name, rows in texts.items()}
    )


def bytes_of(path):
    return sum(file.stat().st_size for file in (path / "variables").glob("*.data-*"))


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "share", "tolerance"), [("bfloat16", 0.7, 0.1), ("int8", 0.6, 0.3)])
def test_smaller_weights(text_workdir, text_run, text_export, tmp_path, weights, share, tolerance):
    path = export_saved_model(text_workdir, tmp_path, weights=weights)
    assert bytes_of(path) < share * bytes_of(text_export / "1")
    model, whole = LoadedModel(path, 1), LoadedModel(text_export / "1", 1)
    targets = text_run.translate(TEXTS)
    scores = ask(model, "score", source=TEXTS, target=targets)["log_prob"]
    expected = ask(whole, "score", source=TEXTS, target=targets)["log_prob"]
    np.testing.assert_allclose(scores, expected, atol=tolerance * np.abs(expected).max())
    assert not np.array_equal(scores, expected), "the stored weights are the ones that are read"
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    kinds = {reader.get_variable_to_dtype_map()[name] for name in reader.get_variable_to_shape_map()}
    assert tf.as_dtype(weights) in kinds


def test_weights_of_another_kind_are_refused(text_workdir, tmp_path, capsys):
    assert run_quietly(saved_model.main, text_workdir, "--output", tmp_path / "x", "--weights", "int4") == 2
    assert "`weights` must be float32, bfloat16 or int8. Received: weights='int4'." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num_batch_threads", 3], "--num_batch_threads is of no use without --dynamic_batching."),
        (
            ["--dynamic_batching", "--num_batch_threads", 0],
            "`num_batch_threads` must be an integer from 1 to 1024. Received: num_batch_threads=0.",
        ),
    ],
)
def test_batch_threads_that_cannot_be(text_workdir, tmp_path, capsys, flags, message):
    assert run_quietly(saved_model.main, text_workdir, "--output", tmp_path / "x", *flags) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def batching(text_workdir, shared):
    options = {"dynamic_batching": True, "num_batch_threads": 3}
    base = shared("exports/batching", lambda base: export_saved_model(text_workdir, base, **options))
    return LoadedModel(base / "1", 1)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, MAX_REQUEST_SIZE + 1])
def test_inputs_of_unequal_length_never_reach_a_batch(batching, count):
    with pytest.raises(RequestError, match="source and target must have equal numbers of texts"):
        ask(batching, "score", source=TEXTS[:1], target=TEXTS[:1] * count)
    assert len(ask(batching, "score", source=TEXTS[:1], target=TEXTS[:1])["log_prob"]) == 1


@pytest.mark.slow
def test_signatures_keep_their_shapes(batching, text_export):
    plain = LoadedModel(text_export / "1", 1)
    for name, signature in batching.signatures.items():
        for side in ("inputs", "outputs"):
            for key, info in getattr(plain.signatures[name], side).items():
                assert getattr(signature, side)[key].tensor_shape == info.tensor_shape, (name, key)


def exported_with_xla(workdir, base, **options):
    """Returns an export of small buckets, which soon compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export.graph.xla_buckets, "BATCH_SIZES", (2, 4))
        patch.setattr(export.graph.xla_buckets, "LENGTHS", (8, 16))
        return export_saved_model(workdir, base, xla=True, **options)


def check_xla(path):
    """In buckets and beyond the largest one, in number and in length, the signature answers as the default one does."""
    model = LoadedModel(path, 1)
    for texts in ([], TEXTS[1:2], TEXTS[2:], TEXTS, ["my girl runs and " * 9]):
        found, expected = (ask(model, name, text=texts) for name in ("xla", "serving_default"))
        for name, values in expected.items():
            check = np.testing.assert_array_equal if values.dtype == object else np.testing.assert_allclose
            check(found[name], values, **({} if values.dtype == object else {"rtol": 1e-4}))


@pytest.fixture(scope="module")
def compiled(text_workdir, shared):
    """With everything else that changes how the graph is made."""
    options = {"beam_size": 2, "weights": "bfloat16", "dynamic_batching": True}
    return shared("exports/compiled", lambda base: exported_with_xla(text_workdir, base, **options)) / "1"


@pytest.mark.slow
def test_xla_answers_as_the_default_signature_does(compiled):
    check_xla(compiled)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dates", "labelled", "lines"])
def test_xla_in_every_task(kind, request, tmp_path):
    check_xla(exported_with_xla(request.getfixturevalue(f"{kind}_workdir"), tmp_path))


@pytest.mark.slow
def test_only_the_signature_xla_needs_xla(compiled):
    graph = saved_model_pb2.SavedModel.FromString((compiled / "saved_model.pb").read_bytes()).meta_graphs[0]
    functions = {function.signature.name: function for function in graph.graph_def.library.function}
    nodes = {node.name: node for node in graph.graph_def.node}

    def called_by(node):
        """Yields the names of the functions that a node calls."""
        for value in node.attr.values():
            yield from (each.name for each in (value.func, *value.list.func) if each.name)

    def compiles(name, seen):
        """Returns whether a function, or one that it calls, is compiled."""
        if name in seen:
            return False
        seen.add(name)
        called = [each for node in functions[name].node_def for each in called_by(node)]
        return functions[name].attr["_XlaMustCompile"].b or any(compiles(each, seen) for each in called)

    def behind(name, seen):
        """Yields the functions that the value of a node comes from."""
        if name not in seen:
            seen.add(name)
            yield from called_by(nodes[name])
            for each in nodes[name].input:
                yield from behind(each.lstrip("^").partition(":")[0], seen)

    found = {
        name: any(compiles(each, set()) for out in signature.outputs.values() for each in behind(node_of(out), set()))
        for name, signature in graph.signature_def.items()
    }
    names = ("serving_default", "nbest", "score", "attention", "xla")
    assert {name: found[name] for name in names} == {name: name == "xla" for name in names}


def node_of(output):
    return output.name.partition(":")[0]


def test_warm_up_ends_where_no_text_is_long_enough():
    """A language model cuts a prompt that leaves no room for an answer to half."""

    def read(texts):
        size = len(texts[0])
        return tf.zeros([1, size if size < 13 else 6], tf.int32)

    texts = list(export.graph.xla_buckets.Buckets(13).warm_up(read))
    assert [len(batch) for batch in texts] == list(export.graph.xla_buckets.BATCH_SIZES)


@pytest.mark.slow
def test_every_bucket_is_warmed_up(compiled, text_run):
    records = tf.data.TFRecordDataset(str(compiled / "assets.extra" / "tf_serving_warmup_requests"))
    found = set()
    for record in records.as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        if request.model_spec.signature_name == "xla":
            texts = [text.decode() for text in tf.make_ndarray(request.inputs["text"])]
            length = max(map(len, text_run.source_ids(texts)))
            found.add((len(texts), 8 if length <= 8 else 16 if length <= 16 else None))
    assert found == {(2, 8), (2, 16), (4, 8), (4, 16)}
