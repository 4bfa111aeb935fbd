"""Exports load and answer under the TensorFlow that the newest released server is made of."""

import shutil
import subprocess
import sys
import venv

import pytest

from export.check.compare import check_export

SERVER = ["tensorflow==2.20.0", "tensorflow-text==2.20.1"]


@pytest.fixture
def older_python(tmp_path):
    """The Python of an environment that has that TensorFlow."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *SERVER]
    done = subprocess.run(install, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot install {' '.join(SERVER)}: {done.stderr.strip().splitlines()[-1:]}")
    yield python
    shutil.rmtree(tmp_path / "venv")


@pytest.mark.weekly
def test_a_server_of_tensorflow_220_answers_alike(older_python, request, monkeypatch):
    # In one test: the environment takes a minute and gigabytes to make.
    tasks = ("text", "dates", "labelled", "lines")
    pairs = [[request.getfixturevalue(f"{task}_{what}") for what in ("run", "export")] for task in tasks]
    version = [older_python, "-Ic", "import tensorflow as tf; print(tf.__version__)"]
    assert subprocess.run(version, capture_output=True, text=True).stdout.strip() == "2.20.0"
    monkeypatch.setattr(sys, "executable", str(older_python))
    for run, base in pairs:
        assert check_export(run, base / "1") > 0
