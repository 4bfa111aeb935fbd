"""Datasets of TFDS: named ones with mocked examples, and prepared folders, which are read without TensorFlow."""

import contextlib
import re
import socket
import subprocess
import sys

import pytest
import tensorflow_datasets as tfds
from support.prepared_tfds import prepare, write_metadata
from support.tiny_runs import run_quietly, train
from urllib3.util.retry import Retry

from training.data import Labelled, LabelledData, Pairs, ParallelData, TextData, Texts, load_data
from training.evaluate import main
from zoo.errors import InputError


@pytest.fixture
def mocked(tmp_path):
    """Returns a function that mocks a named dataset: its splits, with given or random examples."""
    with contextlib.ExitStack() as stack:

        def mock(name: str, splits: dict[str, int | list[dict]]):
            write_metadata(tmp_path, name, {split: n if isinstance(n, int) else len(n) for split, n in splits.items()})
            given = {split: examples for split, examples in splits.items() if isinstance(examples, list)}
            function = (lambda builder, split: given[split]) if given else None
            num_examples = 1 if given else next(iter(splits.values()))
            stack.enter_context(
                tfds.testing.mock_data(num_examples=num_examples, data_dir=tmp_path, as_data_source_fn=function)
            )

        yield mock


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Folders of prepared datasets by name."""
    text, label = tfds.features.Text(), tfds.features.ClassLabel(names=["bad", "good"])
    plain = tfds.features.FeaturesDict({"body": text})
    rows = [{"text": f"text {i} é", "label": i % 2} for i in range(50)]
    pairs = [{"en": f"text {i}", "de": f"Text {i}"} for i in range(20)]
    kinds = {
        "reviews": (tfds.features.FeaturesDict({"text": text, "label": label}), {"train": rows, "test": rows[:5]}, 2),
        "records": (tfds.features.FeaturesDict({"text": text, "label": label}), {"train": rows, "test": rows[:5]}, 1),
        "pairs": (tfds.features.Translation(["de", "en"]), {"train": pairs, "dev": pairs[:4]}, 1),
        "twice": (
            tfds.features.FeaturesDict({"text": text, "tone": label, "style": label}),
            {"train": [{"text": "a", "tone": 0, "style": 1}]},
            1,
        ),
        "poem": (plain, {"train": [{"body": "one\n\ntwo\r\n" * 20}]}, 1),
        "line": (plain, {"train": [{"body": "one"}]}, 1),
        "poems": (plain, {"train": [{"body": f"{i}\nend"} for i in range(30)]}, 1),
    }
    folders = {}
    for name, (features, splits, num_shards) in kinds.items():
        file_format = "array_record" if name == "records" else "tfrecord"
        folders[name] = prepare(tmp_path_factory.mktemp(name), name, features, splits, file_format, num_shards)
    return folders


@pytest.mark.parametrize(
    ("name", "languages"),
    [("wmt14_translate/de-en", ":de-en"), ("wmt14_translate/de-en", ":en-de"), ("ted_hrlr_translate/pt_to_en", "")],
)
def test_translations(mocked, name, languages):
    source, target = languages[1:].split("-") if languages else ("pt", "en")
    splits = {
        split: [{source: f"{split} {i} a", target: f"{split} {i} b"} for i in range(size)]
        for split, size in {"train": 3, "validation": 1, "test": 2}.items()
    }
    mocked(name, splits)
    data = load_data(f"tfds:{name}{languages}")
    assert isinstance(data, ParallelData)
    assert (data.task, data.tokenizer, data.shared_vocabulary) == ("seq2seq", "subword", True)
    assert data.splits == ("train", "val", "test")
    assert data.split("train") == Pairs([f"train {i} a" for i in range(3)], [f"train {i} b" for i in range(3)])
    assert data.split("val") == Pairs(["validation 0 a"], ["validation 0 b"])
    assert len(data.split("test")) == 2


@pytest.mark.parametrize(
    ("name", "splits", "classes"),
    [
        ("ag_news_subset", {"train": 60, "test": 60}, ["Business", "Sci/Tech", "Sports", "World"]),
        ("imdb_reviews", {"train": 60, "test": 60, "unsupervised": 60}, ["neg", "pos"]),
    ],
)
def test_classified_texts(mocked, name, splits, classes):
    mocked(name, splits)
    data = load_data(f"tfds:{name}")
    assert isinstance(data, LabelledData)
    assert (data.task, data.tokenizer, data.splits) == ("classifier", "words", ("train", "val", "test"))
    assert data.classes == classes
    train, val, test = (data.split(split) for split in data.splits)
    assert (len(train), len(val), len(test)) == (54, 6, 60)
    assert sorted([*train.texts, *val.texts]) == sorted(test.texts)  # the mocked splits are alike
    assert all(isinstance(text, str) and text.strip() for text in test.texts)


def test_of_two_texts_the_one_that_the_dataset_names(mocked):
    rows = [{"title": "t", "description": f"d{i}", "label": i} for i in range(4)]
    mocked("ag_news_subset", {"train": rows * 10, "test": rows})
    assert load_data("tfds:ag_news_subset").split("test").texts == ["d0", "d1", "d2", "d3"]


def test_one_long_text(mocked):
    texts = {"train": "First Citizen:\nSpeak.\n\nAll:\n", "validation": "Good\nday", "test": "Bye"}
    mocked("tiny_shakespeare", {split: [{"text": text.encode()}] for split, text in texts.items()})
    data = load_data("tfds:tiny_shakespeare")
    assert isinstance(data, TextData)
    assert (data.task, data.tokenizer, data.joined, data.prompt_end) == ("language_model", "chars", True, "")
    assert data.split("train") == Texts(["First Citizen:", "Speak.", "", "All:"])
    assert data.split("val") == Texts(["Good", "day"])
    assert data.split("test") == Texts(["Bye"])


def test_separate_texts(mocked):
    mocked("lm1b", {"train": 30, "test": 30})
    data = load_data("tfds:lm1b", seed=1)
    assert isinstance(data, TextData)
    assert (data.tokenizer, data.joined, data.splits) == ("subword", False, ("train", "val", "test"))
    assert [len(data.split(split)) for split in data.splits] == [27, 3, 30]
    assert data.split("val") != load_data("tfds:lm1b", seed=2).split("val")


@pytest.mark.parametrize("name", ["reviews", "records"])
def test_a_prepared_folder(prepared, name):
    data = load_data(f"tfds:{prepared[name]}")
    assert data.split("test") == Labelled([f"text {i} é" for i in range(5)], ["bad", "good", "bad", "good", "bad"])
    train, val = data.split("train"), data.split("val")
    assert (len(train), len(val)) == (45, 5)
    assert {*train.texts, *val.texts} == {f"text {i} é" for i in range(50)}
    assert len(list(prepared[name].glob("*-train*"))) == {"reviews": 2, "records": 1}[name]


@pytest.mark.parametrize(("languages", "expected"), [("en-de", ("text 3", "Text 3")), ("de-en", ("Text 3", "text 3"))])
def test_a_prepared_translation(prepared, languages, expected):
    data = load_data(f"tfds:{prepared['pairs']}:{languages}")
    assert data.splits == ("train", "val")
    assert (data.split("train").source[3], data.split("train").target[3]) == expected
    assert len(data.split("val")) == 4
    with pytest.raises(InputError, match="test.*train and val"):
        data.split("test")


def test_of_one_text_the_last_tenth_is_held_out(prepared):
    data = load_data(f"tfds:{prepared['poem']}")
    assert data.joined and data.splits == ("train", "val")
    assert data.split("train").texts == ["one", "", "two"] * 18
    assert data.split("val").texts == ["one", "", "two"] * 2
    data = load_data(f"tfds:{prepared['line']}")
    with pytest.raises(InputError, match="one line.*val"):
        data.split("train")
    data = load_data(f"tfds:{prepared['poems']}")
    assert not data.joined
    assert len(data.split("val")) == 3
    assert all(text.endswith("\nend") for text in data.split("train").texts)


def test_no_tensorflow_for_other_backends(prepared):
    """As `zoo.runtime.startup.start_backend` leaves it, and without."""
    code = (
        "import sys; from training.data import load_data; sys.modules['tensorflow'] = None;"
        "data = load_data('tfds:' + sys.argv[2]); assert len(data.split('train')) == 45;"
        "assert sys.modules.pop('tensorflow') is None;"
        "data = load_data('tfds:' + sys.argv[1]); sys.modules['tensorflow'] = None;"
        "assert len(data.split('train')) == 45 and sys.modules['tensorflow'] is None"
    )
    argv = [sys.executable, "-c", code, prepared["reviews"], prepared["records"]]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a", 0), (" ", 1)], r"imdb_reviews, example 1 .* train \(train\[1:2\]\): empty"),
        ([("a", 0), ("b", -1)], r"imdb_reviews, example 1 .* train \(train\[1:2\]\): .*label.*-1"),
        ([("a", 0), (b"caf\xe9", 1)], r"example 1 .* train \(train\[1:2\]\): .*UTF-8.*0xe9"),
        ([("a", 1), ("b", 1)], "imdb_reviews, split train: .*'pos'"),
        ([], "imdb_reviews: .*train.*empty"),
        ([("a", 0), ("b", 1)], "imdb_reviews, split train: 2 examples"),
    ],
)
def test_bad_classified_texts(mocked, rows, expected):
    mocked("imdb_reviews", {"train": [{"text": text, "label": label} for text, label in rows], "test": []})
    with pytest.raises(InputError, match=expected):
        load_data("tfds:imdb_reviews").split("train")


def test_a_label_that_training_lacks(mocked):
    rows = [{"title": "", "description": f"d{i}", "label": i % 3} for i in range(40)]
    mocked("ag_news_subset", {"train": rows, "test": [*rows[:2], {"description": "x", "label": 3}]})
    expected = r"ag_news_subset, example 2 .* test \(test\[2:3\]\): .*'Sci/Tech'"
    with pytest.raises(InputError, match=expected):
        load_data("tfds:ag_news_subset").split("test")


def test_hidden_labels_of_a_test_split(mocked):
    """As in GLUE. Training does not read them; who asks for them is told."""
    rows = [{"sentence": f"{'good' if i % 2 else 'bad'} text {i}", "label": i % 2, "idx": i} for i in range(8)]
    hidden = [{**row, "label": -1} for row in rows]
    mocked("glue/cola", {"train": rows, "validation": rows, "test": hidden})
    data = load_data("tfds:glue/cola", max_examples=6)
    data.check()
    assert [len(data.split(split)) for split in ("train", "val")] == [6, 8]
    with pytest.raises(InputError, match="glue/cola: .*test.*labels"):
        data.split("test")


@pytest.mark.parametrize("name", ["reviews", "records"])
def test_some_of_the_training_examples(prepared, name):
    spec = f"tfds:{prepared[name]}"
    data = load_data(spec, max_examples=20)
    assert [len(data.split(split)) for split in data.splits] == [18, 2, 5]
    assert {*data.split("train").texts, *data.split("val").texts} == {f"text {i} é" for i in range(20)}
    with pytest.raises(InputError, match="data.max_examples.*sums.*Received: .*=20"):
        load_data("sums", max_examples=20)


def test_the_test_split_is_not_read_for_training(mocked):
    mocked("lm1b", {"train": [{"text": "a"}] * 9 + [{"text": "b"}], "test": [{"text": ""}]})
    data = load_data("tfds:lm1b")
    data.check()
    with pytest.raises(InputError, match="lm1b, example 0 .* test .*: empty"):
        data.split("test")


def test_bad_pairs_and_texts(mocked):
    pairs = [{"de": "", "en": " "}, {"de": "a", "en": "b"}, {"de": "c", "en": " "}]
    mocked("wmt14_translate/de-en", {"train": pairs[:2], "validation": pairs, "test": []})
    data = load_data("tfds:wmt14_translate/de-en")
    assert len(data.split("train")) == 2  # nothing translates to nothing
    with pytest.raises(InputError, match=r"example 2 .* validation .*: en .*blank"):
        data.split("val")
    mocked("lm1b", {"train": [{"text": "a"}, {"text": "\n"}], "test": []})
    with pytest.raises(InputError, match=r"lm1b, example 1 .* train \(train\[1:2\]\): empty"):
        load_data("tfds:lm1b").split("train")


def test_files_that_tfds_cannot_read_one_by_one(mocked, monkeypatch):
    mocked("lm1b", {"train": 3, "test": 3})
    data = load_data("tfds:lm1b")

    def refuse(builder, split):
        raise NotImplementedError("Random access data source ...")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "as_data_source", refuse)
    with pytest.raises(InputError, match="lm1b: .*array_record"):
        data.split("test")


NAMES = (
    ("ag_new_subset", "'ag_new_subset'.*ag_news_subset"),
    ("zzzzzz", "'zzzzzz'.*https://"),
    ("wmt14_translate/en-de", "wmt14_translate 'en-de'.*cs-en, de-en"),
    ("ag_news_subset/plain", "ag_news_subset .*no configuration"),
    ("lm1b:9.9.9", "'lm1b:9.9.9'.*AssertionError: "),
    ("wmt14_translate/de-en:de-fr", r"de \(Text\), en \(Text\).*de-fr"),
    ("imdb_reviews:en-de", "en-de"),
    ("mnist", r"mnist.*image \(Image\), label \(ClassLabel\)"),
    ("ted_multi_translate", r"talk_name \(Text\), translations \(TranslationVariableLanguages\)"),
    ("glue/mnli", "glue.mnli"),
    ("./nowhere", "nowhere: .*dataset_info.json"),
)


def test_names_that_will_not_do(monkeypatch, subtests):
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", lambda *_: pytest.fail("a download"))
    for spec, expected in NAMES:
        with subtests.test(spec), pytest.raises(InputError, match=expected):
            load_data(f"tfds:{spec}")


def test_folders_that_will_not_do(prepared):
    for folder, expected in (
        (prepared["reviews"].parent, "dataset_info.json"),
        (prepared["twice"], r"style \(ClassLabel\), text \(Text\), tone \(ClassLabel\)"),  # two classes
        (prepared["pairs"], "de and en.*:SRC-TGT"),
    ):
        with pytest.raises(InputError, match=expected):
            load_data(f"tfds:{folder}")


def test_a_failing_download_is_announced_and_one_line(monkeypatch, capsys):
    def fail(builder):
        print("Downloading and preparing")
        raise ConnectionError("Failed to resolve 'example.org'\nand so on")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "is_prepared", lambda builder: False)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(InputError) as caught:
        load_data("tfds:lm1b")
    assert re.fullmatch(r"lm1b .*ConnectionError: Failed to resolve 'example.org'.*tfds:DIR\.", str(caught.value))
    output = capsys.readouterr()
    assert output.out == ""
    assert re.match(r"lm1b is not in .*lm1b/1\.\d\.\d .*\nDownloading", output.err)


def test_without_a_network_there_is_an_answer_soon(monkeypatch, tmp_path, capfd):
    """TFDS itself would wait for more than three minutes."""
    waited = []
    backoff = Retry.get_backoff_time

    def fail(*arguments, **options):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(Retry, "get_backoff_time", lambda self: waited.append(backoff(self)) or 0)
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(InputError, match="ag_news_subset .*network"):
        load_data("tfds:ag_news_subset")
    assert 0 < sum(waited) < 5
    assert "Retrying" not in capfd.readouterr().err


def test_a_fault_in_the_code_of_a_dataset_is_not_explained_away(monkeypatch):
    def fail(builder):
        raise TypeError("unforeseen")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "is_prepared", lambda builder: False)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(TypeError, match="unforeseen"):
        load_data("tfds:lm1b")


def test_no_train_split(mocked):
    mocked("lm1b", {"test": 3})
    with pytest.raises(InputError, match="lm1b .*train.*test"):
        load_data("tfds:lm1b")


def test_nothing_is_downloaded_that_will_not_be_used(monkeypatch, tmp_path, capsys, labelled_workdir):
    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", lambda *_: pytest.fail("a download"))
    monkeypatch.setattr(tfds.core.DatasetBuilder, "is_prepared", lambda _: False)
    spec = "tfds:wmt14_translate/de-en:de-en"
    assert train("cnn_classifier", spec, tmp_path / "run") == 2
    assert capsys.readouterr().err == f"error: cnn_classifier is a classifier model; {spec} is seq2seq data.\n"
    assert train("transformer_tiny", spec, labelled_workdir) == 2
    assert "--resume" in capsys.readouterr().err
    assert train("transformer_tiny", spec, labelled_workdir, "--resume") == 2
    assert "self_attention_classifier" in capsys.readouterr().err
    assert run_quietly(main, labelled_workdir, "--data", spec) == 2
    expected = f"error: self_attention_classifier is a classifier model; {spec} is seq2seq data.\n"
    assert capsys.readouterr().err == expected
