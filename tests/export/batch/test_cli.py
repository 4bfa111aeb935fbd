"""The batch command's usage, without Apache Beam."""

import sys

import pytest

from export import batch
from zoo.runtime.cli import run_command

NEEDED = ["--model_path=m", "--input=x", "--output=y"]


def test_usage(capsys):
    for arguments, words in (
        ([], ["--model_path", "--input", "--output"]),
        ([*NEEDED, "--batch_size=0"], ["--batch_size", "0"]),
        ([*NEEDED, "--file_lines=0"], ["--file_lines", "0"]),
        ([*NEEDED, "--batchsize=3"], ["--batchsize=3", "--batch_size"]),
        ([*NEEDED, "--json", "--output_name=label"], ["--json", "--output_name"]),
    ):
        with pytest.raises(SystemExit) as caught:
            batch.main(arguments)
        error = capsys.readouterr().err
        assert caught.value.code == 2 and all(word in error for word in words), error


def test_beam_is_an_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert run_command(batch.main, NEEDED) == 2
    error = capsys.readouterr().err
    assert "Apache Beam" in error and "[beam]" in error and error.count("\n") == 1
