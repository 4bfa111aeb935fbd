"""The presets: there, small, undamaged, and as good as their cards say."""

import functools
import json
import shutil

import numpy as np
import pytest
from support.every import every

import zoo
from training.data import load_data
from training.presets import LARGEST, RECIPES
from zoo import presets
from zoo.errors import InputError
from zoo.workdir import CHECKSUMS


@functools.cache
def loaded(name):
    return zoo.load(f"preset:{name}")


@pytest.mark.nightly
def test_one_for_each_task():
    assert zoo.list_presets() == sorted(RECIPES)
    tasks = {loaded(name).spec.task for name in zoo.list_presets()}
    assert tasks == {"seq2seq", "classifier", "language_model"}


def test_files():
    with every() as failures:
        for name, recipe in RECIPES.items():
            folder = presets.preset_path(name)
            files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            with failures.of(name):
                assert sum(path.stat().st_size for path in files.values()) <= LARGEST
                assert {"config.json", "model.keras", "MODEL_CARD.md", CHECKSUMS} <= set(files)
                assert (config["model"]["name"], config["data"]["spec"]) == (recipe.model, recipe.spec)


@pytest.mark.nightly
def test_dates():
    run = loaded("dates_rnnsearch")
    texts = ["August 23, 2025", "24 марта 1931 г.", "2093年7月24日"]
    assert run.translate(texts) == ["2025-08-23", "1931-03-24", "2093-07-24"]


@pytest.mark.nightly
def test_sums():
    run = loaded("sums_causal_lm_tiny")
    assert run.generate(["17+25=", "8+9="]) == ["42", "17"]


COURSES = {
    "I ate a juicy apple after lunch.": "apple.fruit",
    "I updated my Apple phone to the latest version.": "apple.company",
}


def test_senses_of_the_courses_however_they_are_typed():
    ways = (str, str.lower, str.upper, lambda text: text[:-1])
    texts = [typed(text) for typed in ways for text in COURSES]
    answers = loaded("senses_self_attention_classifier").classify(texts)
    assert [answer.label for answer in answers] == [*COURSES.values()] * len(ways)
    assert min(answer.probabilities.max() for answer in answers) >= 0.9


def test_senses_on_sentences_of_people():
    data = load_data("senses:natural").split("test")
    answers = loaded("senses_self_attention_classifier").classify(data.texts)
    assert np.mean([answer.label == label for answer, label in zip(answers, data.labels, strict=True)]) >= 0.9


@pytest.mark.nightly
def test_vectors_of_a_word_differ_by_its_sense():
    """Of twins, which have the same words: the vector of the word is another in the other sense, and else like."""
    run, data = loaded("senses_self_attention_classifier"), load_data("senses:twins").split("test").take(range(360))
    answers = run.classify(data.texts)
    assert np.mean([answer.label == label for answer, label in zip(answers, data.labels, strict=True)]) >= 0.99
    vectors = [
        vector[tokens.index(f"▁{label.split('.')[0]}")]
        for (tokens, vector), label in zip(run.embed(data.texts), data.labels, strict=True)
    ]
    units = np.array([vector / np.linalg.norm(vector) for vector in vectors])
    cosines, labels = units @ units.T, np.array(data.labels)
    words = np.array([label.split(".")[0] for label in labels])
    same = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
    other = (words[:, None] == words) & (labels[:, None] != labels)
    assert np.median(cosines[same]) >= 0.8
    assert np.median(cosines[other]) <= 0.5
    assert np.median([cosines[row, row + 1] for row in range(0, len(labels), 2)]) <= 0.5


def test_the_cat_sat_on_the_mat():
    """What sits is the cat: the verb looks at it, and not at the mat; and the other way round."""
    run = loaded("subjects_self_attention_classifier")
    texts = ["The cat sat on the mat.", "The mat sat on the cat."]
    assert [answer.label for answer in run.classify(texts)] == ["cat", "mat"]
    for tokens, weights in run.attention(texts):
        first, second, sat = 1, 5, tokens.index("▁sat")
        assert {tokens[first].strip("▁."), tokens[second].strip("▁.")} == {"cat", "mat"}
        assert weights[0, 0, sat].argmax() == first
        assert weights[0, 0, sat, first] > 5 * weights[0, 0, sat, second]


def test_unknown():
    with pytest.raises(InputError, match="'dates_rnsearch'.*dates_rnnsearch"):
        zoo.load("preset:dates_rnsearch")


def test_damaged(tmp_path, monkeypatch):
    shutil.copytree(presets.preset_path("dates_rnnsearch"), tmp_path / "dates_rnnsearch")
    monkeypatch.setattr(presets, "FOLDER", tmp_path)
    (tmp_path / "dates_rnnsearch" / "model.keras").write_bytes(b"other")
    with pytest.raises(InputError, match=r"'dates_rnnsearch'.*model\.keras"):
        zoo.load("preset:dates_rnnsearch")
