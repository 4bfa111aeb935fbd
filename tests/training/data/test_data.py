"""SPECs, what all datasets share, and parallel text from a folder: bad data are an error with file and line."""

import re

import pytest

from training.data import Dataset, Labelled, LabelledData, Pairs, Texts, load_data, register_data
from training.data.registry import data_format, data_formats
from zoo.errors import InputError


def _folder(path, **files: bytes):
    """Writes a folder of parallel text; `train_en=b"..."` overrides a file."""
    for split in ("train", "val", "test"):
        for language in ("en", "de"):
            content = files.get(f"{split}_{language}", f"{split} one {language}\n{split} two {language}\n".encode())
            (path / f"{split}.{language}").write_bytes(content)
    return path


def _error(path, split="train") -> str:
    with pytest.raises(InputError) as caught:
        load_data(f"text:{path}:en-de").split(split)
    return str(caught.value)


def test_reads_pairs(tmp_path):
    data = load_data(f"text:{_folder(tmp_path)}:en-de")
    assert (data.task, data.tokenizer, data.shared_vocabulary) == ("seq2seq", "subword", True)
    assert data.split("val") == Pairs(["val one en", "val two en"], ["val one de", "val two de"])
    assert data.split("val") is data.split("val")
    assert len(data.split("test")) == 2


def test_direction_and_folder_are_the_specs(tmp_path):
    pairs = load_data(f"text:{_folder(tmp_path)}:de-en").split("train")
    assert (pairs.source[0], pairs.target[0]) == ("train one de", "train one en")
    (tmp_path / "a:b").mkdir()
    assert len(load_data(f"text:{_folder(tmp_path / 'a:b')}:en-de").split("train")) == 2


def test_only_a_newline_ends_a_line(tmp_path):
    odd = "a\u2028b\x0b\x0c\x1c\x85c\rd\n\u2029w\r\nlast".encode()
    _folder(tmp_path, train_en=odd, train_de=b"x\ny\r\nz\n")
    pairs = load_data(f"text:{tmp_path}:en-de").split("train")
    assert pairs.source == ["a\u2028b\x0b\x0c\x1c\x85c\rd", "\u2029w", "last"]
    assert pairs.target == ["x", "y", "z"]


def test_a_byte_order_mark_is_not_text(tmp_path):
    _folder(tmp_path, val_en=b"\xef\xbb\xbfone", val_de=b"eins")
    assert load_data(f"text:{tmp_path}:en-de").split("val").source == ["one"]


def test_a_pair_blank_on_both_sides_is_kept(tmp_path):
    _folder(tmp_path, val_en=b"a\n\nb\n", val_de=b"c\n \nd\n")
    assert load_data(f"text:{tmp_path}:en-de").split("val") == Pairs(["a", "", "b"], ["c", " ", "d"])


BAD_LINES = (
    ({"train_en": b"1\n2\n3\n4\n5\n", "train_de": b"1\n2\n3\n"}, r"train\.en:4: .*unequal .* 5 .* 3 "),
    ({"train_en": b"1\n2\n", "train_de": b"1\n2\n3\n"}, r"train\.de:3: .*unequal .* 2 .* 3 "),
    ({"train_en": b"1\n\n3\n", "train_de": b"1\n2\n3\n"}, r"train\.en:2: blank line"),
    ({"train_en": b"1\n2\n3\n", "train_de": b"1\n2\n \t\n"}, r"train\.de:3: blank line"),
    ({"train_en": "1\n\u200b\n3\n".encode(), "train_de": b"1\n2\n3\n"}, r"train\.en:2: blank line"),
    ({"train_en": b"1\n2\n3 \xff\n"}, r"train\.en:3: invalid UTF-8 \(byte 0xff\)"),
    ({"train_de": b"\xef\xbb\xbf1\n\xed\xa0\x80\n"}, r"train\.de:2: invalid UTF-8 \(byte 0xed\)"),
    ({"train_de": b""}, r"train\.de:1: empty file"),
    ({"train_en": b"", "train_de": b""}, r"train\.en:1: empty file"),
    ({"train_en": b"1\n2\n3", "train_de": b"1\n2\n3\n\n"}, r"train\.de:4: .*unequal"),
    ({"train_en": b"\xef\xbb\xbf"}, r"train\.en:1: empty file"),
)


def test_bad_lines(tmp_path, subtests):
    for files, expected in BAD_LINES:
        with subtests.test(str(files)):
            message = _error(_folder(tmp_path, **files))
            assert re.search(re.escape(str(tmp_path)) + "/" + expected, message)


def test_other_splits_are_checked_when_used(tmp_path):
    _folder(tmp_path, test_de=b"only one\n")
    data = load_data(f"text:{tmp_path}:en-de")
    assert len(data.split("train")) == 2
    assert re.search(r"test\.en:2: .*unequal", _error(tmp_path, "test"))


def test_what_is_missing_is_noticed_at_once(tmp_path):
    (_folder(tmp_path) / "test.de").unlink()
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/test.de")):
        load_data(f"text:{tmp_path}:en-de")
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/none")):
        load_data(f"text:{tmp_path}/none:en-de")


BAD_SPECS = {
    "date": "'date'.*dates",
    "txt:here:en-de": "'txt'.*text",
    "tvs:here": "'tvs'.*tsv",
    "": ", ".join(map(re.escape, sorted(kind.form for kind in data_formats().values()))),
    "lines:caf\udce9": r"Received: 'lines:caf\\udce9'",
}
MALFORMED = "text text: text:a text::en-de text:a:en text:a:- text:a:b-c-d tsv tsv: lines lines: tfds tfds:".split()


def test_bad_specs(subtests):
    malformed = {spec: f"{spec!r}.*{re.escape(data_format(spec).form)}" for spec in MALFORMED}
    for spec, message in {**BAD_SPECS, **malformed}.items():
        with subtests.test(ascii(spec)), pytest.raises(InputError, match=message):
            load_data(spec)


def test_splits_are_made_once_and_when_asked_for():
    made = []

    def load_split(name):
        made.append(name)
        return Labelled([name, "text"], ["b", "a"])

    data = LabelledData(spec="here", tokenizer="words", load_split=load_split, splits=("train", "val"))
    assert isinstance(data, Dataset) and made == []
    assert data.split("val") is data.split("val")
    assert data.classes == ["a", "b"] == data.classes
    assert made == ["val", "train"]
    with pytest.raises(InputError, match="'here'.*test.*train and val"):
        data.split("test")


def test_some_examples_of_a_split():
    for kind, columns in ((Pairs, 2), (Labelled, 2), (Texts, 1)):
        split = kind(*(["a", "b", "c"], ["A", "B", "C"])[:columns])
        assert len(split) == 3
        assert split.take(iter([2, 0])) == kind(*(["c", "a"], ["C", "A"])[:columns])


def test_unknown_split(tmp_path):
    with pytest.raises(InputError, match="'valid'.*val"):
        load_data(f"text:{_folder(tmp_path)}:en-de").split("valid")


def test_a_loader_of_ones_own(monkeypatch):
    from training.data import registry

    monkeypatch.setattr(registry, "_FORMATS", dict(data_formats()))

    @register_data("parity", "parity")
    def load_parity(spec, seed):
        split = Labelled([str(seed), str(seed + 1)], ["even", "odd"])
        return LabelledData(spec=spec, tokenizer="chars", load_split=lambda name: split)

    assert load_data("parity", seed=4).split("train") == Labelled(["4", "5"], ["even", "odd"])
    with pytest.raises(InputError, match="'parity'.*Received: 'parity:5'"):
        load_data("parity:5")
    with pytest.raises(InputError, match="data.max_examples.*parity"):
        load_data("parity", max_examples=3)
    with pytest.raises(ValueError, match="'parity'.*registered"):
        register_data("parity", "parity")(load_parity)
