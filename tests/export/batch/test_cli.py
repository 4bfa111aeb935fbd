"""The batch command's usage, without Apache Beam."""

import sys

import pytest

from export import batch
from zoo.cli import run_command

NEEDED = ["--model_path=m", "--input=x", "--output=y"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --model_path, --input, --output"),
        ([*NEEDED, "--batch_size=0"], "--batch_size must be positive. Received: 0"),
        ([*NEEDED, "--file_lines=0"], "--file_lines must be positive. Received: 0"),
        ([*NEEDED, "--batchsize=3"], "unknown flag --batchsize=3; did you mean --batch_size?"),
        ([*NEEDED, "--json", "--output_name=label"], "not allowed with"),
    ],
)
def test_usage(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        batch.main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_beam_is_an_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert run_command(batch.main, NEEDED) == 2
    assert capsys.readouterr().err == "error: Apache Beam is not installed: pip install 'attention-zoo[beam]'.\n"
