"""Metrics by the length of sources and by the frequency of their rarest word."""

import json
import shutil
import sys

import pytest
from support.tiny_runs import run_quietly

from training.data import Labelled, LabelledData, TextData, load_data
from training.evaluate import main
from training.evaluation.breakdown import draw, grouped
from training.tasks import get_task
from training.tasks.metrics import translation_metrics
from zoo.errors import InputError
from zoo.presets import checksums
from zoo.runtime.extras import install_command
from zoo.text import CharTokenizer, WordTokenizer
from zoo.workdir import CHECKSUMS

WORDS = WordTokenizer.train(["a b c d"] * 9, vocab_size=10)
CHARACTERS = CharTokenizer.train(["abcd "])


def labelled(texts, training=()):
    splits = {"test": texts, "train": list(training)}
    return LabelledData(
        spec="made", tokenizer="words", load_split=lambda name: Labelled(splits[name], ["x"] * len(splits[name]))
    )


def bounds(kind, texts, training=(), reader=WORDS):
    """Returns the buckets of texts, each with its texts."""
    data = labelled(texts, training)
    table = grouped(kind, reader, get_task("classifier"), data, "test", lambda: data).table(
        lambda numbers: {"texts": [texts[number] for number in numbers]}
    )
    assert sum(bucket["examples"] for bucket in table["buckets"]) == len(texts)
    return table["unit"], [(bucket["from"], bucket["to"], bucket["texts"]) for bucket in table["buckets"]]


def test_length_in_words_without_punctuation():
    texts = ["– a, b .", "", "« a »", "a b c.", "... !"]
    expected = [(0, 0, ["", "... !"]), (1, 1, ["« a »"]), (2, 2, ["– a, b ."]), (3, 3, ["a b c."])]
    assert bounds("length", texts) == ("words", expected)


def test_length_in_characters_where_they_are_read():
    assert bounds("length", ["a b", "c"], reader=CHARACTERS) == ("characters", [(1, 1, ["c"]), (3, 3, ["a b"])])


def test_buckets_of_lengths_are_few_and_the_last_is_open():
    texts = [" ".join(["a"] * length) for length in [*range(1, 41), 500]]
    _, buckets = bounds("length", texts)
    assert [(first, last) for first, last, _ in buckets] == [(1, 10), (11, 20), (21, 30), (31, 40), (71, None)]


def test_sources_of_one_length_are_one_bucket():
    for length in (0, 1, 7, 8, 600):
        ((first, last, texts),) = bounds("length", [" ".join(["a"] * length)] * 3)[1]
        assert first <= length <= last and len(texts) == 3


def test_frequency_of_the_rarest_word_in_training():
    training = ["A a. often", "a once", *["often"] * 8, *["everywhere"] * 1000]
    texts = ["a often", "never a", "(once) often", "everywhere", "Often!", "?"]
    assert bounds("frequency", texts, training) == (
        "words",
        [
            (None, None, ["?"]),
            (0, 0, ["never a"]),
            (1, 2, ["(once) often"]),
            (3, 9, ["a often", "Often!"]),
            (1000, None, ["everywhere"]),
        ],
    )


def test_words_of_scripts_with_marks_are_whole():
    assert bounds("length", ["हिन्दी भाषा।"])[1] == [(2, 2, ["हिन्दी भाषा।"])]


def test_running_text_has_no_examples(lines_workdir, capsys):
    assert run_quietly(main, lines_workdir, "--by", "length") == 2
    assert "error: --by " in capsys.readouterr().err
    data = TextData(spec="made", tokenizer="chars", load_split=lambda name: None, joined=True)
    with pytest.raises(InputError, match="one continuous text"):
        grouped("length", CHARACTERS, get_task("language_model"), data, "test", lambda: data)


@pytest.mark.nightly
def test_translations_by_length(evaluated, text_spec):
    workdir, printed = evaluated
    metrics = json.loads(printed)
    assert (workdir / "evaluation" / "val_beam_1_by_length.png").read_bytes().startswith(b"\x89PNG")
    hypotheses = (workdir / "evaluation" / "val_beam_1.txt").read_text(encoding="utf-8").split("\n")[:-1]
    pairs, buckets = load_data(text_spec).split("val"), metrics["by_length"]["buckets"]
    assert len(buckets) > 1 and sum(bucket["examples"] for bucket in buckets) == len(pairs)
    for bucket in buckets:
        lengths = [len(text.replace(" .", "").replace("😀", " ").split()) for text in pairs.source]
        inside = [number for number, length in enumerate(lengths) if bucket["from"] <= length <= bucket["to"]]
        expected = translation_metrics([hypotheses[n] for n in inside], [pairs.target[n] for n in inside])
        assert bucket["examples"] == len(inside)
        assert {name: bucket[name] for name in ("bleu", "chrf", "exact_match")} == {
            name: expected[name] for name in ("bleu", "chrf", "exact_match")
        }
    weighted = sum(bucket["exact_match"] * bucket["examples"] for bucket in buckets) / len(pairs)
    assert weighted == pytest.approx(metrics["exact_match"])


@pytest.mark.nightly
def test_a_preset_and_texts_by_frequency(labelled_workdir, labelled_spec, tmp_path, monkeypatch, capsys):
    """The frequencies are those of what the model was trained on; of a preset nothing is drawn."""
    shutil.copytree(labelled_workdir, tmp_path / "small", ignore=shutil.ignore_patterns("tb", "checkpoints"))
    (tmp_path / "small" / CHECKSUMS).write_text(json.dumps(checksums(tmp_path / "small")))
    monkeypatch.setattr("zoo.presets.FOLDER", tmp_path)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "test.tsv").write_text("text\tlabel\na horse sees book\tanimal\nunheard horse\tanimal\n")
    shutil.copy(f"{labelled_spec.partition(':')[2]}/train.tsv", tmp_path / "others" / "train.tsv")
    arguments = ["--data", f"tsv:{tmp_path / 'others'}", "--by", "frequency"]
    assert run_quietly(main, "preset:small", *arguments) == 0
    output = capsys.readouterr()
    rare, often = json.loads(output.out)["by_frequency"]["buckets"]
    assert (rare["from"], rare["to"], rare["examples"], often["from"]) == (0, 0, 1, 30)
    assert {"accuracy", "macro_f1", "cross_entropy"} <= rare.keys()
    assert output.err == "" and not list(tmp_path.rglob("*.png"))


TABLE = {"unit": "words", "buckets": [{"from": 1, "to": 5, "examples": 3, "accuracy": 0.5}]}


def test_a_missing_extra_is_one_line(tmp_path, monkeypatch, capsys):
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [NoMatplotlib(), *sys.meta_path])
    draw(TABLE, "length", tmp_path / "a.png")
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(
        part in error for part in (f"no picture {tmp_path / 'a.png'}: ", "matplotlib", install_command("pictures"))
    )


class NoMatplotlib:
    """An import system that knows no matplotlib."""

    def find_spec(self, name, *_):
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "folder").write_text("a file")
    draw(TABLE, "length", tmp_path / "folder" / "a.png")
    assert capsys.readouterr().err == f"no picture {tmp_path / 'folder' / 'a.png'}: File exists\n"
