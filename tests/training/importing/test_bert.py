"""BERT: ids, vectors and logits are those of the reference, of sentence encoders and of classifiers."""

import json

import numpy as np
import pytest
from support import checkpoints

import zoo
from training import import_model
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError
from zoo.vocabulary import END, PAD, START, UNKNOWN, pad


class Imported:
    def __init__(self, family, path):
        self.path = path
        self.described = import_checkpoint(f"hf:{checkpoints.FIXTURES / family}", path)
        self.run, self.expected = zoo.load(path), checkpoints.expected(family)
        self.original = self.run.tokenizers.text.original_ids
        self.ours = {original: ours for ours, original in enumerate(self.original)}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return Imported("minilm", tmp_path_factory.mktemp("imported") / "minilm")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return Imported("bert", tmp_path_factory.mktemp("imported") / "bert")


def near(found, expected):
    expected = np.asarray(expected)
    return np.abs(np.asarray(found) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("family", ["encoder", "classifier"])
def test_ids_are_those_of_the_reference(family, request):
    imported = request.getfixturevalue(family)
    rows = imported.run.tokenizers.text.encode(imported.expected["texts"])
    assert [[imported.original[i] for i in row] for row in rows] == imported.expected["token_ids"]


def test_ids_lead_back_to_text(encoder):
    tokenizer = encoder.run.tokenizers.text
    assert tokenizer.decode(tokenizer.encode(encoder.expected["texts"])) == encoder.expected["decoded"]


def test_whole_texts_begin_and_end_and_are_cut_as_in_the_reference(encoder):
    rows = encoder.run.ids(encoder.expected["sentences"])
    assert all(row[0] == START and row[-1] == END and len(row) <= 13 for row in rows)
    expected = encoder.expected["ids"]
    assert [[encoder.original[i] for i in row[:-1]] for row in rows] == [row[: len(row) - 1] for row in expected]
    assert max(map(len, rows)) == 13


@pytest.mark.parametrize("batch_size", [1, 7])
def test_vectors_are_those_of_the_reference_alone_and_with_padding(encoder, batch_size):
    found = encoder.run.embed_text(encoder.expected["sentences"], batch_size=batch_size)
    assert near(found, encoder.expected["vectors"])


def test_the_nearest_sentence_is_found_by_products(encoder):
    sentences = encoder.expected["sentences"]
    vectors = encoder.run.embed_text(sentences)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    found = encoder.run.embed_text(sentences[3:4]) @ vectors.T
    assert int(found.argmax()) == 3
    assert encoder.run.embed_text([]).shape == (0, 5)


def test_logits_are_those_of_the_reference_alone_and_with_padding(classifier):
    run, sentences = classifier.run, classifier.expected["sentences"]
    rows = run.ids(sentences)
    together = run.model({"tokens": pad(rows, max(map(len, rows)) + 2)})
    assert near(together, classifier.expected["logits"])
    for row, expected in zip(rows, classifier.expected["logits"], strict=True):
        assert near(run.model({"tokens": np.array([row], "int32")}), [expected])
    labels = [run.classes[np.argmax(row)] for row in classifier.expected["logits"]]
    assert [answer.label for answer in run.classify(sentences)] == labels and run.classes == ["bad", "good", "so-so"]


def test_the_second_text_of_a_pair_is_another_segment(classifier):
    rows = [[classifier.ours[i] for i in row] for row in classifier.expected["pairs"]]
    assert all(row.count(END) == 2 for row in rows)
    assert near(classifier.run.model({"tokens": pad(rows)}), classifier.expected["pair_logits"])


def test_what_is_inside_has_the_tokens_of_the_text(encoder):
    (tokens, vectors), *_ = encoder.run.embed(["a man"])
    assert tokens[0] == "<s>" and tokens[-1] == "</s>" and vectors.shape == (len(tokens), 6)
    ((_, weights),) = encoder.run.attention(["a man"])
    assert weights.shape == (2, 3, len(tokens), len(tokens)) and np.allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert encoder.run.compare("man", ["a man", "the man rides"], 1).cosines.shape == (2, 2)
    with pytest.raises(InputError, match="sentence_bert gives vectors"):
        encoder.run.explore(["a man"])


def test_special_symbols_are_the_first(encoder):
    pieces = json.loads((checkpoints.FIXTURES / "minilm" / "tokenizer.json").read_text(encoding="utf-8"))["model"][
        "vocab"
    ]
    names = {PAD: "[PAD]", START: "[CLS]", END: "[SEP]", UNKNOWN: "[UNK]"}
    assert {ours: encoder.original[ours] for ours in names} == {ours: pieces[name] for ours, name in names.items()}


def test_what_is_left_out_is_named(encoder, classifier, capsys, tmp_path):
    assert list(encoder.described["left_out"]) == ["pooler."] and "left_out" not in classifier.described
    assert "`pooler.…`: left out, as the vectors" in (encoder.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "2_Dense/model.safetensors" in (encoder.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    import_model.main([f"hf:{checkpoints.FIXTURES / 'minilm'}", "--workdir", str(tmp_path / "run")])
    assert json.loads(capsys.readouterr().out)["left_out"]["pooler."].startswith("as the vectors")


@pytest.mark.parametrize("family", ["encoder", "classifier"])
def test_the_graph_reads_and_writes_as_python_does(family, request):
    from export.graph.tokenizers import tokenizer_graph

    imported = request.getfixturevalue(family)
    tokenizer, texts = imported.run.tokenizers.text, imported.expected["texts"]
    graph = tokenizer_graph(tokenizer)
    rows = graph.encode([text.encode() for text in texts])
    assert rows.to_list() == tokenizer.encode(texts)
    assert [text.decode() for text in graph.decode(rows.to_tensor()).numpy()] == tokenizer.decode(rows.to_list())


def test_a_classifier_begins_from_a_sentence_encoder(encoder, tmp_path):
    from training.config.settings import SECTIONS
    from training.loop.resolve import resolve
    from training.optimization.fine_tuning import start_from

    (tmp_path / "data").mkdir()
    for split in ("train", "val", "test"):
        rows = "text\tlabel\na man rides\tyes\nthe beach\tno\n"
        (tmp_path / "data" / f"{split}.tsv").write_text(rows, encoding="utf-8")
    spec = f"tsv:{tmp_path / 'data'}"
    config = resolve("transformer_classifier", spec, [f"training.init_from={encoder.path}"])
    assert config.model["embedding_norm"] and config.model["projection_dim"] == 5 and SECTIONS
    options = {**config.model, "vocab_size": encoder.run.model.vocab_size, "num_classes": 2}
    model = zoo.create_model("transformer_classifier", **options)
    head = np.array(model.output_dense.kernel)
    start_from(str(encoder.path), model, ["no", "yes"])
    tokens = pad(encoder.run.ids(encoder.expected["sentences"]))
    summary = np.asarray(model.summarize(tokens))
    assert near(summary / np.linalg.norm(summary, axis=1, keepdims=True), encoder.expected["vectors"])
    assert np.array_equal(head, model.output_dense.kernel)
    with pytest.raises(InputError, match="holds a sentence_bert to begin from. Received: cnn_classifier"):
        resolve("cnn_classifier", spec, [f"training.init_from={encoder.path}"])
    with pytest.raises(InputError, match="sentence_bert is a sentence_encoder model"):
        resolve("sentence_bert", spec, []).open_data()


def spoiled(tmp_path, family, name, **changes):
    folder = checkpoints.copy(family, tmp_path / "checkpoint")
    path = folder / name
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | changes if isinstance(content, dict) else changes["all"]), encoding="utf-8")
    return folder


_MODULES = [{"type": f"models.{kind}", "path": ""} for kind in ("Transformer", "Pooling", "LSTM")]


@pytest.mark.parametrize(
    ("family", "name", "changes", "message"),
    [
        ("minilm", "config.json", {"position_embedding_type": "relative_key"}, "must be 'absolute' to be imported"),
        ("minilm", "config.json", {"hidden_act": "snake"}, "Received: activation='snake'"),
        ("minilm", "config.json", {"vocab_size": 3}, "for which the model has no symbol"),
        ("minilm", "config.json", {"hidden_size": 9}, "in_features must be 9 to be imported. Received: 6"),
        (
            "minilm",
            "modules.json",
            {"all": _MODULES},
            "Pooling and perhaps Dense.*Received: Transformer, Pooling, LSTM",
        ),
        ("minilm", "1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "pooling must be by one of"),
        ("minilm", "2_Dense/config.json", {"activation_function": "a.Snake"}, "must be one of tanh|Received: Snake"),
        ("minilm", "2_Dense/config.json", {"out_features": 4}, r"linear.weight must have the shape \(4, 6\)"),
        ("minilm", "sentence_bert_config.json", {"max_seq_length": 99}, "max_seq_length must be from 2 to"),
        ("minilm", "sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case must be false"),
        ("minilm", "tokenizer.json", {"pre_tokenizer": {"type": "Split"}}, "pre_tokenizer must be"),
        ("minilm", "tokenizer.json", {"post_processor": None}, "post_processor must put .CLS. before"),
        ("bert", "config.json", {"problem_type": "multi_label_classification"}, "problem_type must be"),
        ("bert", "config.json", {"id2label": {"0": "a"}}, "id2label must name at least two"),
        ("bert", "tokenizer_config.json", {"cls_token": "[X]"}, "vocab.txt: Unknown piece '.X.'"),
    ],
)
def test_what_we_do_not_have_is_refused(tmp_path, family, name, changes, message):
    folder = spoiled(tmp_path, family, name, **changes)
    with pytest.raises(InputError, match=message):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")
    assert not (tmp_path / "run").exists() and not list(tmp_path.glob(".tmp*"))
