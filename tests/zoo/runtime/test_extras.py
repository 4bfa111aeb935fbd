"""A command whose extra is not installed says so in one line, whichever import comes first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.runtime import extras
from zoo.runtime.extras import EXTRAS, install_command, missing_extra

ROOT = Path(__file__).resolve().parents[3]

# As `sitecustomize`, makes modules as absent as where they are not installed.
NOT_INSTALLED = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


@pytest.fixture
def run_without(tmp_path):
    """Runs a command where the modules of an extra are not installed."""

    def run(extra, command, *arguments):
        (tmp_path / "sitecustomize.py").write_text(NOT_INSTALLED.format(missing=EXTRAS[extra]), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
        words = [sys.executable, "-m", command, *map(str, arguments)]
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    return run


@pytest.mark.parametrize(
    ("extra", "command", "arguments"),
    [
        ("train", "training.train", "--model transformer_tiny --data dates --workdir"),
        ("serve", "export.serve", "--model_name m --model_base_path"),
        pytest.param("serve", "export.client", "--model m text --server", marks=pytest.mark.nightly),
        pytest.param("beam", "export.batch", "--model_path m/1 --input in.txt --output", marks=pytest.mark.nightly),
    ],
)
def test_a_missing_extra_is_named_in_one_line(run_without, extra, command, arguments):
    done = run_without(extra, command, *arguments.split(), "folder")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and f"pip install -e '{ROOT}[{extra}]'" in done.stderr


def test_a_missing_backend_is_named_in_one_line(run_without):
    arguments = "--model transformer_tiny --data dates --workdir run".split()
    done = run_without("tensorflow", "training.train", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and "KERAS_BACKEND" in done.stderr
    assert f"pip install -e '{ROOT}[tensorflow]'" in done.stderr


@pytest.mark.nightly
def test_an_export_without_tensorflow_is_refused_in_one_line(run_without):
    done = run_without("tensorflow", "export.saved_model", "preset:dates_rnnsearch", "--output", "exported")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and f"pip install -e '{ROOT}[tensorflow]'" in done.stderr


def test_other_missing_modules_are_faults():
    assert missing_extra(ModuleNotFoundError("No module named 'zoo.nothing'", name="zoo.nothing")) is None


def test_what_was_hidden_on_purpose_is_a_fault(monkeypatch):
    error = ModuleNotFoundError("import of jax halted; None in sys.modules", name="jax")
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert install_command("jax") in str(missing_extra(error))
    monkeypatch.setitem(sys.modules, "jax", None)
    assert missing_extra(error) is None


def test_an_extra_is_installed_from_where_the_code_is(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert install_command("jax") == "pip install -e '.[jax]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("jax") == f"pip install -e '{ROOT}[jax]'"
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "zoo" / "extras.py"))
    assert install_command("jax") == "pip install 'attention-zoo[jax]'"
