"""The batch pipeline on Beam's local runner, over a small SavedModel."""

import bz2
import gzip
import json
import logging
import pickle
import random
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

logging.disable(logging.WARNING)  # Beam complains about parts of itself that are not installed
try:
    beam = pytest.importorskip("apache_beam")
finally:  # also where the file is skipped: other tests read logs
    logging.disable(logging.NOTSET)

import tensorflow as tf  # noqa: E402
from apache_beam.runners.portability.fn_api_runner.fn_runner import RunnerResult  # noqa: E402

from export import batch  # noqa: E402
from export.batch import pipeline  # noqa: E402
from export.batch.pipeline import BatchSettings, Part, Translate, translate_files  # noqa: E402
from zoo.runtime.cli import run_command  # noqa: E402

pytestmark = pytest.mark.nightly
BAD = b"bad"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a model that shouts and fails on a batch that has the line `bad`."""

    def shout(text):
        check = tf.debugging.assert_equal(tf.reduce_any(text == BAD), False, "no shouting at the bad")
        with tf.control_dependencies([check]):
            upper = tf.strings.upper(text)
        return {
            "text": upper,
            "score": tf.cast(tf.strings.length(text), tf.float32) / 10.0,
            "texts": tf.stack([upper, text], axis=1),
            "everywhere": tf.constant("once"),
        }

    folder = tmp_path_factory.mktemp("shout") / "1"
    strings = tf.TensorSpec([None], tf.string, name="source")
    floats = tf.TensorSpec([None], tf.float32, name="x")
    signatures = {
        "serving_default": tf.function(shout, input_signature=[strings]),
        "twice": tf.function(lambda x: {"x": 2 * x}, input_signature=[floats]),
    }
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    return str(folder)


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def run(tmp_path, model, names, finished=(), **settings):
    """Runs the pipeline with small parts over files of `tmp_path/in`; returns the files it wrote by name."""
    settings = BatchSettings(model, **{"batch_size": 3, "file_lines": 14, **settings})
    with beam.Pipeline("DirectRunner") as steps:
        translate_files(
            steps, [(str(tmp_path / "in" / name), name) for name in names], str(tmp_path / "out"), settings, finished
        )
    return {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in sorted((tmp_path / "out").rglob("*"))
        if path.is_file()
    }


def test_line_n_belongs_to_line_n(tmp_path, model):
    lines = [b"line %d %s" % (number, b"x" * (number * 37 % 11)) for number in range(45)]
    files = {
        "long.txt": b"\n".join(lines) + b"\n",
        "empty.txt": b"",
        "sub/folder.txt": b"ein\r\n\nma\xc3\x9f\xe2\x80\xa8x\n\xff\nlast",
        "packed.txt.gz": gzip.compress(b"packed\n"),
    }
    write(tmp_path / "in", files)
    written = run(tmp_path, model, files)
    parts = [written.pop(f"long.txt.{number:05d}") for number in range(4)]
    assert [part.count(b"\n") for part in parts] == [14, 14, 14, 3]
    assert b"".join(parts) == files["long.txt"].upper()
    assert written == {
        "empty.txt.00000": b"",
        "sub/folder.txt.00000": b"EIN\n\nMA\xc3\x9f\xe2\x80\xa8X\n\xff\nLAST\n",
        "packed.txt.gz.00000": b"PACKED\n",
    }


def test_lines_that_fail_are_listed_and_the_others_are_not_lost(tmp_path, model):
    lines = [b"line %d" % number for number in range(20)]
    lines[0] = lines[9] = lines[10] = BAD
    write(tmp_path / "in", {"a.txt": b"\n".join(lines)})
    written = run(tmp_path, model, ["a.txt"])
    expected = [b"" if line == BAD else line.upper() for line in lines]
    assert (written["a.txt.00000"] + written["a.txt.00001"]).split(b"\n")[:-1] == expected
    letters = [json.loads(line) for line in written["failed-a.txt.00000.jsonl"].splitlines()]
    assert "failed-a.txt.00001.jsonl" not in written
    assert [letter["line"] for letter in letters] == [1, 10, 11]
    assert {letter["file"] for letter in letters} == {str(tmp_path / "in/a.txt")}
    assert all(letter["text"] == "bad" and "no shouting at the bad" in letter["error"] for letter in letters)


def test_batches_are_of_like_length_and_full(tmp_path):
    texts = [b"x" * (number * 5 % 13) for number in range(13)]
    asked = []
    step = Translate(str(tmp_path), BatchSettings("unused", batch_size=4))
    step._infer = lambda batch: asked.append([len(text) for text in batch]) or {"text": [b"a\nb\r\n"] * len(batch)}
    (path,) = step.process(Part("in", "out", 0, 1, texts))
    assert sorted(asked, reverse=True) == [[12, 11, 10, 9], [8, 7, 6, 5], [4, 3, 2, 1], [0]]
    assert Path(path).read_bytes() == b"a b\n" * 13, "an answer stays one line"


def test_each_core_has_a_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "available_cores", lambda: 3)
    together = threading.Barrier(3, timeout=60)
    step = Translate(str(tmp_path), BatchSettings("unused", batch_size=2))

    def shout(batch):
        together.wait()
        return {"text": [text.upper() for text in batch]}

    step._infer = shout
    (path,) = step.process(Part("in", "out", 0, 1, [b"a", b"bcdef", b"ghi", b"jk", b"lmno", b""]))
    assert Path(path).read_bytes() == b"A\nBCDEF\nGHI\nJK\nLMNO\n\n"


def test_a_worker_holds_one_model(model):
    step = Translate("unused", BatchSettings(model))
    steps = [pickle.loads(pickle.dumps(step)) for _ in range(2)]
    for step in steps:
        step.setup()
    assert steps[0]._infer is steps[1]._infer


def command(capsys, *arguments):
    """Runs the command in this process; returns its status, output and errors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["export.batch", *arguments])
        patch.setattr(batch.cli, "run_process", run_command)  # This process goes on, and listens to signals.
        status = batch.command()
    output = capsys.readouterr()
    return status, output.out, output.err


def test_the_command(tmp_path, model, capsys):
    write(tmp_path, {"in1.txt": b"ein\nbad\n", "more/in2.txt": b"zwei\n"})
    inputs = ["--input", str(tmp_path / "in*.txt"), str(tmp_path / "more/*")]
    arguments = [f"--model_path={model}", *inputs, f"--output={tmp_path / 'out'}"]
    status, output, errors = command(capsys, *arguments, "--runner=DirectRunner")
    assert (status, errors) == (1, f"error: 1 of 3 lines failed; see {tmp_path / 'out'}/failed-*.jsonl.\n")
    assert json.loads(output) == {"output": str(tmp_path / "out"), "lines": 3, "failed": 1, "kept": 0}
    assert (tmp_path / "out/in1.txt.00000").read_bytes() == b"EIN\n\n"
    assert (tmp_path / "out/more/in2.txt.00000").read_bytes() == b"ZWEI\n"
    assert len((tmp_path / "out/failed-in1.txt.00000.jsonl").read_text().splitlines()) == 1


def test_a_folder_of_something_else_is_refused(tmp_path, model, capsys):
    write(tmp_path, {"in.txt": b"ein\n", "out/in.txt.00000": b"mine"})
    arguments = [f"--model_path={model}", f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out'}"]
    status, _, errors = command(capsys, *arguments)
    expected = f"error: {tmp_path / 'out'} is not empty; nothing is overwritten. Use another --output.\n"
    assert (status, errors) == (2, expected)


def test_the_same_command_goes_on_with_what_is_not_finished(tmp_path, model, capsys, monkeypatch):
    write(tmp_path, {"a.txt": b"ein\nzwei\nbad\nvier\nbad", "sub/b.txt": b"sechs\n"})
    inputs = ["--input", str(tmp_path / "a.txt"), str(tmp_path / "sub/*")]
    arguments = [f"--model_path={model}", *inputs, f"--output={tmp_path / 'out'}", "--file_lines=2"]

    def killed_at_the_third_line(self, texts, answer=Translate._answers):
        if texts[0] == BAD:
            raise SystemExit("killed")
        return answer(self, texts)

    with monkeypatch.context() as patch, pytest.raises(BaseException, match="killed"):
        patch.setattr(Translate, "_answers", killed_at_the_third_line)
        command(capsys, *arguments)
    first = tmp_path / "out/a.txt.00000"
    first.write_bytes(b"not to be written again\n")
    (tmp_path / "out/.a.txt.00001.0.unfinished").write_bytes(b"half")
    status, output, errors = command(capsys, *arguments)
    assert status == 1 and errors.startswith("error: 2 of ") and " lines of earlier runs; " in errors
    counts = json.loads(output)
    assert counts["lines"] + counts["kept"] == 6 and counts["kept"] >= 2
    assert first.read_bytes() == b"not to be written again\n"
    assert (tmp_path / "out/a.txt.00001").read_bytes() == b"\nVIER\n"
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    parts = {"a.txt.00000", "a.txt.00001", "a.txt.00002", "sub/b.txt.00000"}
    assert names == {"batch.json", "failed-a.txt.00001.jsonl", "failed-a.txt.00002.jsonl", *parts}
    status, output, _ = command(capsys, *arguments)
    assert (status, json.loads(output)["kept"]) == (1, 6)  # what failed before is not forgotten
    (tmp_path / "a.txt").write_bytes(b"other\n")
    status, _, errors = command(capsys, *arguments)
    assert (status, errors) == (
        2,
        f"error: {tmp_path / 'out'} belongs to a run with other inputs. Use another --output.\n",
    )


def test_the_command_succeeds_if_every_line_does(tmp_path, model, capsys):
    write(tmp_path, {"in.txt": b"ein\nzwei\n"})
    arguments = [f"--model_path={model}", f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out'}"]
    status, output, errors = command(capsys, *arguments)
    assert (status, json.loads(output)["failed"], errors) == (0, 0, "")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"batch.json", "in.txt.00000"}


def test_the_command_fails_if_every_line_does(tmp_path, model, capsys):
    write(tmp_path, {"in.txt": b"bad\n" * 5})
    arguments = [f"--model_path={model}", f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out'}"]
    status, output, errors = command(capsys, *arguments)
    assert status == 1 and errors.startswith("error: 5 of 5 lines failed;") and errors.count("\n") == 1
    assert json.loads(output) == {"output": str(tmp_path / "out"), "lines": 5, "failed": 5, "kept": 0}
    assert len((tmp_path / "out/failed-in.txt.00000.jsonl").read_text().splitlines()) == 5


def test_a_runner_that_does_not_count(tmp_path, model, capsys, monkeypatch):
    monkeypatch.setattr(RunnerResult, "metrics", _not_counted)
    write(tmp_path, {"in.txt": b"ein\nbad\n"})
    arguments = [f"--model_path={model}", f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out'}"]
    status, output, errors = command(capsys, *arguments)
    assert (status, errors) == (1, f"error: Lines failed; see {tmp_path / 'out'}/failed-*.jsonl.\n")
    assert json.loads(output) == {"output": str(tmp_path / "out"), "lines": None, "failed": None, "kept": None}


def _not_counted(self):
    raise NotImplementedError


@pytest.fixture
def largest_file():
    """Returns a function that limits the size of files, in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("line", "file"), [(b"ein\n", "in.txt.00000"), (b"bad\n", "failed-in.txt.00000.jsonl"), (b"", "batch.json")]
)
def test_a_full_disk(tmp_path, model, capsys, caplog, largest_file, line, file):
    """Answers that do not fit, failures that do not, and what a run has to know when it goes on."""
    write(tmp_path, {"in.txt": line * 900})
    arguments = [f"--model_path={model}", f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out'}"]
    largest_file(1000 if line else 100)
    status, output, errors = command(capsys, *arguments)
    assert (status, output, errors.count("\n"), caplog.records) == (1, "", 1, [])
    assert errors.startswith(f"error: {tmp_path}/out/{file}: a file exceeds the maximum size")
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == ({"batch.json"} if line else set()), "nothing that is not whole"


@pytest.mark.parametrize("name", ["in.txt.gz", "in.txt.bz2"])
@pytest.mark.parametrize("damage", ["cut", "other"])
def test_a_damaged_packed_file(tmp_path, model, capsys, caplog, name, damage):
    packed = (gzip if name.endswith("gz") else bz2).compress(random.Random(0).randbytes(9999).hex().encode())
    write(tmp_path, {name: packed[:-20] if damage == "cut" else b"no such thing"})
    arguments = [f"--model_path={model}", f"--input={tmp_path / name}", f"--output={tmp_path / 'out'}"]
    status, output, errors = command(capsys, *arguments)
    assert (status, output, errors.count("\n"), caplog.records) == (1, "", 1, [])
    assert errors.startswith(f"error: {tmp_path / name}: ")


def test_other_errors_end_the_run():
    step = Translate("unused", BatchSettings("unused"))
    step._infer = lambda batch: {"text": 1 / 0}
    with pytest.raises(ZeroDivisionError):
        list(step.process(Part("in", "out", 0, 1, [b"a"])))


def test_all_outputs_as_json(tmp_path, model):
    write(tmp_path / "in", {"a.txt": "ä\nxyz\n".encode()})
    written = run(tmp_path, model, ["a.txt"], output_name=None)
    assert [json.loads(line) for line in written["a.txt.00000"].splitlines()] == [
        {"everywhere": "once", "score": 0.2, "text": "ä", "texts": ["ä", "ä"]},
        {"everywhere": "once", "score": 0.3, "text": "XYZ", "texts": ["XYZ", "xyz"]},
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model_path=nowhere"], "nowhere is not a version of a SavedModel: nowhere/saved_model.pb is missing."),
        (["--input=nowhere/*.txt"], "--input nowhere/*.txt matches no file."),
        (["--signature=serving_defualt"], "Unknown signature 'serving_defualt'. Did you mean serving_default?"),
        (["--signature=twice"], "One input of strings is expected; the signature twice takes ['x']."),
        (["--output_name=txt"], "Unknown output 'txt'. Did you mean"),
        (["--output_name=texts"], "The output texts is not one string per text; use --json for such outputs."),
        (["--output_name=score"], "The output score is not one string per text"),
        (["--runner=NoSuchRunner"], "Apache Beam rejects its flags: Unexpected pipeline runner: NoSuchRunner."),
        (["--runner=no.such.Runner"], "Apache Beam rejects its flags: No module named 'no'"),
        (["--direct_num_workers=x"], "Apache Beam rejects its flags: argument --direct_num_workers: invalid int value"),
        (["--output=nosuch://x"], "--output nosuch://x cannot be created: Unable to get filesystem"),
    ],
)
def test_errors_are_one_line(tmp_path, model, capsys, arguments, message):
    write(tmp_path, {"in.txt": b"a\n"})
    defaults = [f"--model_path={model}", f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out'}"]
    status, output, errors = command(capsys, *defaults, *arguments)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"error: {message}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "message"), [("in.txt", "is a file"), ("in.txt/below", "cannot be created")])
def test_an_output_where_no_folder_can_be(tmp_path, model, capsys, name, message):
    write(tmp_path, {"in.txt": b"a\n"})
    arguments = [f"--model_path={model}", f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / name}"]
    status, output, errors = command(capsys, *arguments)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"error: --output {tmp_path / name} {message}")


def test_two_worker_processes(tmp_path, model):
    """What workers get over the wire is enough for them."""
    lines = [b"line %d\n" % number for number in range(2500)]
    write(tmp_path, {"a.txt": b"".join(lines), "b.txt": b"b\n"})
    flags = [f"--model_path={model}", f"--input={tmp_path / '*.txt'}", f"--output={tmp_path / 'out'}"]
    flags += ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    root = Path(batch.__file__).parents[2]
    result = subprocess.run([sys.executable, "-m", "export.batch", *flags], cwd=root, capture_output=True, check=True)
    assert json.loads(result.stdout.splitlines()[-1])["lines"] == 2501
    assert (tmp_path / "out/a.txt.00000").read_bytes() == b"".join(lines).upper()


def test_an_exported_model(tmp_path, text_export, text_run, text_spec):
    from training.data import load_data

    source = load_data(text_spec).split("test").source
    write(tmp_path / "in", {"a.txt": "".join(line + "\n" for line in source).encode()})
    written = run(tmp_path, str(text_export / "1"), ["a.txt"], batch_size=16, file_lines=100)
    assert b"".join(written.values()).decode().splitlines() == text_run.translate(source)
