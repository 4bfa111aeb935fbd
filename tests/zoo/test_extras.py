"""A command whose extra is not installed says so in one line, whichever import comes first."""

import subprocess
import sys
from pathlib import Path

import pytest

from zoo.extras import EXTRAS, missing_extra

ROOT = Path(__file__).resolve().parents[2]

# Runs a command as it runs where some modules are not installed.
WITHOUT = """
import runpy, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
sys.argv[1:] = {arguments!r}
runpy.run_module({command!r}, run_name="__main__", alter_sys=True)
"""


def run_without(missing, command, *arguments):
    program = WITHOUT.format(missing=set(missing), command=command, arguments=[str(word) for word in arguments])
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("extra", "command", "arguments"),
    [
        ("train", "training.train", "--model transformer_tiny --data dates --workdir"),
        ("beam", "export.batch", "--model_path m/1 --input in.txt --output"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(tmp_path, extra, command, arguments):
    done = run_without(EXTRAS[extra], command, *arguments.split(), tmp_path / "folder")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and f"pip install 'attention-zoo[{extra}]'" in done.stderr


def test_a_missing_backend_is_named_in_one_line(tmp_path):
    arguments = ["--model", "transformer_tiny", "--data", "dates", "--workdir", tmp_path / "run"]
    done = run_without(EXTRAS["tensorflow"], "training.train", *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        "error: The backend of Keras, tensorflow, is not installed: pip install 'attention-zoo[tensorflow]', or set "
        "KERAS_BACKEND to the one that is (tensorflow, jax or torch).\n"
    )


def test_an_export_without_tensorflow_is_refused_in_one_line(tmp_path):
    done = run_without(EXTRAS["tensorflow"], "export.saved_model", "preset:dates_rnnsearch", "--output", tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and "pip install 'attention-zoo[tensorflow]'" in done.stderr


def test_other_missing_modules_are_faults():
    assert missing_extra(ModuleNotFoundError("No module named 'zoo.nothing'", name="zoo.nothing")) is None


def test_what_was_hidden_on_purpose_is_a_fault(monkeypatch):
    error = ModuleNotFoundError("import of jax halted; None in sys.modules", name="jax")
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert "attention-zoo[jax]" in str(missing_extra(error))
    monkeypatch.setitem(sys.modules, "jax", None)
    assert missing_extra(error) is None
