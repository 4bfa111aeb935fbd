"""The signature that XLA compiles."""

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, ask, meta_graph
from tensorflow_serving.apis import prediction_log_pb2

import export.graph.xla_buckets
from export.saved_model import export_saved_model

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "the old man sees a child", "my horse"]


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


@pytest.mark.nightly
def test_xla_answers_as_the_default_signature_does(compiled):
    check_xla(compiled)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["labelled", "lines"])
def test_xla_in_other_tasks(kind, request, tmp_path):
    check_xla(exported_with_xla(request.getfixturevalue(f"{kind}_workdir"), tmp_path, signatures="none"))


@pytest.mark.nightly
def test_only_the_signature_xla_needs_xla(compiled):
    graph = meta_graph(compiled)
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


@pytest.mark.nightly
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
