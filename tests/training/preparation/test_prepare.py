"""Token shards: what they hold, whoever makes them, and what bad input and damage are answered with."""

import fcntl
import gzip
import json
import random
import re

import keras
import numpy as np
import pytest
import zstandard
from support.tiers import nightly_unless
from support.tiny_runs import run_quietly, write_labelled, write_lines, write_text

from training.config.resolve import resolve
from training.config.run_config import RunConfig
from training.data import load_data
from training.data.shards.manifest import Manifest
from training.preparation import run, shard_job
from training.preparation.duplicates import digests_path, make_digests, mark_duplicates
from training.preparation.sample import Sample
from training.preparation.shard_job import Job
from training.prepare import main
from training.tasks import get_task


def prepare(spec, output, *arguments):
    return run_quietly(main, "--data", spec, "--output", output, "--workers", 1, *arguments)


def files_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def batches_of(config: RunConfig, data, split, **options):
    task = get_task(data.task)
    settings = task.settle(config.data, data)
    tokenizers = data.shards.tokenizers() if data.shards else task.make_tokenizers(settings, data)
    return task.batches(settings, data, split, tokenizers, batch_tokens=128, static_shapes=False, **options)


KINDS = {
    "text": (write_text, "transformer_tiny", ("data.vocab_size=120",)),
    "tsv": (write_labelled, "self_attention_classifier", ()),
    "lines": (write_lines, "causal_lm_tiny", ()),
    "lines_subword": (write_lines, "causal_lm_tiny", ("data.tokenizer=subword", "data.vocab_size=40")),
    "sums": (lambda folder: "sums", "causal_lm_tiny", ()),
}


@pytest.mark.parametrize("kind", nightly_unless(lambda kind: kind != "sums", KINDS))
def test_what_is_prepared_is_what_would_be_read(tmp_path, kind):
    """The same tokenizers, validation batches bit for bit, and in training the same examples."""
    make, model, settings = KINDS[kind]
    spec = make(tmp_path / "data")
    assert prepare(spec, tmp_path / "out", "--shards", 3, *(["--set", *settings] if settings else [])) == 0
    prepared = f"prepared:{tmp_path / 'out'}"
    ours, theirs = load_data(prepared), load_data(spec)
    assert ours.task == theirs.task and ours.splits == theirs.splits
    configs = resolve(model, prepared), resolve(model, spec, settings)
    assert configs[0].data.vocab_size == configs[1].data.vocab_size
    for split in ("val", "test"):
        assert ours.split(split) == theirs.split(split)
        left, right = (batches_of(config, data, split) for config, data in zip(configs, (ours, theirs), strict=True))
        assert len(left) == len(right)
        for number in range(len(left)):
            keras.tree.map_structure(np.testing.assert_array_equal, left[number], right[number])
    options = {"steps": 400, "seed": 3}
    left, right = (
        batches_of(config, data, "train", **options) for config, data in zip(configs, (ours, theirs), strict=True)
    )
    if kind.startswith("lines"):  # windows of the same stream
        keras.tree.map_structure(np.testing.assert_array_equal, left[7], right[7])
        return
    epochs = [[b.batch_of(step)[0] for step in range(b.pass_length())] for b in (left, right)]
    assert rows_of(epochs[0]) == rows_of(epochs[1])


def rows_of(batches):
    rows = []
    for inputs, outputs, _ in batches:
        columns = [*inputs.values(), outputs if outputs.ndim == 2 else outputs[:, None] + 1]
        rows += [tuple(tuple(part[part > 0]) for part in row) for row in zip(*columns, strict=True)]
    return sorted(rows)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_packed_text_gives_the_same(tmp_path, suffix):
    spec = write_text(tmp_path / "text")
    assert prepare(spec, tmp_path / "plain", "--set", "data.vocab_size=120") == 0
    pack = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    for path in list((tmp_path / "text").iterdir()):
        data = path.read_bytes()
        path.with_name(path.name + suffix).write_bytes(pack(data[:99]) + pack(data[99:]))  # two frames
        path.unlink()
    assert load_data(spec).split("train").source
    assert prepare(spec, tmp_path / "packed", "--set", "data.vocab_size=120") == 0
    assert files_of(tmp_path / "plain") == files_of(tmp_path / "packed")
    path = tmp_path / f"text/train.en{suffix}"
    path.write_bytes(path.read_bytes()[:-7])
    assert prepare(spec, tmp_path / "again") == 2


def test_a_filter_keeps_what_is_just_allowed(tmp_path):
    """Lengths count the end; of a ratio either side may be the longer one."""
    (tmp_path / "text").mkdir()
    kept = [("abc", "abc"), ("abcd", "abcd"), ("a", "abc"), ("abc", "a")]
    pairs = [*kept, ("abcde", "abc"), ("a", "abcd"), ("abcd", "a")]
    for split in ("train", "val", "test"):
        for side, language in enumerate(("x", "y")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"text/{split}.{language}").write_text(text)
    options = "--max_tokens 5 --max_ratio 2 --keep_texts --set data.tokenizer=chars".split()
    assert prepare(f"text:{tmp_path}/text:x-y", tmp_path / "out", *options) == 0
    found = load_data(f"prepared:{tmp_path / 'out'}").split("train")
    assert list(zip(found.source, found.target, strict=True)) == kept


def test_filters(tmp_path, capsys):
    spec = write_text(tmp_path / "text")
    lines = [b"", b" ", b"a horse .", b"a horse .", b"a\xff", b"a horse . " * 60, b"ok"]
    others = [
        b"",
        b"Haus",
        b"ein Pferd .",
        b"ein Pferd .",
        b"b",
        b"ein Pferd . " * 60,
        b"das alte Buch und das alte Buch und das Buch",
    ]
    for language, extra in (("en", lines), ("de", others)):
        path = tmp_path / f"text/train.{language}"
        path.write_bytes(path.read_bytes() + b"\r\n".join(extra))
    options = "--set data.vocab_size=140 --invalid skip --empty drop --duplicates drop --max_symbols 100".split()
    assert prepare(spec, tmp_path / "out", *options, "--max_ratio", 3, "--keep_texts") == 0
    manifest = Manifest.read(tmp_path / "out")
    entry = manifest.splits["train"]
    pairs = load_data(f"prepared:{tmp_path / 'out'}").split("train")
    assert len(set(zip(pairs.source, pairs.target, strict=True))) == len(pairs) == entry.examples
    assert manifest.request["options"]["max_symbols"] == 100  # the name in files of every version
    assert entry.read == 307 and entry.examples + sum(entry.dropped.values()) == 307
    assert entry.dropped["empty"] == 2 and entry.dropped["invalid UTF-8"] == 1 and entry.dropped["duplicate"] > 0
    assert entry.dropped["more tokens than max_tokens"] == 1 and entry.dropped["ratio of lengths above max_ratio"] == 1
    skipped = (tmp_path / "out/skipped.txt").read_text()
    assert skipped == f"{tmp_path}/text/train.en:305: invalid UTF-8 (byte 0xff). Convert the file to UTF-8.\n"
    assert json.loads(capsys.readouterr().out)["train"]["dropped"] == entry.dropped


BAD_ARGUMENTS = (
    (["--set", "data.max_length=5"], "data.max_length is a setting of training; ids depend on data.tokenizer"),
    (["--set", "model.units=5"], "model.units is a setting of training"),
    (["--set", "data.vocab_sise=5"], "vocab_sise"),
    (["--shards", "-1"], "--shards"),
    (["--min_symbols", "0"], "--min_tokens"),
    (["--duplicates", "maybe"], "keep or drop"),
    (["--direct_num_workers=2"], "unrecognized arguments"),
    (["--min_tokens", "2000000"], "train: all 300 examples are left out by the options"),
)


def test_bad_arguments(tmp_path, capsys, subtests):
    spec = write_text(tmp_path / "text")
    for arguments, message in BAD_ARGUMENTS:
        with subtests.test(message):
            assert prepare(spec, tmp_path / "out", "--set", "data.vocab_size=120", *arguments) == 2
            assert message in capsys.readouterr().err.splitlines()[-1]


BAD_TEXT = (
    (lambda lines: lines[:-1], "train.de:300: no counterpart in {}/train.en: unequal line counts, 299 in"),
    (lambda lines: [*lines[:4], b"\n", *lines[5:]], "train.en:5: blank line, but train.de has text there"),
    (lambda lines: [*lines[:4], b"\xc3\n", *lines[5:]], "train.en:5: invalid UTF-8 (byte 0xc3)"),
    (lambda lines: [], "train.en:1: empty file"),
)


def test_bad_text(tmp_path, capsys, subtests):
    for number, (change, message) in enumerate(BAD_TEXT):
        with subtests.test(message):
            folder = tmp_path / str(number)
            spec, path = write_text(folder), folder / "train.en"
            path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
            assert prepare(spec, tmp_path / f"{number} out", "--set", "data.vocab_size=120") == 2
            assert message.format(folder) in capsys.readouterr().err.splitlines()[-1]


NO_USE = (
    ("sums", ["--max_ratio", "2"], "--max_ratio compares the sides of pairs"),
    ("sums", ["--invalid", "skip"], "--invalid skip is for text: and lines:"),
    ("sums", ["--empty", "drop"], "--empty drop is for text:"),
    ("senses", ["--max_tokens", "9"], "consists of parts"),
    ("none", [], "Unknown data SPEC"),
)


def test_options_that_data_have_no_use_for(tmp_path, capsys, subtests):
    for spec, arguments, message in NO_USE:
        with subtests.test(message):
            assert prepare(spec, tmp_path / "out", *arguments) == 2
            assert message in capsys.readouterr().err.splitlines()[-1]


def test_running_text_stays_whole(tmp_path, capsys):
    assert prepare(write_lines(tmp_path / "lines"), tmp_path / "out", "--duplicates", "drop") == 2
    assert "one continuous text" in capsys.readouterr().err


def test_an_interrupted_preparation_goes_on(tmp_path, monkeypatch, capsys):
    spec, options = write_text(tmp_path / "text"), ("--shards", 5, "--set", "data.vocab_size=120")
    assert prepare(spec, tmp_path / "whole", *options) == 0
    made = []

    def stop_after_two(job):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(job.number)
        shard_job.make_shard(job)

    with monkeypatch.context() as patch:
        patch.setattr(run, "make_shard", stop_after_two)
        assert prepare(spec, tmp_path / "out", *options) == 130
    assert not (tmp_path / "out/manifest.json").exists()
    assert run_quietly(main, "--data", "sums", "--output", tmp_path / "out") == 2
    assert "unfinished preparation" in capsys.readouterr().err
    (tmp_path / "out/.tmp-1-left").touch()
    (tmp_path / "out/train-00001.shard").write_bytes(b"cut off")
    monkeypatch.setattr(run, "make_shard", lambda job: (made.append(job.number), shard_job.make_shard(job)))
    assert prepare(spec, tmp_path / "out", *options) == 0
    assert made == [0, 1, 1, 2, 3, 4, 0, 0], "all but what was complete; then val and test"
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert prepare(spec, tmp_path / "out", *options) == 0
    assert "is already prepared" in capsys.readouterr().err
    assert prepare(spec, tmp_path / "out", *options, "--seed", 3) == 2
    assert "--seed was 0 and is 3" in capsys.readouterr().err


def test_a_second_one_at_work_is_refused(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    with (tmp_path / "out/.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert prepare("sums", tmp_path / "out") == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: Another process is preparing data in {tmp_path}/out. Wait until it ends, or end it."
    ]


def test_a_folder_of_something_else(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/letter.txt").touch()
    assert prepare("sums", tmp_path / "out") == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.nightly
def test_any_number_of_workers_gives_the_same(tmp_path):
    spec, options = write_text(tmp_path / "text"), ("--shards", 7, "--set", "data.vocab_size=120")
    assert prepare(spec, tmp_path / "one", *options) == 0
    for workers in (2, 3):
        output = tmp_path / str(workers)
        assert run_quietly(main, "--data", spec, "--output", output, *options, "--workers", workers) == 0
        assert files_of(output) == files_of(tmp_path / "one")


def test_damage_is_named_on_use(tmp_path):
    assert prepare(write_text(tmp_path / "text"), tmp_path / "out", "--set", "data.vocab_size=120") == 0
    shard = tmp_path / "out/train-00000.shard"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    loaded = load_data(f"prepared:{tmp_path / 'out'}")
    with pytest.raises(ValueError, match=re.escape(f"{shard} is damaged: its SHA-256 sum differs")):
        loaded.shards.columns("train")
    with pytest.raises(ValueError, match="ids"):
        loaded.split("train").source[0]
    with pytest.raises(ValueError, match=r"data.vocab_size=120. Received: data.vocab_size=9"):
        resolve("transformer_tiny", loaded.spec, ["data.vocab_size=9"])
    manifest = tmp_path / "out/manifest.json"
    manifest.write_text(manifest.read_text().replace('"task"', '"tusk"'))
    with pytest.raises(ValueError, match=re.escape(f"{manifest} is damaged")):
        load_data(f"prepared:{tmp_path / 'out'}")
    with pytest.raises(ValueError, match="shards"):
        load_data(f"prepared:{tmp_path}")


def test_duplicates_are_found_in_parts(tmp_path):
    folder = tmp_path / "out"
    lines = [f"{number % 37}" for number in range(503)]
    random.Random(0).shuffle(lines)
    (tmp_path / "data").mkdir()
    for split in ("train", "val", "test"):
        for language in ("a", "b"):
            (tmp_path / f"data/{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    kept = run.make_shard
    run_make = pytest.MonkeyPatch()
    run_make.setattr(run, "make_shard", lambda job: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        prepare(f"text:{tmp_path}/data:a-b", folder, "--set", "data.tokenizer=chars")
    finally:
        run_make.undo()
    assert run.make_shard is kept
    jobs = [Job(str(folder), "train", number, *ends) for number, ends in enumerate(((0, 211), (211, 503)))]
    for job in jobs:
        make_digests(job)
        assert digests_path(job).stat().st_size == 16 * (job.end - job.first)
    assert mark_duplicates(folder, jobs, at_a_time=100) == 503 - 37
    repeated = np.fromfile(folder / ".work/train.duplicates", np.uint8)
    first = [lines.index(line) == number for number, line in enumerate(lines)]
    assert (repeated == 0).tolist() == first


def test_a_sample_is_uniform_and_in_order():
    def draw(seed):
        sample = Sample(5, seed)
        for first in range(0, 20, 4):
            sample.add(4, lambda index, first=first: (str(first + index),))
        return [int(text) for (text,) in sample.texts()]

    drawn = [draw(seed) for seed in range(800)]
    assert all(len(each) == 5 and each == sorted(each) for each in drawn)
    found = np.bincount(np.concatenate(drawn), minlength=20)
    assert ((found - 200) ** 2 / 200).sum() < 43.8  # χ², 19 degrees of freedom, p = 0.001
