"""A corpus of what teachers write."""

import json
from types import SimpleNamespace

import pytest

from training.data import Pairs, load_data
from training.distill import main
from training.synthetic_data import parts
from training.synthetic_data.distillation import DistillationRequest, best_of, distill
from zoo.errors import InputError
from zoo.runtime.cli import run_command
from zoo.runtime.locks import exclusive


def teacher(answers, lowercase=False):
    """Returns a run that has these translations of each source."""

    def nbest(sources, beam_size):
        return [
            [
                SimpleNamespace(text=text, log_prob=-float(place))
                for place, text in enumerate(answers[source][:beam_size])
            ]
            for source in sources
        ]

    return SimpleNamespace(nbest=nbest, spec=SimpleNamespace(task="seq2seq"), config={"data": {"lowercase": lowercase}})


@pytest.fixture
def corpus(tmp_path):
    """SPEC of five pairs to train on."""
    sides = {
        "en": ["one two three four", "a b c d", "five", "six", "seven"],
        "de": ["eins zwei drei vier", "A B C D", "fünf", "sechs", "sieben"],
    }
    for split, count in (("train", 5), ("val", 1), ("test", 2)):
        for side, lines in sides.items():
            folder = tmp_path / "corpus"
            folder.mkdir(exist_ok=True)
            (folder / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines[:count]), encoding="utf-8")
    return f"text:{tmp_path / 'corpus'}:en-de"


ANSWERS = {
    "one two three four": ["ganz anders als das", "eins zwei drei fünf"],
    "a b c d": ["A B C  D\n", "A B"],
    "five": ["", ""],
    "six": ["sex", "sechs"],
    "seven": ["sieben", "7"],
}


def test_the_translation_most_like_the_reference_is_taken():
    pairs = Pairs(["one two three four", "five", "a b c d"], ["eins zwei drei vier", "fünf", "A B C D"])
    choices = best_of([teacher(ANSWERS)], pairs, beam_size=2)
    assert [choice.text for choice in choices] == ["eins zwei drei fünf", "fünf", "A B C D"]
    assert choices[0].bleu < choices[0].chosen_bleu < 100 and choices[2].bleu == pytest.approx(100)
    better = teacher({**ANSWERS, "one two three four": ["eins zwei drei vier"]})
    assert best_of([teacher(ANSWERS), better], pairs, 2)[0].text == "eins zwei drei vier"
    assert best_of([teacher(ANSWERS)], pairs, 1)[0].text == "ganz anders als das"


def test_of_equal_ones_the_more_probable_is_taken():
    runs = [teacher({"x": ["b a", "a b"]})]
    assert best_of(runs, Pairs(["x"], ["c"]), 2)[0].text == "b a"


def test_capitals_do_not_count_against_a_teacher_that_writes_none():
    pairs = Pairs(["x"], ["A B c"])
    answers = {"x": ["d e c", "a b c"]}
    assert best_of([teacher(answers)], pairs, 2)[0].text == "d e c"
    assert best_of([teacher(answers, lowercase=True)], pairs, 2)[0].text == "a b c"


def test_a_command_that_was_killed_goes_on(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr(parts, "PART", 2)
    run, asked = teacher(ANSWERS), []

    def nbest(sources, beam_size, nbest=run.nbest):
        asked.append(list(sources))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return nbest(sources, beam_size)

    run.nbest = nbest
    monkeypatch.setattr("zoo.load", lambda path: run)
    request = DistillationRequest(("teacher",), corpus, tmp_path / "out", 2)
    with pytest.raises(KeyboardInterrupt):
        distill(request)
    found = distill(request, report=lambda line: None)
    assert asked == [["one two three four", "a b c d"], ["five", "six"], ["five", "six"], ["seven"]]
    assert found["pairs"] == 5 and found["chosen_bleu"] > found["bleu"]
    data = load_data(found["data"])
    assert data.split("train").source == load_data(corpus).split("train").source
    assert data.split("train").target == ["eins zwei drei fünf", "A B C D", "fünf", "sechs", "sieben"]
    assert data.split("test").target == load_data(corpus).split("test").target
    assert distill(request) == found and len(asked) == 4  # nothing is left to do
    beside = distill(DistillationRequest(("teacher",), corpus, tmp_path / "out", 2, references=True))
    assert beside == {**found, "pairs": 10} and len(asked) == 4
    both, train = load_data(beside["data"]).split("train"), load_data(corpus).split("train")
    assert (both.source, both.target) == ([*train.source] * 2, [*data.split("train").target, *train.target])
    with pytest.raises(InputError, match="beam_size"):
        distill(DistillationRequest(("teacher",), corpus, tmp_path / "out", 3))


def test_what_is_refused(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr("zoo.load", lambda path: teacher(ANSWERS))
    with pytest.raises(InputError, match="[Pp]airs"):
        distill(DistillationRequest(("teacher",), "senses", tmp_path / "out"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        distill(DistillationRequest(("teacher",), corpus, tmp_path / "full"))
    (tmp_path / "busy").mkdir()
    with (
        exclusive(tmp_path / "busy" / ".lock", "busy"),
        pytest.raises(InputError, match="[Aa]nother process"),
    ):
        distill(DistillationRequest(("teacher",), corpus, tmp_path / "busy"))


def test_mistakes_are_one_line(tmp_path, capsys, subtests):
    for arguments, message in (
        (["preset:dates_rnnsearch", "--data=dates", "--beam_size=0"], "--beam_size must be positive. Received: 0."),
        (["preset:sums_causal_lm_tiny", "--data=dates"], "preset:sums_causal_lm_tiny contains a language_model model"),
        (["preset:dates_rnnsearch", "--data=text:nowhere:en-de"], "nowhere"),
    ):
        with subtests.test(message):
            assert run_command(main, [*arguments, f"--output={tmp_path / 'out'}"]) == 2
            errors = capsys.readouterr().err
            assert message in errors and errors.count("\n") == 1
            assert not (tmp_path / "out").exists()


def test_the_command_asks_as_it_is_told(tmp_path, corpus, monkeypatch, capsys):
    monkeypatch.setattr("zoo.load", lambda path: teacher(ANSWERS))
    argv = ["preset:dates_rnnsearch", "--data", corpus, "--output", str(tmp_path / "out"), "--beam_size", "2"]
    assert run_command(main, [*argv, "--references"]) == 0
    found = json.loads(capsys.readouterr().out)
    train, references = load_data(found["data"]).split("train").target, load_data(corpus).split("train").target
    assert train == ["eins zwei drei fünf", "A B C D", "fünf", "sechs", "sieben", *references]


@pytest.mark.nightly
def test_a_preset_teaches(tmp_path, capsys):
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.en").write_text("5 mai 1984\n3 june 1990\n", encoding="utf-8")
        (tmp_path / f"{split}.iso").write_text("1984-05-05\n1990-06-03\n", encoding="utf-8")
    spec = f"text:{tmp_path}:en-iso"
    assert run_command(main, ["preset:dates_rnnsearch", "--data", spec, "--output", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert load_data(found["data"]).split("train").target == ["1984-05-05", "1990-06-03"]
    again = ["preset:dates_rnnsearch", "--data", spec, "--output", str(tmp_path / "out"), "--references"]
    assert run_command(main, again) == 0
    found = json.loads(capsys.readouterr().out)
    assert load_data(found["data"]).split("train").target == ["1984-05-05", "1990-06-03"] * 2
