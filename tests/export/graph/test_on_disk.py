"""What a version is on disk: its files, signatures, operations and weights, its record, and its warm-up requests."""

import inspect
import json
import math
import stat

import keras
import pytest
import tensorflow as tf
from support.export_ops import check_ops
from support.exports import meta_graph, warm_ups
from tensorflow_serving.apis import predict_pb2

import zoo
from export.client import Client
from export.graph.provenance import read_options
from zoo.models.shared.embeddings import layers_of_steps
from zoo.vocabulary import PAD

STRINGS, FLOATS = [("string", rank) for rank in range(4)], [("float32", rank) for rank in range(6)]
INSIDE = {
    **dict.fromkeys(("source_tokens", "target_tokens", "decoder_tokens"), STRINGS[2]),
    **{"text": STRINGS[1], "alternatives": STRINGS[3]},
    **{"token_log_probs": FLOATS[2], "alternative_log_probs": FLOATS[3]},
}
ATTENTION = {"tokens": STRINGS[2], "attention": FLOATS[5]}
TRANSLATOR = {
    "serving_default": {"text": STRINGS[1], "log_prob": FLOATS[1]},
    "attention": {
        **dict.fromkeys(("source_tokens", "target_tokens"), STRINGS[2]),
        "text": STRINGS[1],
        "attention": FLOATS[5],
    },
    "nbest": {"texts": STRINGS[2], "log_probs": FLOATS[2]},
    "score": {"log_prob": FLOATS[1]},
    "embed": {"tokens": STRINGS[2], "embeddings": FLOATS[3]},
    "attention_all": INSIDE,
    "attention_nbest": INSIDE,
}
OUTPUTS = {
    "text": TRANSLATOR,
    "dates": TRANSLATOR,
    "labelled": {
        "serving_default": {"label": STRINGS[1], "classes": STRINGS[2], "probabilities": FLOATS[2]},
        "classify": {"classes": STRINGS[2], "scores": FLOATS[2]},
        "embed": {"tokens": STRINGS[2], "embeddings": FLOATS[3]},
        "attention": ATTENTION,
        "attention_all": {"tokens": STRINGS[2]},
    },
    "lines": {
        "serving_default": {"text": STRINGS[1], "log_prob": FLOATS[1]},
        "sample": {"text": STRINGS[1]},
        "score": {"log_prob": FLOATS[1], "num_tokens": ("int32", 1)},
        "embed": {"tokens": STRINGS[2], "embeddings": FLOATS[3]},
        "attention": ATTENTION,
        "attention_all": {name: INSIDE[name] for name in INSIDE.keys() - {"text", "source_tokens", "decoder_tokens"}}
        | {"tokens": STRINGS[2]},
    },
}
# What may be left out of a request, or has to be there.
NUMBERS = {"attention_all": {"layer", "head"}, "attention_nbest": {"hypothesis", "layer", "head"}}
NUMBERS |= {"sample": {"seed", "temperature", "top_p"}}
NEEDED = {"hypothesis", "seed", "temperature", "top_p"}
ASKED = {
    "text": {"translate": {}, "attention": {}},
    "dates": {"translate": {}, "attention": {}},
    "labelled": {"classify": {}},
    "lines": {"generate": {}, "generate with a draw": {"temperature": 0.5}},
}
NOT_OF_A_TASK = {"predict", "start", "stream", "signatures", "close"}
OF_EVERY_TASK = {
    "weights": "float32",
    "dynamic_batching": False,
    "num_batch_threads": 2,
    "xla": False,
    "signatures": "all",
    "warmup": "none",
}
SEARCH = {"rules": "gnmt", "length_penalty": 0.6, "coverage_penalty": 0.0, "max_length": 256, "no_repeat_ngram": 0}
SEARCH |= {"draft_length": 0, "beam_size": 1, "force_end": False, "nbest": 5, "shortlist": 0, "rerank": "none"}
OPTIONS = {
    "text": {**OF_EVERY_TASK, **SEARCH},
    "dates": {**OF_EVERY_TASK, **SEARCH},
    "labelled": OF_EVERY_TASK,
    "lines": {**OF_EVERY_TASK, "warmup": "all", "no_repeat_ngram": 0, "draft_length": 0, "max_length": 13},
}


@pytest.mark.parametrize("kind", ["text", "labelled", "lines", pytest.param("dates", marks=pytest.mark.nightly)])
def test_a_version_on_disk(kind, request, monkeypatch):
    path, run = request.getfixturevalue(f"{kind}_export") / "1", zoo.load(request.getfixturevalue(f"{kind}_workdir"))
    check_files(path, run, OPTIONS[kind])
    check_ops(path, kind, {})
    check_weights(path, run.model)
    graph = meta_graph(path)
    signatures = {name: each for name, each in graph.signature_def.items() if not name.startswith("__")}
    check_signatures(signatures, OUTPUTS[kind], run.model.attention_kinds)
    check_tokenizers(graph.graph_def.library.function, run.tokenizer_files().values())
    check_warm_up(warm_ups(path), signatures, kind, monkeypatch)
    if run.spec.task == "seq2seq":
        check_searches(graph.graph_def.library.function)


def check_files(path, run, options):
    names = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert {"saved_model.pb", "variables/variables.index", "assets.extra/tf_serving_warmup_requests"} <= names
    assert [folder.name for folder in path.parent.iterdir()] == ["1"], "nothing half-written is left"
    assert all(file.stat().st_mode & stat.S_IROTH for file in [path, *path.rglob("*")])
    assert read_options(path).to_dict() == options, "what was left to its default is recorded, too"
    facts = json.loads((path / "assets.extra" / "attention_zoo.json").read_text())
    assert facts["model"] == run.config["model"]
    assert (path / "assets.extra" / "MODEL_CARD.md").read_text().startswith("# ")


def check_weights(path, model):
    """They are float32 and there once, but for what steps of decoding need besides."""
    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    floats = [name for name in shapes if types[name].is_floating]
    assert {types[name] for name in floats} == {tf.float32}
    constants = keras.tree.flatten([layer.constant() for layer in layers_of_steps(model)])
    constants = [constant for constant in constants if constant is not None]
    of_steps = sum(math.prod(constant.shape) for constant in constants)
    assert sum(math.prod(shapes[name]) for name in floats) == model.count_params() + of_steps


def check_signatures(signatures, outputs, kinds):
    assert signatures.keys() == outputs.keys()
    for name, signature in signatures.items():
        api = "classify" if name == "classify" else "predict"
        assert signature.method_name == f"tensorflow/serving/{api}"
        numbers = NUMBERS.get(name, set())
        pair = name == "score" and "nbest" in outputs
        texts = ("source", "target") if pair else ("inputs",) if name == "classify" else ("text",)
        assert signature.inputs.keys() == {*texts, *numbers}
        assert {described(signature.inputs[text]) for text in texts} == {("string", 1)}
        assert {signature.inputs[text].tensor_shape.dim[0].size for text in texts} == {-1}
        assert all(signature.inputs[number].tensor_shape.unknown_rank for number in numbers)
        assert {*signature.defaults} == numbers - NEEDED
        sizes = {**dict.fromkeys(kinds, FLOATS[5]), **{f"{kind}_size": ("int32", 2) for kind in kinds}}
        expected = outputs[name] | (sizes if "head" in numbers else {})
        assert {key: described(info) for key, info in signature.outputs.items()} == expected


def described(info):
    return tf.as_dtype(info.dtype).name, len(info.tensor_shape.dim)


def check_tokenizers(functions, tokenizers):
    """All functions share one table of a tokenizer's strings, and equal tokenizers share theirs and their model."""
    nodes = [node for function in functions for node in function.node_def]
    tables = [tuple(node.attr["value"].tensor.string_val) for node in nodes if node.op == "Const"]
    models = [node.attr["model"].s for node in nodes if node.op == "SentencepieceOp"]
    assert len(models) == len({*models})
    for tokenizer in tokenizers:
        pieces = ("", *tokenizer.piece_table()[PAD + 1 :])
        assert tables.count(tuple(piece.encode() for piece in pieces)) == 1


def check_searches(functions):
    """Signatures share one search of a kind: what a server needs to start grows with the size of all functions."""
    loops = {
        node.attr["body"].func.name
        for function in functions
        for node in function.node_def
        if node.op in ("While", "StatelessWhile") and "translator" in node.name
    }
    bodies = [tuple(node.op for node in each.node_def) for each in functions if each.signature.name in loops]
    # Not an encoder's loop, nor the one around a search's steps.
    searches = [body for body in bodies if len(body) > 150 and not {"While", "StatelessWhile"} & {*body}]
    assert len(searches) == len(set(searches)) == 2, "one of `serving_default`, one of `nbest`"


def check_warm_up(requests, signatures, kind, monkeypatch):
    """Signatures are asked for all of their outputs, and the default for the text alone: the client asks so."""
    outputs = {name: frozenset(each.outputs) for name, each in signatures.items()}
    warmed = outputs if OPTIONS[kind]["warmup"] == "all" else {"serving_default"}
    expected = {(name, outputs[name]) for name in warmed}
    if "text" in outputs["serving_default"]:
        expected.add(("serving_default", frozenset(["text"])))
    found = []
    for each in requests:
        name = each.model_spec.signature_name
        assert each.model_spec.name == kind
        found.append((name, frozenset(getattr(each, "output_filter", ())) or outputs[name]))
        if isinstance(each, predict_pb2.PredictRequest):
            assert each.inputs.keys() == signatures[name].inputs.keys(), "what may be left out as well"
    assert set(found) == expected and len(found) == len(expected), "each of them once"
    for method, options in ASKED[kind].items():
        signature, wanted = asked_by_client(method, options, monkeypatch)
        asked = signature, frozenset(wanted) or outputs[signature]
        assert asked in expected or signature not in warmed


class Sent(Exception):
    """Ends a call once it is known what it asks for."""


def asked_by_client(name, options, monkeypatch):
    """Returns the signature and the outputs that a method of the client asks for."""

    def send(self, signature, inputs, outputs):
        raise Sent(signature, outputs)

    monkeypatch.setattr(Client, "_request", send)
    with Client("localhost:1") as client, pytest.raises(Sent) as sent:
        getattr(client, name.split()[0])(["a"], **options)
    return sent.value.args


def test_no_method_of_the_client_is_forgotten():
    methods = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert methods == {name.split()[0] for each in ASKED.values() for name in each} | NOT_OF_A_TASK
