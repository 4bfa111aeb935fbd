"""Exported models, loaded the way the stock server loads them: what they answer, and what they consist of."""

import json
import math
import os
import signal
import stat
import sys

import numpy as np
import pytest
import tensorflow as tf
from support.tiny_runs import run_quietly
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from export import saved_model
from export.graph import warmup
from export.graph.provenance import read_options
from export.saved_model import export_saved_model, next_version
from export.server.errors import RequestError
from export.server.models.saved_model import LoadedModel
from zoo.errors import InputError
from zoo.inference import MAX_SOURCE_LENGTH
from zoo.models.shared.embeddings import tied_tables

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "Σάββατο 4 Οκτωβρίου 1986", "۴\u200d😀 ß…"]

OUTPUTS = {
    "serving_default": {"text": ("string", 1), "log_prob": ("float32", 1)},
    "attention": {
        "text": ("string", 1),
        "source_tokens": ("string", 2),
        "target_tokens": ("string", 2),
        "attention": ("float32", 5),
    },
}
ANSWERING = ["serving_default", "attention"]
OUTPUTS |= {"nbest": {"texts": ("string", 2), "log_probs": ("float32", 2)}, "score": {"log_prob": ("float32", 1)}}
FORM = {"weights": "float32", "dynamic_batching": False, "num_batch_threads": 2, "xla": False}
DEFAULTS = {**FORM, "beam_size": 1, "nbest": 5, "length_penalty": 0.6, "coverage_penalty": 0.0, "max_length": 256}
DEFAULTS["no_repeat_ngram"] = 0


class Case:
    """An export and the run that it came from."""

    def __init__(self, run, base):
        self.run = run
        self.path = base / "1"
        self.model = LoadedModel(self.path, 1)
        proto = saved_model_pb2.SavedModel.FromString((self.path / "saved_model.pb").read_bytes())
        (self.meta_graph,) = proto.meta_graphs

    def ask(self, texts, signature="serving_default"):
        array = np.array([text.encode() if isinstance(text, str) else text for text in texts], dtype=object)
        names = ("source", "target") if signature == "score" else ("text",)
        return self.model.predict(signature, dict.fromkeys(names, array))

    def translate(self, texts):
        return [text.decode() for text in self.ask(texts)["text"]]


@pytest.fixture(scope="module")
def dates_case(dates_run, dates_export):
    return Case(dates_run, dates_export)


@pytest.fixture(scope="module")
def text_case(text_run, text_export):
    return Case(text_run, text_export)


@pytest.fixture(scope="module", params=["dates", "text"])
def case(request):
    return request.getfixturevalue(f"{request.param}_case")


@pytest.fixture(scope="module", params=[pytest.param("dates", marks=pytest.mark.slow), "text"])
def fast_case(request):
    """Python takes long to compile each way of decoding of the recurrent model."""
    return request.getfixturevalue(f"{request.param}_case")


def test_answers_are_those_of_python(case):
    answers = case.run.translate(TEXTS)
    assert len(set(answers)) > 1, "the answers depend on the texts"
    assert case.translate(TEXTS) == answers
    assert [case.translate([text])[0] for text in TEXTS] == answers
    outputs = case.ask(TEXTS)
    assert outputs["log_prob"].dtype == np.float32
    assert (outputs["log_prob"] < 0).all() and np.isfinite(outputs["log_prob"]).all()


def test_attention_is_that_of_python(fast_case):
    outputs = fast_case.ask(TEXTS, "attention")
    assert [text.decode() for text in outputs["text"]] == fast_case.run.translate(TEXTS)
    for row, (source, target, weights) in enumerate(fast_case.run.attention(TEXTS)):
        tokens = [[token.decode() for token in outputs[f"{side}_tokens"][row]] for side in ("source", "target")]
        assert tokens[0] == source + [""] * (len(tokens[0]) - len(source))
        assert tokens[1] == target + [""] * (len(tokens[1]) - len(target))
        found = outputs["attention"][row, :, :, : len(target), : len(source)]
        np.testing.assert_allclose(found, weights, atol=1e-5)


def test_attention_rows_sum_to_one_over_real_tokens_and_padding_is_zero(case):
    outputs = case.ask(TEXTS, "attention")
    source, target = outputs["source_tokens"] != b"", outputs["target_tokens"] != b""
    batch, layers, heads, length, width = outputs["attention"].shape
    config = case.run.config["model"]
    assert (layers, heads) == (config.get("num_layers", 1), config.get("num_heads", 1))
    assert (batch, length) == target.shape and (batch, width) == source.shape
    assert source.all(axis=1).any() and target.all(axis=1).any(), "as wide as the longest row"
    assert not source.all() and not target.all(), "the case has padding"
    for weights, is_source, is_target in zip(outputs["attention"], source, target, strict=True):
        np.testing.assert_allclose(weights[:, :, is_target][..., is_source].sum(axis=-1), 1.0, rtol=1e-5)
        assert (weights[..., ~is_source] == 0).all()
        assert (weights[:, :, ~is_target] == 0).all()


def test_nbest_and_score_are_those_of_python(fast_case):
    outputs = fast_case.ask(TEXTS, "nbest")
    for row, hypotheses in enumerate(fast_case.run.nbest(TEXTS, beam_size=5)):
        assert [text.decode() for text in outputs["texts"][row]] == [each.text for each in hypotheses]
        np.testing.assert_allclose(outputs["log_probs"][row], [each.log_prob for each in hypotheses], rtol=1e-4)
    targets = ["1984-05-05", "ein pferd", "", "x", "5", "mädchen 😀"]
    sides = {"source": TEXTS, "target": targets}
    pairs = {name: np.array([text.encode() for text in texts], object) for name, texts in sides.items()}
    scores = fast_case.model.predict("score", pairs)["log_prob"]
    np.testing.assert_allclose(scores, fast_case.run.score(TEXTS, targets), rtol=1e-4)


def test_scores_are_for_pairs(text_case):
    """A Transformer would score one source with each of several targets."""
    for sources, targets in ((1, 3), (3, 1), (0, 1)):
        pairs = {"source": np.array([b"x"] * sources, object), "target": np.array([b"x"] * targets, object)}
        with pytest.raises(RequestError) as caught:
            text_case.model.predict("score", pairs)
        message = f"source and target must have equal numbers of texts. Received:] [{sources} {targets}]"
        assert caught.value.code.name == "INVALID_ARGUMENT" and message in caught.value.message


def test_signatures(case):
    signatures = {name: item for name, item in case.meta_graph.signature_def.items() if not name.startswith("__")}
    assert signatures.keys() == OUTPUTS.keys()
    for name, signature in signatures.items():
        assert signature.method_name == "tensorflow/serving/predict"
        inputs = {name: describe(info) for name, info in signature.inputs.items()}
        names = ("source", "target") if name == "score" else ("text",)
        assert inputs == dict.fromkeys(names, ("string", 1))
        assert {name: describe(info) for name, info in signature.outputs.items()} == OUTPUTS[name]
        assert {info.tensor_shape.dim[0].size for info in signature.inputs.values()} == {-1}


def describe(info):
    return tf.as_dtype(info.dtype).name, len(info.tensor_shape.dim)


def test_answers_have_the_rank_that_the_signature_says(fast_case):
    for name, outputs in OUTPUTS.items():
        for key, array in fast_case.ask(TEXTS[:2], name).items():
            assert array.ndim == outputs[key][1]


def test_weights_are_float32_and_there_once_but_for_transposed_tables(case):
    reader = tf.train.load_checkpoint(str(case.path / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    floats = {name: shape for name, shape in shapes.items() if reader.get_variable_to_dtype_map()[name].is_floating}
    assert {reader.get_variable_to_dtype_map()[name] for name in floats} == {tf.float32}
    tables = sum(math.prod(table.embeddings.shape) for table in tied_tables(case.run.model))
    assert sum(math.prod(shape) for shape in floats.values()) == case.run.model.count_params() + tables


@pytest.mark.parametrize("signature", OUTPUTS)
def test_empty_batch(fast_case, signature):
    outputs = fast_case.ask([], signature)
    assert {name: (array.ndim, len(array)) for name, array in outputs.items()} == {
        name: (rank, 0) for name, (_, rank) in OUTPUTS[signature].items()
    }


@pytest.mark.parametrize("signature", ANSWERING)
def test_strange_texts_do_not_disturb_their_neighbours(fast_case, signature):
    strange = [b"\xff\xfe\x00broken \xe2\x82", "", "\x00", " ", "\n\r\u2028", "<pad></s>"]
    outputs = fast_case.ask([TEXTS[0], *strange, TEXTS[1]], signature)
    texts = [text.decode() for text in outputs["text"]]
    assert [texts[0], texts[-1]] == fast_case.run.translate(TEXTS[:2])
    readable = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in strange]
    assert texts[1:-1] == fast_case.run.translate(readable)


def test_a_long_line_is_cut(case):
    # What is behind the blanks is not read; if the text were tokenized whole, this would take minutes.
    text = "the old horse sleeps 1986 " * 400 + " " * (1 << 26) + "a"
    outputs = case.ask([text, TEXTS[0]], "attention")
    assert [text.decode() for text in outputs["text"]] == case.run.translate([text, TEXTS[0]])
    assert outputs["source_tokens"].shape[1] == MAX_SOURCE_LENGTH
    assert outputs["source_tokens"][0, -1] == b"</s>"


def test_warmup_requests_can_be_replayed(case):
    path = case.path / "assets.extra" / "tf_serving_warmup_requests"
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    signatures = []
    for record in records:
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        signatures.append(request.model_spec.signature_name)
        assert request.model_spec.name == case.path.parent.name
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        assert {len(array) for array in case.model.predict(signatures[-1], inputs).values()} == {1}
    assert set(signatures) == OUTPUTS.keys()
    assert len(records) <= 1000


def test_files_and_modes(case):
    names = {str(path.relative_to(case.path)) for path in case.path.rglob("*") if path.is_file()}
    assert {"saved_model.pb", "variables/variables.index", "assets.extra/tf_serving_warmup_requests"} <= names
    assert [path.name for path in case.path.parent.iterdir()] == ["1"], "nothing half-written is left"
    assert all(path.stat().st_mode & stat.S_IROTH for path in [case.path, *case.path.rglob("*")])


def test_loads_in_python_too(text_case):
    loaded = tf.saved_model.load(str(text_case.path))
    outputs = loaded.signatures["serving_default"](text=tf.constant(TEXTS[:2]))
    assert [text.decode() for text in outputs["text"].numpy()] == text_case.run.translate(TEXTS[:2])


def test_versions_and_beam_search(text_case, text_workdir, tmp_path, capsys):
    """The command prints the path; the next version follows the largest; answers are those of the same decoding."""
    base = tmp_path / "deep" / "base"
    (base / "7").mkdir(parents=True)
    (base / "12-old").mkdir()
    decoding = {"beam_size": 3, "length_penalty": 0.0, "max_length": 9, "coverage_penalty": 0.1, "no_repeat_ngram": 2}
    arguments = [part for name, value in decoding.items() for part in (f"--{name}", str(value))]
    assert run_quietly(saved_model.main, text_workdir, "--output", base, "--nbest", "2", *arguments) == 0
    assert capsys.readouterr().out == f"{base / '8'}\n"
    model = LoadedModel(base / "8", 8)
    answers = model.predict("serving_default", {"text": np.array(TEXTS, object)})["text"]
    expected = text_case.run.nbest(TEXTS, **decoding)
    assert [answer.decode() for answer in answers] == [best.text for best, *_ in expected]
    best = model.predict("nbest", {"text": np.array(TEXTS, object)})
    assert [[text.decode() for text in row] for row in best["texts"]] == [[b.text for b in row[:2]] for row in expected]
    np.testing.assert_allclose(best["log_probs"], [[b.log_prob for b in row[:2]] for row in expected], rtol=1e-4)
    assert read_options(base / "8").to_dict() == {**DEFAULTS, **decoding, "nbest": 2}


def test_what_was_left_to_its_default_is_recorded_too(text_export, labelled_export, lines_export, lines_run):
    assert read_options(text_export / "1").to_dict() == DEFAULTS
    assert read_options(labelled_export / "1").to_dict() == FORM
    of_lines = {**FORM, "max_length": lines_run.model.max_length, "no_repeat_ngram": 0}
    assert read_options(lines_export / "1").to_dict() == of_lines
    facts = json.loads((text_export / "1" / "assets.extra" / "attention_zoo.json").read_text())
    assert facts["model"]["name"] == "transformer_tiny"


def test_next_version(tmp_path):
    assert next_version(tmp_path / "none") == 1
    assert next_version(tmp_path) == 1
    for name in ("2", "10", "latest", ".tmp-99", "11a"):
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == 11


def test_an_existing_version_is_not_overwritten(text_workdir, text_export):
    before = (text_export / "1" / "saved_model.pb").stat().st_mtime_ns
    with pytest.raises(InputError, match="1 exists already; versions are never overwritten. Leave out --version"):
        export_saved_model(text_workdir, text_export, version=1)
    assert (text_export / "1" / "saved_model.pb").stat().st_mtime_ns == before


@pytest.fixture
def before_the_end(monkeypatch):
    """Returns a function that sets what happens when a version is nearly complete; it holds nothing but facts."""

    def happens(function):
        monkeypatch.setattr(warmup, "write_warmup", function)

    monkeypatch.setattr(tf.saved_model, "save", lambda *_, **__: None)
    return happens


def test_a_failure_leaves_nothing_behind(text_workdir, tmp_path, before_the_end):
    def fail(folder, *_):
        (folder / "assets.extra").mkdir()
        raise OSError("disk full")

    before_the_end(fail)
    with pytest.raises(OSError, match="disk full"):
        export_saved_model(text_workdir, tmp_path / "base")
    assert list((tmp_path / "base").iterdir()) == []


def test_being_told_to_end_leaves_nothing_behind(text_workdir, tmp_path, monkeypatch, before_the_end):
    before_the_end(lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(sys, "argv", ["export.saved_model", str(text_workdir), "--output", str(tmp_path / "base")])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as caught:
            saved_model.command()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert caught.value.code == 143
    assert list((tmp_path / "base").iterdir()) == []


@pytest.mark.parametrize("version", [None, 1])
def test_two_exports_at_once(text_workdir, tmp_path, before_the_end, version):
    """Another one takes the number first."""

    def come_first(folder, *_):
        (folder.parent / "1").mkdir()
        (folder.parent / "1" / "saved_model.pb").write_text("another's")
        (folder / "assets.extra").mkdir()

    before_the_end(come_first)
    if version is None:
        assert export_saved_model(text_workdir, tmp_path) == tmp_path / "2"
    else:
        with pytest.raises(InputError, match="1 exists already; versions are never overwritten"):
            export_saved_model(text_workdir, tmp_path, version)
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "another's"
    assert {path.name for path in tmp_path.iterdir()} == ({"1", "2"} if version is None else {"1"})


def test_only_tensorflow_exports(text_workdir, tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(InputError, match="Export needs KERAS_BACKEND=tensorflow. Received: jax."):
        export_saved_model(text_workdir, tmp_path)
