"""Exported translators answer as Python does: two models, one of characters and one of subwords."""

import math

import numpy as np
import pytest
import tensorflow as tf
from support.exports import Case, RequestError, ask, meta_graph
from tensorflow_serving.apis import prediction_log_pb2

from zoo.inference import MAX_SOURCE_LENGTH
from zoo.models.shared.embeddings import tied_tables

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "Σάββατο 4 Οκτωβρίου 1986", "۴\u200d😀 ß…"]

INSIDE = {
    "text": ("string", 1),
    "source_tokens": ("string", 2),
    "target_tokens": ("string", 2),
    "decoder_tokens": ("string", 2),
    "token_log_probs": ("float32", 2),
    "alternatives": ("string", 3),
    "alternative_log_probs": ("float32", 3),
    "cross": ("float32", 5),
}
OUTPUTS = {
    "serving_default": {"text": ("string", 1), "log_prob": ("float32", 1)},
    "attention": {
        "text": ("string", 1),
        "source_tokens": ("string", 2),
        "target_tokens": ("string", 2),
        "attention": ("float32", 5),
    },
    "nbest": {"texts": ("string", 2), "log_probs": ("float32", 2)},
    "score": {"log_prob": ("float32", 1)},
    "embed": {"tokens": ("string", 2), "embeddings": ("float32", 3)},
    "attention_all": INSIDE,
    "attention_nbest": INSIDE,
}
NUMBERS = {"attention_all": ["layer", "head"], "attention_nbest": ["hypothesis", "layer", "head"]}
ANSWERING = ["serving_default", "attention"]


@pytest.fixture(scope="module")
def dates_case(dates_run, dates_export):
    return Case(dates_run, dates_export)


@pytest.fixture(scope="module")
def text_case(text_run, text_export):
    return Case(text_run, text_export)


@pytest.fixture(scope="module", params=["dates", "text"])
def case(request):
    return request.getfixturevalue(f"{request.param}_case")


@pytest.fixture(scope="module", params=[pytest.param("dates", marks=pytest.mark.nightly), "text"])
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
    scores = ask(fast_case.model, "score", source=TEXTS, target=targets)["log_prob"]
    np.testing.assert_allclose(scores, fast_case.run.score(TEXTS, targets), rtol=1e-4)


def test_scores_are_for_pairs(text_case):
    """A Transformer would score one source with each of several targets."""
    for sources, targets in ((1, 3), (3, 1), (0, 1)):
        with pytest.raises(RequestError) as caught:
            ask(text_case.model, "score", source=["x"] * sources, target=["x"] * targets)
        message = f"source and target must have equal numbers of texts. Received:] [{sources} {targets}]"
        assert caught.value.code.name == "INVALID_ARGUMENT" and message in caught.value.message


def test_signatures(case):
    signatures = {name: item for name, item in meta_graph(case.path).signature_def.items() if not name.startswith("__")}
    assert signatures.keys() == OUTPUTS.keys()
    for name, signature in signatures.items():
        assert signature.method_name == "tensorflow/serving/predict"
        inputs = {name: describe(info) for name, info in signature.inputs.items()}
        names = ("source", "target") if name == "score" else ("text",)
        numbers = NUMBERS.get(name, [])
        for number in numbers:
            assert inputs.pop(number) == ("int32", 0) and signature.inputs[number].tensor_shape.unknown_rank
        assert {*signature.defaults} == {*numbers} - {"hypothesis"}
        assert inputs == dict.fromkeys(names, ("string", 1))
        outputs = {name: describe(info) for name, info in signature.outputs.items()}
        assert outputs == outputs_of(case, name)
        assert {signature.inputs[name].tensor_shape.dim[0].size for name in names} == {-1}


def outputs_of(case, name):
    """Returns type and rank of each output of a signature of a case."""
    kinds = case.run.model.attention_kinds if OUTPUTS[name] is INSIDE else ()
    sizes = dict.fromkeys([f"{kind}_size" for kind in kinds], ("int32", 2))
    return {**OUTPUTS[name], **dict.fromkeys(kinds, ("float32", 5)), **sizes}


def describe(info):
    return tf.as_dtype(info.dtype).name, len(info.tensor_shape.dim)


def test_answers_have_the_rank_that_the_signature_says(fast_case):
    for name in OUTPUTS:
        outputs = outputs_of(fast_case, name)
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
        name: (rank, 0) for name, (_, rank) in outputs_of(fast_case, signature).items()
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


def test_loads_in_python_too(text_case):
    loaded = tf.saved_model.load(str(text_case.path))
    outputs = loaded.signatures["serving_default"](text=tf.constant(TEXTS[:2]))
    assert [text.decode() for text in outputs["text"].numpy()] == text_case.run.translate(TEXTS[:2])


def test_warmup_requests_can_be_replayed(text_case):
    records = tf.data.TFRecordDataset(str(text_case.path / "assets.extra" / "tf_serving_warmup_requests"))
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records.as_numpy_iterator()]
    assert 0 < len(logs) <= 1000, "servers read no more"
    requests = [log.predict_log.request for log in logs]
    for request in requests:
        assert request.model_spec.name == text_case.path.parent.name
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        outputs = text_case.model.predict(request.model_spec.signature_name, inputs)
        assert {len(array) for array in outputs.values()} == {1}
    assert {request.model_spec.signature_name for request in requests} == OUTPUTS.keys()


def test_signatures_share_one_search_of_a_kind(case):
    """What a server needs to start grows with the size of all functions together."""
    functions = meta_graph(case.path).graph_def.library.function
    loops = {
        node.attr["body"].func.name
        for function in functions
        for node in function.node_def
        if node.op in ("While", "StatelessWhile") and "translator" in node.name
    }
    bodies = [
        tuple(node.op for node in function.node_def) for function in functions if function.signature.name in loops
    ]
    searches = [body for body in bodies if len(body) > 150]  # not an encoder's loop
    assert len(searches) == len(set(searches)) == 2, "one of `serving_default`, one of `nbest`"
