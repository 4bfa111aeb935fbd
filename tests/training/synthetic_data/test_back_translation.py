"""Pairs that a model makes of text in the target language alone."""

import json
from types import SimpleNamespace

import pytest

from training.back_translate import main
from training.data import load_data
from training.synthetic_data import parts
from training.synthetic_data.back_translation import BackTranslationRequest, back_translate
from zoo.errors import InputError
from zoo.runtime.cli import run_command

ANSWERS = {"eins": "one", "zwei drei": "two \n three", "": "nothing", "vier": " ", "fünf": "five"}


@pytest.fixture
def corpus(tmp_path):
    """SPEC of two pairs to train on."""
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.en").write_text(f"{split} six\nseven\n", encoding="utf-8")
        (tmp_path / f"{split}.de").write_text(f"{split} sechs\nsieben\n", encoding="utf-8")
    return f"text:{tmp_path}:en-de"


@pytest.fixture
def monolingual(tmp_path):
    """File of five lines in the target language, of which two become no pair."""
    file = tmp_path / "mono.de"
    file.write_text("".join(f"{line}\n" for line in ANSWERS), encoding="utf-8")
    return file


@pytest.fixture
def asked(monkeypatch):
    """What the model was asked to translate, call by call."""
    found = []

    def translate(texts, beam_size):
        found.append((texts, beam_size))
        return [ANSWERS[text] for text in texts]

    monkeypatch.setattr(parts, "PART", 2)
    monkeypatch.setattr("zoo.load", lambda path: SimpleNamespace(translate=translate))
    return found


def test_lines_become_pairs_beside_those_of_the_data(tmp_path, corpus, monolingual, asked):
    request = BackTranslationRequest("model", monolingual, corpus, tmp_path / "out", beam_size=3)
    found = back_translate(request, report=lambda line: None)
    assert found == {"pairs": 5, "synthetic": 3, "left_out": 2, "data": f"text:{tmp_path / 'out'}:source-target"}
    assert asked == [(["eins", "zwei drei"], 3), (["", "vier"], 3), (["fünf"], 3)]
    data = load_data(found["data"])
    assert data.split("train").source == ["train six", "seven", "<bt> one", "<bt> two three", "<bt> five"]
    assert data.split("train").target == ["train sechs", "sieben", "eins", "zwei drei", "fünf"]
    for split in ("val", "test"):
        assert vars(data.split(split)) == vars(load_data(corpus).split(split))


def test_finished_parts_are_not_made_again(tmp_path, corpus, monolingual, asked):
    request = BackTranslationRequest("model", monolingual, corpus, tmp_path / "out")
    found = back_translate(request, report=lambda line: None)
    (tmp_path / "out" / "part-00001.json").unlink()
    assert back_translate(request, report=lambda line: None) == found
    assert [texts for texts, _ in asked[3:]] == [["", "vier"]]
    untagged = BackTranslationRequest("model", monolingual, corpus, tmp_path / "out", tag="")
    back_translate(untagged, report=lambda line: None)  # the tag is no matter of the model
    assert load_data(found["data"]).split("train").source[2:] == ["one", "two three", "five"]
    monolingual.write_text("sechs\n", encoding="utf-8")
    with pytest.raises(InputError, match="other monolingual"):
        back_translate(request)


def test_a_tag_is_one_word(tmp_path, corpus, monolingual):
    for tag in ("two words", " ", "a\tb", "end "):
        with pytest.raises(InputError, match="--tag.* Received: "):
            back_translate(BackTranslationRequest("model", monolingual, corpus, tmp_path / "out", tag=tag))
    assert not (tmp_path / "out").exists()


def test_mistakes_are_one_line(tmp_path, corpus, monolingual, capsys, monkeypatch, subtests):
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["preset:dates_rnnsearch", "--monolingual=mono.de", "--beam_size=0"], "--beam_size must be positive."),
        (["preset:sums_causal_lm_tiny", "--monolingual=mono.de"], "a translator is needed"),
        (["preset:dates_rnnsearch", "--monolingual=nowhere.de"], "nowhere.de"),
    ):
        with subtests.test(message):
            assert run_command(main, [*arguments, f"--data={corpus}", "--output=out"]) == 2
            errors = capsys.readouterr().err
            assert message in errors and errors.count("\n") == 1
            assert not (tmp_path / "out").exists()


def test_the_command_asks_as_it_is_told(tmp_path, corpus, monolingual, asked, capsys):
    command = ["preset:dates_rnnsearch", "--monolingual", str(monolingual), "--data", corpus, "--beam_size", "3"]
    assert run_command(main, [*command, "--tag", "<x>", "--output", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {beam_size for _, beam_size in asked} == {3} and found["synthetic"] == 3
    assert load_data(found["data"]).split("train").source[2:] == ["<x> one", "<x> two three", "<x> five"]


@pytest.mark.nightly
def test_a_preset_translates_back(tmp_path, corpus, capsys):
    (tmp_path / "mono").write_text("5 mai 1984\n3 june 1990\n", encoding="utf-8")
    command = ["preset:dates_rnnsearch", "--monolingual", str(tmp_path / "mono"), "--data", corpus]
    assert run_command(main, [*command, "--output", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert load_data(found["data"]).split("train").source[2:] == ["<bt> 1984-05-05", "<bt> 1990-06-03"]
