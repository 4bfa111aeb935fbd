"""The explorer's command."""

import re

import pytest
from support.explorer_models import serving
from support.tiny_runs import run_quietly

from export.explore.cli import command, main


def test_a_file(scripted, tmp_path, capsys):
    with serving(scripted) as address:
        arguments = ["--server", address, "--model", "translator", "--model", f"{address}/classifier"]
        assert command([*arguments, "--html", str(tmp_path / "page.html"), "one two", "three"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}\n"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [page.count(f'"model":"{name}"') for name in ("translator", f"{address}/classifier")] == [2, 2]
    assert page.count("two one") > 0 and not re.search(r'src="|href="(?!data:)', page)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --model"),
        (["--model", "m", "--port", "70000"], "--port must be 0 to 65535. Received: 70000"),
        (["--model", "m", "--model", "m"], "each --model is named once. Received: m, m"),
        (["--model", "localhost:1/"], "A model is given as NAME or HOST:PORT/NAME. Received: 'localhost:1/'."),
        (["--model", "m", "--server", "x"], "A server is given as HOST:PORT"),
        (["--model", "m", "--host", "203.0.113.1"], "The explorer cannot listen at 203.0.113.1, port 8600"),
        (["--model", "m", "--retries", "0", "--server", "localhost:9", "--html", "x.html", "a"], "No server answers"),
    ],
)
def test_usage(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_quietly(main, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not [*tmp_path.iterdir()]


def test_help_names_every_flag(capsys):
    assert run_quietly(main, "--help") == 0
    text = capsys.readouterr().out
    for flag in ("server", "model", "port", "host", "allowed_host", "html", "open", "timeout", "retries", "tls_ca"):
        assert f"--{flag}" in text
