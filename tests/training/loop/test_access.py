"""The lock of a work directory: one process trains into it, and lets go of it however it ends."""

import errno
import signal
import subprocess
import sys

import pytest
from support.tiny_runs import CLASSIFIER, train

from training.loop.access import locked
from zoo.errors import InputError
from zoo.runtime import locks
from zoo.workdir import WorkDir

HOLD = """
import sys, time
from pathlib import Path
from zoo.runtime.locks import exclusive  # as `locked` takes it, without the imports of a training

folder = Path(sys.argv[1])
folder.mkdir()
with exclusive(folder / ".lock", "busy"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_directory_in_use_is_refused_until_the_process_is_killed(labelled_spec, tmp_path, capsys):
    workdir = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(workdir)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        assert train("cnn_classifier", labelled_spec, workdir, "--set", *CLASSIFIER[1:]) == 2
        error = f"error: Another process is training into {workdir}. Wait until it ends, or end it.\n"
        assert capsys.readouterr().err == error
        assert [path.name for path in workdir.iterdir()] == [".lock"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    with locked(WorkDir(workdir)):
        pass


def test_it_ends_with_the_block(tmp_path):
    workdir = WorkDir(tmp_path / "run")
    with pytest.raises(KeyError), locked(workdir):
        with pytest.raises(InputError, match="[Aa]nother process"):
            locked(workdir).__enter__()
        raise KeyError
    with locked(workdir):
        pass


def test_a_file_where_a_folder_belongs_is_named(labelled_spec, tmp_path, capsys):
    for name in ("checkpoints", "tokenizers", "tb"):
        workdir = tmp_path / f"run with {name}"
        workdir.mkdir()
        (workdir / name).write_text("in the way")
        assert train("cnn_classifier", labelled_spec, workdir, "--set", *CLASSIFIER[1:]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {workdir / name} is a file") and error.count("\n") == 1
        assert (workdir / name).read_text() == "in the way"


def test_without_locks_there_is_no_protection(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(locks.fcntl, "flock", refuse)
        with locked(WorkDir(tmp_path)):
            pass
    monkeypatch.setattr(locks, "fcntl", None)
    with locked(WorkDir(tmp_path)), locked(WorkDir(tmp_path)):
        pass
