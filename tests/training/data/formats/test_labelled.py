"""Labelled text from a folder: every kind of bad data is an error with file and line."""

import re
from collections import Counter

import pytest

from training.data import Labelled, LabelledData, Pairs, Texts, load_data
from training.data.held_out import hold_out
from zoo.errors import InputError

FILES = {
    "train": b"text\tlabel\nWho was Galileo ?\tHUM\nWhere is Aspen ?\tLOC\nWho sings ?\tHUM\n",
    "val": b"text\tlabel\nWho paints ?\tHUM\n",
    "test": b"text\tlabel\nWhere is Modesto ?\tLOC\nWho ?\tHUM\n",
}

UNKNOWN = b"text\tlabel\na\tHUM\nb\tHUN\n"


def _folder(path, **files: bytes):
    """Writes a folder of labelled text; `train=b"..."` overrides a file."""
    for split, content in (FILES | files).items():
        (path / f"{split}.tsv").write_bytes(content)
    return path


def _numbered(count: int, labels: str = "ab") -> bytes:
    rows = [f"text {i}\t{labels[i % len(labels)]}\n" for i in range(count)]
    return ("text\tlabel\n" + "".join(rows)).encode()


def test_reads_texts_and_labels(tmp_path):
    data = load_data(f"tsv:{_folder(tmp_path)}")
    assert isinstance(data, LabelledData)
    assert (data.task, data.tokenizer, data.splits) == ("classifier", "words", ("train", "val", "test"))
    assert data.split("test") == Labelled(["Where is Modesto ?", "Who ?"], ["LOC", "HUM"])
    assert data.split("test") is data.split("test")
    assert len(data.split("train")) == 3
    assert data.classes == ["HUM", "LOC"]


def test_text_is_taken_as_it_is(tmp_path):
    odd = '\ufefftext\tlabel\r\n"quoted" \t b \r\n a\u2028b\\t\tc\n'.encode()
    data = load_data(f"tsv:{_folder(tmp_path, train=odd, val=odd)}")
    assert data.split("train") == Labelled(['"quoted" ', " a\u2028b\\t"], ["b", "c"])


BAD_LINES = (
    (b"", r"1: empty file"),
    (b"text\tlabel\n", r"2: no examples"),
    (
        b"text\tclass\na\tHUM\n",
        r"1: missing column 'label'; line 1 must be text<TAB>label\. Received: 'text.tclass'",
    ),
    (b"sentence\tlabel\na\tHUM\n", r"1: missing column 'text'"),
    (b"a\tHUM\nb\tLOC\n", r"1: missing columns 'text' and 'label'; line 1"),
    (b"label\ttext\nHUM\ta\n", r"1: line 1 must be text<TAB>label"),
    (b"text\tlabel\tid\na\tHUM\t1\n", r"1: line 1 must be text<TAB>label, no other columns"),
    (b"text\tlabel\na\tHUM\nb LOC\n", r"3: expected one tab.*Received: 0"),
    (b"text\tlabel\na\tHUM\nb\tc\tLOC\n", r"3: expected one tab.*Received: 2"),
    (b"text\tlabel\na\tHUM\n\nb\tLOC\n", r"3: expected one tab.*Received: 0"),
    (b"text\tlabel\na\tHUM\n \tLOC\n", r"3: empty text"),
    (b"text\tlabel\na\tHUM\nb\t \n", r"3: empty label"),
    (b"text\tlabel\na\tHUM\nb \xe9\tLOC\n", r"3: invalid UTF-8 \(byte 0xe9\)"),
)


def test_bad_lines(tmp_path, subtests):
    for number, (content, expected) in enumerate(BAD_LINES):
        split = ("train", "val", "test")[number % 3]
        with subtests.test(f"{split}: {content!r}"):
            data = load_data(f"tsv:{_folder(tmp_path, **{split: content})}")
            with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path))}/{split}\\.tsv:{expected}"):
                data.split(split)


def test_labels_that_do_not_do(tmp_path):
    for split in ("val", "test"):
        data = load_data(f"tsv:{_folder(tmp_path, **{split: UNKNOWN})}")
        with pytest.raises(InputError, match=rf"/{split}\.tsv:3: .*'HUN'.*HUM"):
            data.split(split)
    data = load_data(f"tsv:{_folder(tmp_path, train=_numbered(20, 'a'))}")
    with pytest.raises(InputError, match=r"/train\.tsv:2: .*'a'"):
        data.split("train")


def test_what_is_missing_is_noticed_at_once(tmp_path):
    for split in ("train", "test"):
        (_folder(tmp_path) / f"{split}.tsv").unlink()
        with pytest.raises(InputError, match=rf"/{split}\.tsv: no such file"):
            load_data(f"tsv:{tmp_path}")
    with pytest.raises(InputError, match=re.escape(f"Received: 'tsv:{tmp_path}/none'")):
        load_data(f"tsv:{tmp_path}/none")


@pytest.fixture
def without_val(tmp_path):
    """A folder of 101 training examples without validation."""
    train = _numbered(101)
    (_folder(tmp_path, train=train, test=b"text\tlabel\nx\ta\n") / "val.tsv").unlink()
    return f"tsv:{tmp_path}"


def test_a_tenth_is_held_out(without_val):
    data = load_data(without_val)
    train, val = data.split("train"), data.split("val")
    assert (len(train), len(val), len(data.split("test"))) == (91, 10, 1)
    assert set(train.texts) | set(val.texts) == {f"text {i}" for i in range(101)}
    for examples in (train, val):
        numbers = [int(text.split()[1]) for text in examples.texts]
        assert numbers == sorted(numbers)
        assert examples.labels == ["ab"[number % 2] for number in numbers]
    assert val == load_data(without_val).split("val")
    assert val != load_data(without_val, seed=1).split("val")
    assert val.texts[:3] == ["text 27", "text 34", "text 36"]  # Results are only comparable while this stays.


def test_bad_data_are_noticed_without_val(without_val, tmp_path):
    (tmp_path / "train.tsv").write_bytes(_numbered(30) + b"last\n")
    with pytest.raises(InputError, match=r"train\.tsv:32: expected one tab"):
        load_data(without_val).split("val")
    (tmp_path / "train.tsv").write_bytes(b"text\tlabel\none\ta\ntwo\tb\n")
    with pytest.raises(InputError, match=r"/train\.tsv: 2 .*val"):
        load_data(without_val).split("train")


def test_nothing_can_be_held_out(without_val, tmp_path):
    for rows, message in (
        ([f"{i}\ttext {i}" for i in range(30)], "30 labels"),
        ([f"same\t{i % 2}" for i in range(30)], "all 30 examples have the same text"),
    ):
        (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]))
        with pytest.raises(InputError, match=f"{re.escape(str(tmp_path / 'train.tsv'))}: .*{message}") as refusal:
            load_data(without_val).split("train")
        assert str(refusal.value).endswith("val split.")


def test_equal_texts_stay_together():
    texts = [f"text {i % 40}" for i in range(100)]
    kept, held = hold_out(Labelled(texts, ["a"] * 100), 0, "here")
    assert sorted([*kept, *held]) == list(range(100))
    assert 8 <= len(held) <= 10
    assert {texts[i] for i in kept}.isdisjoint(texts[i] for i in held)


def test_no_label_is_lost():
    labels = ["rare" if i % 10 == 0 else f"once {i}" for i in range(50)]
    for seed in range(20):
        kept, held = hold_out(Labelled([f"text {i}" for i in range(50)], labels), seed, "here")
        assert {labels[i] for i in held} == {"rare"}
        assert set(labels) == {labels[i] for i in kept}


def test_what_is_held_out_does_not_depend_on_the_order():
    texts = [f"text {i}" for i in range(70)]
    _, held = hold_out(Texts(texts), 3, "here")
    _, again = hold_out(Texts(texts[::-1]), 3, "here")
    assert {texts[i] for i in held} == {texts[::-1][i] for i in again}
    assert len(held) == 7


def test_pairs_are_held_out_by_source():
    pairs = Pairs([f"text {i // 2}" for i in range(60)], [f"Text {i}" for i in range(60)])
    kept, held = hold_out(pairs, 0, "here")
    assert Counter(i // 2 for i in held) == dict.fromkeys({i // 2 for i in held}, 2)
    assert pairs.take(held).target == [f"Text {i}" for i in held]
