"""What CONTRIBUTING.md shows: its files and commands work as they are written, and entry points do as it says."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.tiny_runs import write_labelled

import training.data.registry
import zoo
import zoo.registry
from training.data import load_data

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE))
COMMANDS = re.findall(r"^python -m (.+)$", TEXT, flags=re.MULTILINE)
(ENTRY_POINTS,) = re.findall(r"^```toml\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)

# Runs commands one after another in one process, which starts TensorFlow once.
RUN = """
import runpy, shlex, sys
for command in {commands!r}:
    module, *sys.argv[1:] = shlex.split(command)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            sys.exit(f"{{command}}: {{end.code}}")
"""
ASK = """
import json, tensorflow as tf, tensorflow_text
model = tf.saved_model.load("exported/reviews/1")
answer = model.signatures["confidence"](text=tf.constant(["the old horse sees girl"]))
print(json.dumps({name: tensor.numpy().astype(str).tolist() for name, tensor in answer.items()}))
"""


def run_python(folder, program):
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def written(tmp_path):
    """A folder with the files of the document, and data for them."""
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    write_labelled(tmp_path / "reviews")
    for path in (tmp_path / "reviews").glob("*.tsv"):
        rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
        lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in rows]
        path.with_suffix(".jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path


@pytest.mark.nightly
def test_the_examples_of_the_five_questions_run(written):
    assert {*FILES} == {"my_data.py", "my_model.py", "my_loss.py", "my_signature.py"} and len(COMMANDS) == 3
    done = run_python(written, RUN.format(commands=COMMANDS) + ASK)
    assert done.returncode == 0, done.stderr
    trained, evaluated, exported, answer = done.stdout.splitlines()[-4:]
    assert json.loads(trained)["step"] == 100
    assert 0 <= json.loads(evaluated)["accuracy"] <= 1
    assert exported == "exported/reviews/1"
    answer = json.loads(answer)
    assert answer["label"][0] in ("animal", "human", "thing") and 1 / 3 <= float(answer["confidence"][0]) <= 1


@pytest.fixture
def nothing_loaded(monkeypatch):
    """Registries as they are before entry points are looked at, and as they were afterwards."""
    monkeypatch.setattr(zoo.registry, "_SPECS", {**zoo.registry._SPECS})
    monkeypatch.setattr(training.data.registry, "_FORMATS", {**training.data.registry.data_formats()})
    zoo.registry.load_entry_points.cache_clear()
    yield
    zoo.registry.load_entry_points.cache_clear()
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_entry_points_register_without_import(written, nothing_loaded, monkeypatch):
    distribution = written / "my_package-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n", encoding="utf-8")
    groups = tomllib.loads(ENTRY_POINTS)["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {module}\n" for name, module in points.items())
        for group, points in groups.items()
    ]
    (distribution / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(written)
    monkeypatch.chdir(written)
    assert zoo.list_models("averaging*") == ["averaging_classifier"]
    assert load_data("jsonl:reviews").split("test").labels[0] in ("animal", "human", "thing")


def test_the_files_of_the_answers_exist():
    (row,) = [line for line in TEXT.splitlines() if "understand `rnnsearch`" in line]
    named = re.findall(r"`([\w/]+\.py)`", row)
    assert len(named) == 6
    assert all((ROOT / name).is_file() or (ROOT / "zoo/models/seq2seq" / name).is_file() for name in named)
