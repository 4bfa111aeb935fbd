"""RoBERTa, XLM-RoBERTa, DistilBERT and MPNet: ids, vectors and logits are those of the reference, or a refusal."""

import functools
import json

import numpy as np
import pytest
from support import checkpoints
from support.checkpoints import change_config, check_graph, near, padded, refused

import zoo
from training.importing.workdir import import_checkpoint
from zoo.checkpoints.safetensors_file import SafetensorsFile
from zoo.text.subwords import read_model
from zoo.vocabulary import END, PAD, START

NEWER = ("roberta", "distilbert", "xlm_roberta", "mpnet")
DESCRIBED = "xlm_roberta_described"
"""A classifier whose tokenizer is in `tokenizer.json` alone."""
CLASSIFIERS = (*(f"{family}_classifier" for family in NEWER), DESCRIBED)
ENCODERS = (*NEWER, "older/distilbert")
FAMILIES = (*ENCODERS, *CLASSIFIERS)
SPECIAL = {  # the ids of padding, start, end and what is unknown
    **dict.fromkeys(("roberta", "xlm_roberta", DESCRIBED), (1, 0, 2, 3)),
    **dict.fromkeys(("distilbert", "older/distilbert"), (0, 2, 3, 1)),
    "mpnet": (1, 0, 2, 4),
}


WRITTEN = ("roberta", "mpnet")  # others begin from their files


class Imported:
    """A fixture as a run, and what is expected of it."""

    def __init__(self, family, path):
        self.path, self.expected = path / "run", checkpoints.expected(family)
        folder = checkpoints.copy(family, path / "checkpoint")
        self.described, self.run = checkpoints.imported(f"hf:{folder}", self.path, family in WRITTEN)
        tokenizer, special = self.run.tokenizers.text, SPECIAL[family.removesuffix("_classifier")]
        others = (i for i in range(tokenizer.vocab_size) if i not in special)
        self.original = (*special, *others)
        if hasattr(tokenizer, "original_ids"):
            assert tokenizer.original_ids == self.original

    def theirs(self, row):
        return [self.original[i] for i in row]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Returns a function that imports a family, once."""
    return functools.cache(lambda family: Imported(family, tmp_path_factory.mktemp(family.replace("/", "-"))))


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_are_those_of_the_reference(family, imported):
    one = imported(family)
    tokenizer, expected = one.run.tokenizers.text, one.expected
    assert [one.theirs(row) for row in tokenizer.encode(expected["texts"])] == expected["token_ids"]
    rows = one.run.ids(expected["sentences"])
    assert all(row[0] == START and row[-1] == END for row in rows)
    assert [one.theirs(row) for row in rows] == expected["ids"], "texts are cut where the reference cuts them"
    assert len({*map(len, rows)}) > 2 and START not in rows[0][1:] and PAD not in sum(rows, [])


@pytest.mark.parametrize("family", ENCODERS)
def test_vectors_are_those_of_the_reference_alone_and_with_padding(family, imported):
    one = imported(family)
    sentences, expected = one.expected["sentences"], one.expected["vectors"]
    assert near(one.run.embed_text(sentences), expected)
    assert near(one.run.embed_text(sentences, batch_size=1), expected)
    (tokens, vectors), *_ = one.run.embed(["a man"])
    assert (tokens[0], tokens[-1]) == ("<s>", "</s>") and vectors.shape == (len(tokens), 6)
    ((_, weights),) = one.run.attention(["a man"])
    assert weights.shape == (2, 3, len(tokens), len(tokens)) and np.allclose(weights.sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_logits_are_those_of_the_reference_alone_and_with_padding(family, imported):
    one = imported(family)
    sentences, expected = one.expected["sentences"], one.expected["logits"]
    rows = one.run.ids(sentences)
    assert near(one.run.model({"tokens": padded(rows)}), expected)
    assert near(one.run.model({"tokens": np.array(rows[:1], "int32")}), expected[:1])
    assert one.run.classes == ["bad", "good", "so-so"] and "left_out" not in one.described
    labels = [one.run.classes[np.argmax(row)] for row in expected]
    assert [answer.label for answer in one.run.classify(sentences)] == labels


@pytest.mark.nightly
@pytest.mark.parametrize("family", (*ENCODERS, DESCRIBED))
def test_the_graph_reads_and_writes_as_python_does(family, imported):
    one = imported(family)
    check_graph(one.run.tokenizers.text, one.expected["texts"])


@pytest.mark.parametrize("family", ("roberta", "xlm_roberta"))
def test_a_saved_tokenizer_keeps_the_start(family, imported, tmp_path):
    from zoo.text import load_tokenizer

    tokenizer = imported(family).run.tokenizers.text
    tokenizer.save(tmp_path / "text")
    again = load_tokenizer(tmp_path / "text")
    assert again.has_start and again.identity() == tokenizer.identity()
    assert again.without_start().identity() != tokenizer.identity()


@pytest.mark.parametrize("family", WRITTEN)
def test_a_classifier_begins_from_a_sentence_encoder(family, imported, tmp_path):
    from training.config.initial_run import inherited_settings
    from training.optimization.fine_tuning import start_from

    one = imported(family)
    inherited = inherited_settings(str(one.path), zoo.get_spec("transformer_classifier"))["model"]
    options = {**inherited, "vocab_size": one.run.model.vocab_size, "num_classes": 2}
    model = zoo.create_model("transformer_classifier", **options)
    start_from(str(one.path), model, ["no", "yes"])
    summary = np.asarray(model.summarize(padded(one.run.ids(one.expected["sentences"]))))
    assert near(summary / np.linalg.norm(summary, axis=1, keepdims=True), one.expected["vectors"])


def test_the_head_of_training_and_a_prefix_are_left_out(imported, tmp_path):
    folder = checkpoints.copy("roberta", tmp_path / "roberta")
    file = SafetensorsFile(folder / "model.safetensors")
    tensors = {f"roberta.{name}": np.array(file.read(name)) for name in file.names()}
    tensors["lm_head.dense.weight"] = np.ones((6, 6), "float32")
    checkpoints.write_safetensors(folder / "model.safetensors", tensors)
    change_config(folder, architectures=["RobertaForMaskedLM"])
    described, run = checkpoints.imported(f"hf:{folder}", tmp_path / "run")
    assert [*described["left_out"]] == ["roberta.pooler.", "lm_head."]
    expected = imported("roberta").expected
    assert near(run.embed_text(expected["sentences"]), expected["vectors"])


OLDER = {  # keys that older versions wrote
    "roberta": {"position_embedding_type": "absolute", "gradient_checkpointing": False, "output_past": True},
    "distilbert_classifier": {"tie_weights_": True, "finetuning_task": "sst-2", "sinusoidal_pos_embds": True},
    "xlm_roberta": {"position_embedding_type": "absolute", "output_past": True, "torch_dtype": "float32"},
    "mpnet": {"gradient_checkpointing": False, "torch_dtype": "float32"},
}


@pytest.mark.parametrize("family", OLDER)
def test_older_files_are_read(family, imported, tmp_path):
    folder = checkpoints.copy(family, tmp_path / "checkpoint")
    change_config(folder, **OLDER[family])
    path = folder / "tokenizer.json"
    if path.is_file():
        described = json.loads(path.read_text(encoding="utf-8"))
        del described["model"]["type"]
        path.write_text(json.dumps(described), encoding="utf-8")
    one, (_, run) = imported(family), checkpoints.imported(f"hf:{folder}", tmp_path / "run")
    assert [one.theirs(row) for row in run.ids(one.expected["sentences"])] == one.expected["ids"]


LABEL = {"0": "score"}
ADDED = {"id": 5, "content": "o", "normalized": True, "special": False}  # a piece
REFUSED = [
    ("roberta/config.json", {"pad_token_id": 2}, "pad_token_id", "1", "2"),
    ("roberta/config.json", {"type_vocab_size": 2}, "type_vocab_size", "1", "2"),
    ("roberta/config.json", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ("roberta/config.json", {"is_decoder": True}, "is_decoder"),
    ("roberta/config.json", {"max_position_embeddings": 2}, "max_position_embeddings", "above 2"),
    ("roberta/config.json", {"vocab_size": 3}, "vocabulary", "no token"),
    ("roberta/config.json", {"attention_window": 4}, "attention_window"),
    ("roberta/tokenizer_config.json", {"add_prefix_space": True}, "add_prefix_space"),
    ("roberta/tokenizer_config.json", {"cls_token": "[CLS]"}, "tokenizer.json", "[CLS]"),
    ("roberta/tokenizer.json", {"post_processor": None}, "post_processor", "<s>"),
    ("roberta/sentence_bert_config.json", {"transformer_task": "fill-mask"}, "transformer_task", "fill-mask"),
    ("roberta/sentence_bert_config.json", {"max_seq_length": 49}, "max_seq_length", "47", "49"),
    ("roberta/sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
    ("roberta/sentence_bert_config.json", {"query_length": 8}, "query_length", "8"),
    ("roberta/1_Pooling/config.json", {"pooling_mode": "weightedmean"}, "pooling", "weightedmean"),
    ("roberta/1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pooling"),
    ("roberta/1_Pooling/config.json", {"whitening": True}, "1_Pooling", "whitening"),
    ("roberta/2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "2_Normalize", "token_embeddings"),
    ("distilbert/2_Dense/config.json", {"use_residual": True}, "2_Dense", "use_residual", "True"),
    ("roberta_classifier/config.json", {"problem_type": "regression"}, "problem_type", "regression"),
    ("roberta_classifier/config.json", {"problem_type": "multi_label_classification"}, "problem_type", "multi_label"),
    ("roberta_classifier/config.json", {"id2label": LABEL}, "id2label", "two different classes"),
    ("roberta_classifier/vocab.json", {"<pad>": 999}, "special pieces"),
    ("distilbert/config.json", {"hidden_size": 6}, "hidden_size"),
    ("distilbert/config.json", {"activation": "snake"}, "activation='snake'"),
    ("distilbert_classifier/config.json", {"id2label": LABEL}, "id2label", "two different classes"),
    ("xlm_roberta/config.json", {"pad_token_id": 0}, "pad_token_id"),
    ("xlm_roberta/config.json", {"vocab_size": 9}, "vocab_size", "9"),
    ("xlm_roberta/tokenizer_config.json", {"add_prefix_space": False}, "add_prefix_space"),
    ("xlm_roberta/tokenizer_config.json", {"add_prefix_space": None}, "add_prefix_space", "null"),
    ("xlm_roberta/tokenizer_config.json", {"mask_token": "<m>"}, "mask_token", "<m>"),
    ("xlm_roberta_described/config.json", {"vocab_size": 9}, "tokenizer.json", "24", "9"),
    ("xlm_roberta_described/tokenizer.json", {"post_processor": None}, "tokenizer.json", "post_processor"),
    ("xlm_roberta_described/tokenizer.json", {"normalizer": {"type": "NFD"}}, "tokenizer.json", "normalizer", "NFD"),
    ("xlm_roberta_described/tokenizer.json", {"added_tokens": [ADDED]}, "tokenizer.json", "'o'"),
    ("mpnet/config.json", {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets", "32", "16"),
    ("mpnet/tokenizer_config.json", {"pad_token": "</s>"}, "padding", "1", "2"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_we_do_not_have_is_refused(number, tmp_path):
    file, changes, *words = REFUSED[number]
    family, _, name = file.partition("/")
    folder = checkpoints.copy(family, tmp_path / "checkpoint")
    content = json.loads((folder / name).read_text(encoding="utf-8")) | changes
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "run", *words)


def test_a_head_of_another_task_is_refused(tmp_path):
    folder = checkpoints.copy("roberta_classifier", tmp_path / "checkpoint")
    change_config(folder, architectures=["RobertaForTokenClassification"])
    refused(f"hf:{folder}", tmp_path / "run", "sentence_bert", "classifier.dense")


def test_xlm_roberta_is_read_by_its_model_of_sentencepiece(tmp_path):
    folder = checkpoints.copy("xlm_roberta", tmp_path / "checkpoint")
    pieces = pieces_of(folder)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = [[piece, 0.0] for piece in (*special, *pieces[3:], "<mask>")]
    described = {"model": {"type": "Unigram", "vocab": vocabulary}}
    (folder / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    import_checkpoint(f"hf:{folder}", tmp_path / "run")
    vocabulary[5], vocabulary[6] = vocabulary[6], vocabulary[5]
    (folder / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "other", "tokenizer.json", "sentencepiece.bpe.model", "order")
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {}}}), encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "other", "tokenizer.json", "Unigram")
    (folder / "tokenizer.json").unlink()
    (folder / "added_tokens.json").write_text('{"zebra": 999}', encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "other", "added_tokens.json", "'zebra'")
    (folder / "sentencepiece.bpe.model").unlink()
    refused(f"hf:{folder}", tmp_path / "other", "neither sentencepiece.bpe.model nor tokenizer.json")


def pieces_of(folder):
    """Returns the pieces of a folder's model of SentencePiece."""
    processor = read_model((folder / "sentencepiece.bpe.model").read_bytes())
    return [processor.id_to_piece(index) for index in range(processor.vocab_size())]
