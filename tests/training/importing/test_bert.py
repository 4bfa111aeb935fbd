"""BERT: ids, vectors and logits are those of the reference, of sentence encoders and of classifiers."""

import json

import numpy as np
import pytest
from support import checkpoints
from support.checkpoints import check_graph, near, padded, refused

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


def test_ids_are_those_of_the_reference(encoder, classifier):
    for imported in (encoder, classifier):
        tokenizer, texts = imported.run.tokenizers.text, imported.expected["texts"]
        rows = tokenizer.encode(texts)
        assert [[imported.original[i] for i in row] for row in rows] == imported.expected["token_ids"]
    tokenizer, expected = encoder.run.tokenizers.text, encoder.expected
    assert tokenizer.decode(tokenizer.encode(expected["texts"])) == expected["decoded"]
    pieces = checkpoints.FIXTURES / "minilm" / "tokenizer.json"
    pieces = json.loads(pieces.read_text(encoding="utf-8"))["model"]["vocab"]
    names = {PAD: "[PAD]", START: "[CLS]", END: "[SEP]", UNKNOWN: "[UNK]"}
    assert {ours: encoder.original[ours] for ours in names} == {ours: pieces[name] for ours, name in names.items()}
    # Whole texts begin and end, and are cut.
    rows = encoder.run.ids(expected["sentences"])
    assert all(row[0] == START and row[-1] == END and len(row) <= 13 for row in rows)
    assert [[encoder.original[i] for i in row[:-1]] for row in rows] == [
        ids[: len(row) - 1] for row, ids in zip(rows, expected["ids"], strict=True)
    ]
    assert max(map(len, rows)) == 13


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["encoder", "classifier"])
def test_the_graph_reads_and_writes_as_python_does(family, request):
    imported = request.getfixturevalue(family)
    check_graph(imported.run.tokenizers.text, imported.expected["texts"])


def test_vectors_are_those_of_the_reference_alone_and_with_padding(encoder):
    run, sentences = encoder.run, encoder.expected["sentences"]
    vectors = run.embed_text(sentences)
    assert near(vectors, encoder.expected["vectors"])
    assert near(run.embed_text(sentences[:2], batch_size=1), encoder.expected["vectors"][:2])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    assert int((run.embed_text(sentences[3:4]) @ vectors.T).argmax()) == 3  # the nearest is found by products
    assert run.embed_text([]).shape == (0, 5)


def test_logits_are_those_of_the_reference_alone_with_padding_and_of_pairs(classifier):
    run, expected = classifier.run, classifier.expected
    rows = run.ids(expected["sentences"])
    assert near(run.model({"tokens": padded(rows)}), expected["logits"])
    assert near(run.model({"tokens": np.array(rows[:1], "int32")}), expected["logits"][:1])
    labels = [run.classes[np.argmax(row)] for row in expected["logits"]]
    assert [answer.label for answer in run.classify(expected["sentences"])] == labels
    assert run.classes == ["bad", "good", "so-so"]
    rows = [[classifier.ours[i] for i in row] for row in expected["pairs"]]
    assert all(row.count(END) == 2 for row in rows)
    assert near(run.model({"tokens": pad(rows)}), expected["pair_logits"]), "the second text is another segment"


def test_what_is_inside_has_the_tokens_of_the_text(encoder):
    (tokens, vectors), *_ = encoder.run.embed(["a man"])
    assert tokens[0] == "<s>" and tokens[-1] == "</s>" and vectors.shape == (len(tokens), 6)
    ((_, weights),) = encoder.run.attention(["a man"])
    assert weights.shape == (2, 3, len(tokens), len(tokens)) and np.allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert encoder.run.compare("man", ["a man", "the man rides"], 1).cosines.shape == (2, 2)
    with pytest.raises(InputError, match="sentence_bert"):
        encoder.run.explore(["a man"])


def test_what_is_left_out_is_named(encoder, classifier, capsys, tmp_path):
    assert list(encoder.described["left_out"]) == ["pooler."] and "left_out" not in classifier.described
    card = (encoder.path / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "`pooler.…`: left out" in card and "2_Dense/model.safetensors" in card
    import_model.main([f"hf:{checkpoints.FIXTURES / 'minilm'}", "--workdir", str(tmp_path / "run")])
    assert [*json.loads(capsys.readouterr().out)["left_out"]] == ["pooler."]


def test_a_classifier_begins_from_a_sentence_encoder(encoder, tmp_path):
    from training.config.resolve import resolve
    from training.config.settings import SECTIONS
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
    with pytest.raises(InputError, match="sentence_bert.*Received: cnn_classifier"):
        resolve("cnn_classifier", spec, [f"training.init_from={encoder.path}"])
    with pytest.raises(InputError, match="sentence_bert.*sentence_encoder"):
        resolve("sentence_bert", spec, []).open_data()


_MODULES = [{"type": f"models.{kind}", "path": ""} for kind in ("Transformer", "Pooling", "LSTM")]


def test_words_that_were_added_to_the_vocabulary_are_refused(tmp_path):
    folder = checkpoints.copy("minilm", tmp_path / "minilm")
    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    described["added_tokens"].append({"id": 5, "content": "horse", "special": False})
    (folder / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "run", "tokenizer.json", "'horse'")
    described["added_tokens"][-1] = {"id": 5, "content": "[NEW]", "special": True}
    (folder / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "run", "tokenizer.json", "'[NEW]'")
    folder = checkpoints.copy("bert", tmp_path / "bert")
    (folder / "added_tokens.json").write_text('{"zebra": 999}', encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "run", "added_tokens.json", "'zebra'")


def test_what_we_do_not_have_is_refused(tmp_path):
    for number, (file, changes, *words) in enumerate(
        [
            ("minilm/config.json", {"position_embedding_type": "relative_key"}, "position_embedding_type", "absolute"),
            ("minilm/config.json", {"hidden_act": "snake"}, "activation='snake'"),
            ("minilm/config.json", {"vocab_size": 3}, "vocabulary", "no token"),
            ("minilm/config.json", {"hidden_size": 9}, "in_features", "9", "6"),
            ("minilm/modules.json", _MODULES, "modules", "Transformer, Pooling, LSTM"),
            ("minilm/1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "pooling", "pooling_mode_lasttoken"),
            ("minilm/2_Dense/config.json", {"activation_function": "a.Snake"}, "activation_function", "Snake"),
            ("minilm/2_Dense/config.json", {"out_features": 4}, "linear.weight", "(4, 6)"),
            ("minilm/sentence_bert_config.json", {"max_seq_length": 99}, "max_seq_length", "99"),
            ("minilm/sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
            ("minilm/tokenizer.json", {"pre_tokenizer": {"type": "Split"}}, "pre_tokenizer", "Split"),
            ("minilm/tokenizer.json", {"post_processor": None}, "post_processor", "[CLS]"),
            ("bert/config.json", {"problem_type": "multi_label_classification"}, "problem_type", "multi_label"),
            ("bert/config.json", {"id2label": {"0": "a"}}, "id2label", "'a'"),
            ("bert/tokenizer_config.json", {"cls_token": "[X]"}, "vocab.txt", "'[X]'"),
        ]
    ):
        family, _, name = file.partition("/")
        folder = checkpoints.copy(family, tmp_path / str(number))
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        content = content | changes if isinstance(content, dict) else changes
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
        refused(f"hf:{folder}", tmp_path / "run", *words)
