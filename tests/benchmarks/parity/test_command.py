"""The command of parity: what it is asked, what is missing, and one family from end to end."""

import importlib.util
import re
import unicodedata

import pytest
from support import checkpoints

from benchmarks.parity import __main__ as parity
from benchmarks.parity.inputs import arabic_words, beginnings, hostile_lines, read_lines, sentences
from benchmarks.runner import store


def refused(arguments, capsys):
    """Returns the error of a command that ends with 2."""
    with pytest.raises(SystemExit) as ended:
        parity.main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_what_is_missing_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parity, "PACKAGES", ("keras", "no_such_package"))
    assert "no_such_package" in refused(["--pretrained", str(tmp_path)], capsys)
    monkeypatch.setattr(parity, "PACKAGES", ("keras",))
    assert "--pretrained" in refused(["--pretrained", str(tmp_path / "none")], capsys)
    texts = [str(tmp_path / "a"), str(tmp_path)]
    assert f"Received: {', '.join(texts)}" in refused(["--pretrained", str(tmp_path), "--text", *texts], capsys)
    (tmp_path / "a.py").write_text("")
    assert "Received: 0" in refused(["--pretrained", str(tmp_path), "--text", str(tmp_path), "--lines", "0"], capsys)
    only = refused(["--pretrained", str(tmp_path), "--only", "config.json"], capsys)
    assert "--only config.json" in only and "--mutate" in only


def test_inputs_are_many_different_and_what_tokenizers_do_not_like(tmp_path):
    texts = sentences(240)
    assert len({*texts}) == 240
    assert [len(text.split()) for text in beginnings(texts)[:7]] == [1, 2, 3, 4, 5, 6, 1]
    letters = "ابتدسرملني"
    words = arabic_words(900, letters)
    assert len({*words}) == 900 and {*"".join(words)} <= {*letters}
    (tmp_path / "lines").write_bytes("a\nb\r\na\n\xff".encode("latin-1"))
    assert read_lines([tmp_path / "lines"] * 2) == ["a", "b\r", "\ufffd"]
    (tmp_path / "source.py").write_text("x = 1")
    assert read_lines([tmp_path]) == ["x = 1"]
    lines = list(hostile_lines(500))
    assert len(lines) == 500 and lines == list(hostile_lines(500)) != list(hostile_lines(500, seed=1))
    assert max(map(len, lines)) == 10_000 and "\x00" in lines
    assert {"Cc", "Mn", "Cf", "So", "Lo", "Nd", "Nl"} <= {unicodedata.category(each) for each in "".join(lines)}
    "".join(lines).encode()  # no surrogates


@pytest.mark.weekly
@pytest.mark.skipif(
    any(importlib.util.find_spec(package) is None for package in parity.PACKAGES), reason="optional packages"
)
def test_a_family_is_compared_from_end_to_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(store, "FOLDER", tmp_path / "stored")
    options = ["--pretrained", str(checkpoints.FIXTURES), "--quick", "--output", str(tmp_path / "page.md")]
    assert parity.main([*options, "--family", "GPT-2"]) == 0
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    (texts,) = re.findall(r"\| GPT-2 \| (\d+) of \1 \| \1 of \1 \| – \| – \| – \| – \|", page)
    assert int(texts) >= 5 and "Nothing." in page
    assert "Pythia; Llama;" in page and ": not yet measured." in page
    assert parity.main([*options, "--family", "Pythia"]) == 0
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert f"| GPT-2 | {texts} of {texts} |" in page and "Pythia: pythia/tokenizer.json is not there." in page
    assert "Received: --family 'GPT-7'" in refused([*options, "--family", "GPT-7"], capsys)
