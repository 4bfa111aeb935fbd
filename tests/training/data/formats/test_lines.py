"""Plain text from a folder."""

import re

import pytest

from training.data import TextData, Texts, load_data
from zoo.errors import InputError


def _folder(path, **files: bytes):
    """Writes a folder of plain text without a test file; `test=b"..."` writes one."""
    for split, content in ({"train": b"ANN:\nGood day.\n\nLEO:\nWell met.\n", "val": b"\n \nBye.\n"} | files).items():
        (path / f"{split}.txt").write_bytes(content)
    return path


def test_reads_lines(tmp_path):
    data = load_data(f"lines:{_folder(tmp_path)}")
    assert isinstance(data, TextData)
    assert (data.task, data.tokenizer, data.joined, data.prompt_end) == ("language_model", "chars", True, "")
    assert data.split("train") == Texts(["ANN:", "Good day.", "", "LEO:", "Well met."])
    assert data.split("val") == Texts(["", " ", "Bye."])
    assert data.split("val") is data.split("val")
    assert len(data.split("train")) == 5


def test_the_test_may_be_missing(tmp_path):
    data = load_data(f"lines:{_folder(tmp_path)}")
    assert data.splits == ("train", "val")
    with pytest.raises(InputError, match=rf"'lines:{re.escape(str(tmp_path))}'.*test.*train"):
        data.split("test")
    data = load_data(f"lines:{_folder(tmp_path, test=b'here')}")
    assert data.splits == ("train", "val", "test")
    assert data.split("test") == Texts(["here"])


def test_the_lines_make_the_text(tmp_path):
    text = "one\n\n\ttwo \u2028\n three\x0c\n"
    data = load_data(f"lines:{_folder(tmp_path, train=text.encode())}")
    assert "\n".join(data.split("train").texts) + "\n" == text


def test_bad_files(tmp_path, subtests):
    for split, content, expected in (
        ("train", b"", "1: empty file"),
        ("test", b"\n \n\t\n", "1: blank lines only"),
        ("val", b"one\ntwo \xff\n", r"2: invalid UTF-8 \(byte 0xff\)"),
    ):
        with subtests.test(f"{split}: {expected}"):
            data = load_data(f"lines:{_folder(tmp_path, **{split: content})}")
            with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path))}/{split}\\.txt:{expected}"):
                data.split(split)


def test_a_missing_file_is_noticed_at_once(tmp_path):
    for split in ("train", "val"):
        (_folder(tmp_path) / f"{split}.txt").unlink()
        with pytest.raises(InputError, match=rf"/{split}\.txt: no such file"):
            load_data(f"lines:{tmp_path}")
