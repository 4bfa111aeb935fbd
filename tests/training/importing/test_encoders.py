"""RoBERTa, XLM-RoBERTa, DistilBERT and MPNet: ids, vectors and logits are those of the reference, or a refusal."""

import functools

import numpy as np
import pytest
from support import checkpoints
from support.checkpoints import check_graph, near, padded

import zoo
from training.importing.workdir import import_checkpoint
from zoo.vocabulary import END, PAD, START

ENCODERS = ("roberta", "distilbert", "xlm_roberta", "mpnet")
CLASSIFIERS = tuple(f"{family}_classifier" for family in ENCODERS)
FAMILIES = (*ENCODERS, *CLASSIFIERS)
SPECIAL = {  # the ids of padding, start, end and what is unknown
    **dict.fromkeys(("roberta", "xlm_roberta"), (1, 0, 2, 3)),
    "distilbert": (0, 2, 3, 1),
    "mpnet": (1, 0, 2, 4),
}


class Imported:
    """A fixture as a run, and what is expected of it."""

    def __init__(self, family, path):
        self.path, self.expected = path / "run", checkpoints.expected(family)
        self.described = import_checkpoint(f"hf:{checkpoints.copy(family, path / 'checkpoint')}", self.path)
        self.run = zoo.load(self.path)
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
    return functools.cache(lambda family: Imported(family, tmp_path_factory.mktemp(family)))


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


@pytest.mark.parametrize("family", ENCODERS)
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
