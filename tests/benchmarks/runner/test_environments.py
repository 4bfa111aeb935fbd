"""The environments of the peers."""

import subprocess
from types import SimpleNamespace

import pytest

from benchmarks.runner import environments
from benchmarks.runner.process import Failed


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Stands for the commands that make an environment; their standard error and status can be set."""
    run = SimpleNamespace(commands=[], status=0, stderr="")

    def record(command, **options):
        run.commands.append(command[1:])
        if "pip" in command:
            return subprocess.CompletedProcess(command, run.status, stderr=run.stderr)
        (tmp_path / "peers" / "pytorch").mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(environments, "FOLDER", tmp_path / "peers")
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments.subprocess, "run", record)
    return run


def test_an_environment_is_made_once(commands, monkeypatch, tmp_path):
    python = environments.python_of("pytorch")
    assert python == str(tmp_path / "peers" / "pytorch" / "bin" / "python")
    assert commands.commands[1][-len(environments.TORCH) :] == environments.TORCH
    assert environments.python_of("pytorch") == python
    assert len(commands.commands) == 2
    monkeypatch.setitem(environments.REQUIREMENTS, "pytorch", ["torch==3.0"])
    environments.python_of("pytorch")
    assert commands.commands[3][-1] == "torch==3.0", "other pins, another environment"


def test_one_that_cannot_be_made_says_why_and_is_tried_again(commands):
    commands.status, commands.stderr = 1, "ERROR: Could not find torch\nERROR: No matching distribution\nnotice\n"
    for _ in range(2):
        with pytest.raises(Failed, match="pip install torch.*: ERROR: No matching distribution"):
            environments.python_of("pytorch")
    assert len(commands.commands) == 4
    for name, requirements in environments.REQUIREMENTS.items():
        assert all("==" in each or each == "numpy>=2" for each in requirements), name
