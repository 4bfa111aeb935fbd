"""The command behind `make bench`."""

import subprocess
import sys

import pytest

from benchmarks import __main__ as bench
from benchmarks import kept as keeping


def _command(name, asked):
    def main(arguments):
        asked.append((name, arguments))
        print(f"table of {name}")
        return 0

    return main


@pytest.fixture
def asked(monkeypatch, tmp_path):
    asked = []
    for module in (bench.attention, bench.training, bench.growth, bench.untrained):
        monkeypatch.setattr(module, "main", _command(module.__name__, asked))

    def run(command, **options):
        asked.append((command[2], command[3:]))
        return subprocess.CompletedProcess(command, 0, stdout=f"table of {command[2]}\n")

    monkeypatch.setattr(bench.subprocess, "run", run)
    monkeypatch.setattr(keeping, "FOLDER", tmp_path / "kept")
    return asked


def test_all_parts_run_and_are_written(asked, tmp_path, capsys):
    file = tmp_path / "new" / "results.md"
    assert bench.main(["--output", str(file)]) == 0
    assert [name for name, _ in asked] == [
        "benchmarks.attention",
        "benchmarks.training.__main__",
        "benchmarks.growth",
        "benchmarks.decoding.untrained",
        "benchmarks.conformance",
    ]
    text = file.read_text(encoding="utf-8")
    assert "## Training\n\ntable of benchmarks.training.__main__\n" in text
    assert f"## Decoding\n\n{bench.NO_INPUTS}\n" in text
    out = capsys.readouterr().out
    assert all(line in out for line in text.splitlines())


def test_inputs_and_fresh_are_handed_on(asked, tmp_path):
    arguments = ["--workdir", str(tmp_path / "run"), "--text", str(tmp_path / "text")]
    bench.main(arguments)
    inputs = [str(tmp_path / "run"), "--text", str(tmp_path / "text")]
    assert ("benchmarks.decoding", inputs) in asked
    assert ("benchmarks.decoding", [*inputs, "--whole", "--rounds", "3"]) in asked
    asked.clear()
    bench.main(arguments)
    assert [name for name, _ in asked if name in ("benchmarks.decoding", "benchmarks.conformance")] == []
    bench.main([*arguments, "--fresh", "--data", "text:a:en-de"])
    assert ("benchmarks.training.__main__", ["--data", "text:a:en-de", "--fresh"]) in asked
    assert ("benchmarks.decoding.untrained", ["--data", "text:a:en-de", "--fresh"]) in asked
    assert ("benchmarks.conformance", []) in asked


def test_half_of_the_inputs_is_an_error(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--text", "file"])
    assert "--workdir and --text go together" in capsys.readouterr().err


def test_a_command_that_fails_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(keeping, "FOLDER", tmp_path)
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(subprocess.CalledProcessError):
        bench.output_of("conformance", "benchmarks.conformance", [], fresh=False)
    assert not list(tmp_path.iterdir())
