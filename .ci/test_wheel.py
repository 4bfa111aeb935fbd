"""The built wheel in empty environments: what it holds, and one command of each kind.

`.ci/run` runs it. It installs from the package index, which takes minutes and gigabytes.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("zoo", "training", "export")
TRAIN = (
    "train --model transformer_tiny --data dates --workdir runs/dates --set model.num_layers=1 model.model_dim=16 "
    "model.intermediate_dim=24 model.num_heads=2 training.max_steps=4 training.eval_every=2 training.batch_tokens=512"
).split()


class Environment:
    """An empty virtual environment with the wheel in it, and a folder to work in that has nothing of this project."""

    def __init__(self, folder: Path, wheel: Path, extras: str, **variables: str):
        self.bin = folder / "venv" / "bin"
        self.cwd = folder / "work"
        self.cwd.mkdir(parents=True)
        venv.create(folder / "venv", with_pip=True)
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.variables |= {"TF_CPP_MIN_LOG_LEVEL": "3", **variables}
        self.run("python", "-m", "pip", "install", "--quiet", f"attention-zoo{extras} @ {wheel.as_uri()}")

    def run(self, program: str, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.cwd,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=1200,
        )
        assert done.returncode == status, f"{program} {arguments}: {done.stdout}\n{done.stderr}"
        return done

    def command(self, name: str, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        return self.run(f"attention-zoo-{name}", *arguments, status=status)

    def has(self, module: str) -> bool:
        program = f"import importlib.util; print(importlib.util.find_spec({module!r}) is not None)"
        return self.run("python", "-c", program).stdout == "True\n"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def on_jax(tmp_path_factory, wheel) -> Environment:
    return Environment(tmp_path_factory.mktemp("jax"), wheel, "[jax]", KERAS_BACKEND="jax")


@pytest.fixture(scope="session")
def on_tensorflow(tmp_path_factory, wheel) -> Environment:
    return Environment(tmp_path_factory.mktemp("tensorflow"), wheel, "[serve,pictures]")


def test_it_holds_every_file_of_the_packages(wheel):
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = {name for name in listed.splitlines() if not re.fullmatch(r"\w+/(\w+/)?(README|RESULTS)\.md", name)}
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert wanted and held == wanted


def test_jax_is_installed_without_tensorflow(on_jax):
    assert on_jax.has("jax") and on_jax.has("sacrebleu")
    assert not any(map(on_jax.has, ("tensorflow", "tensorflow_text", "tensorflow_datasets", "torch", "matplotlib")))


def test_jax_trains_and_evaluates(on_jax):
    assert json.loads(on_jax.command(*TRAIN).stdout)["step"] == 4
    metrics = json.loads(on_jax.command("evaluate", "runs/dates", "--data", "dates", "--split", "val").stdout)
    assert metrics["examples"] > 0


@pytest.mark.parametrize(
    ("command", "cure"),
    [
        ("export runs/dates --output exported", "KERAS_BACKEND=tensorflow"),
        ("serve --model_name dates --model_base_path exported", "pip install 'attention-zoo[serve]'"),
        ("client --server localhost:1 --model dates text", "pip install 'attention-zoo[serve]'"),
        ("batch --model_path exported/1 --input in.txt --output out", "pip install 'attention-zoo[beam]'"),
    ],
)
def test_what_jax_does_not_bring_is_named_in_one_line(on_jax, command, cure):
    done = on_jax.command(*command.split(), status=2)
    assert done.stderr.count("\n") == 1 and cure in done.stderr


def test_the_backend_is_asked_for_by_name(on_jax, monkeypatch):
    monkeypatch.delitem(on_jax.variables, "KERAS_BACKEND")
    elsewhere = [word.replace("runs/dates", "runs/elsewhere") for word in TRAIN]
    assert "KERAS_BACKEND" in on_jax.command(*elsewhere, status=2).stderr


def test_tensorflow_trains_and_evaluates(on_tensorflow):
    assert json.loads(on_tensorflow.command(*TRAIN).stdout)["step"] == 4
    metrics = json.loads(on_tensorflow.command("evaluate", "runs/dates", "--data", "dates", "--split", "val").stdout)
    assert metrics["examples"] > 0


@contextlib.contextmanager
def served(environment: Environment, base: str):
    """Serves exported versions on a free port; yields the gRPC address."""
    flags = ["--port", "0", "--rest_api_port", "0", "--model_name", "dates", "--model_base_path", base]
    command = [environment.bin / "attention-zoo-serve", *flags]
    with subprocess.Popen(
        command, cwd=environment.cwd, env=environment.variables, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            ready = next(found for line in server.stdout if (found := re.search(r"gRPC on \S+:(\d+)", line)))
            yield f"localhost:{ready.group(1)}"
        finally:
            server.terminate()


def test_tensorflow_exports_serves_asks_and_draws(on_tensorflow):
    printed = on_tensorflow.command("export", "preset:dates_rnnsearch", "--output", "exported").stdout
    assert (on_tensorflow.cwd / printed.strip() / "saved_model.pb").is_file()
    with served(on_tensorflow, "exported") as address:
        ask = ["client", "--server", address, "--model", "dates"]
        assert on_tensorflow.command(*ask, "5 mai 1984").stdout == "1984-05-05\n"
        on_tensorflow.command(*ask, "--signature", "attention", "--heatmap", "attention.png", "5 mai 1984")
    assert (on_tensorflow.cwd / "attention.png").read_bytes().startswith(b"\x89PNG")
