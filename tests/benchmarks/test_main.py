"""The command behind `make bench`."""

import subprocess
import sys

import pytest

from benchmarks import __main__ as bench
from benchmarks.runner import store


def _command(name, asked):
    def main(arguments):
        asked.append((name, arguments))
        print(f"table of {name}")
        return 0

    return main


@pytest.fixture
def asked(monkeypatch, tmp_path):
    asked = []
    for module in (bench.attention, bench.training, bench.growth, bench.decoding):
        monkeypatch.setattr(module, "main", _command(module.__name__, asked))

    def run(command, **options):
        asked.append((command[2], command[3:]))
        return subprocess.CompletedProcess(command, 0, stdout=f"table of {command[2]}\n")

    monkeypatch.setattr(bench.subprocess, "run", run)
    monkeypatch.setattr(store, "FOLDER", tmp_path / "stored")
    return asked


def test_all_parts_run_and_are_written(asked, tmp_path, capsys):
    file = tmp_path / "new" / "results.md"
    assert bench.main(["--output", str(file)]) == 0
    assert [name for name, _ in asked] == [
        "benchmarks.attention",
        "benchmarks.training",
        "benchmarks.growth",
        "benchmarks.decoding",
        "benchmarks.conformance",
    ]
    text = file.read_text(encoding="utf-8")
    assert "## Training\n\ntable of benchmarks.training\n" in text
    assert f"## Decoding\n\n{bench.NO_INPUTS}\n" in text
    out = capsys.readouterr().out
    assert all(line in out for line in text.splitlines())


def test_inputs_and_fresh_are_passed_on(asked, tmp_path):
    arguments = ["--workdir", str(tmp_path / "run"), "--text", str(tmp_path / "text")]
    bench.main(arguments)
    inputs = [str(tmp_path / "run"), "--text", str(tmp_path / "text")]
    assert ("benchmarks.decoding", inputs) in asked
    assert ("benchmarks.decoding", [*inputs, "--case", "test_set", "--rounds", "3"]) in asked
    asked.clear()
    bench.main(arguments)
    assert not [name for name, given in asked if "--text" in given or name == "benchmarks.conformance"], "stored"
    bench.main([*arguments, "--fresh", "--data", "text:a:en-de"])
    assert ("benchmarks.training", ["--data", "text:a:en-de", "--fresh"]) in asked
    assert ("benchmarks.decoding", ["--data", "text:a:en-de", "--fresh"]) in asked
    assert ("benchmarks.conformance", []) in asked


def test_half_of_the_inputs_is_an_error_and_a_command_that_fails_is_not_stored(capsys, monkeypatch, tmp_path):
    with pytest.raises(SystemExit):
        bench.main(["--text", "file"])
    assert "--workdir" in capsys.readouterr().err
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(subprocess.CalledProcessError):
        bench.load_or_run("conformance", "benchmarks.conformance", [], fresh=False)
    assert not list(tmp_path.iterdir())
