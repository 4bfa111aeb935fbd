"""The explorer's command."""

import re

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


def test_usage(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, words in (
        ([], ["--model"]),
        (["--model", "m", "--port", "70000"], ["--port", "0 to 65535", "70000"]),
        (["--model", "m", "--model", "m"], ["--model", "m, m"]),
        (["--model", "localhost:1/"], ["HOST:PORT/NAME", "'localhost:1/'"]),
        (["--model", "m", "--server", "x"], ["HOST:PORT"]),
        (["--model", "m", "--host", "203.0.113.1"], ["203.0.113.1", "port 8600"]),
        (["--model", "m", "--retries", "0", "--server", "localhost:9", "--html", "x.html", "a"], ["localhost:9"]),
    ):
        assert run_quietly(main, *arguments) == 2
        error = capsys.readouterr().err
        assert all(word in error for word in words) and error.count("\n") == 1 and not [*tmp_path.iterdir()], error


def test_help_names_every_flag(capsys):
    assert run_quietly(main, "--help") == 0
    text = capsys.readouterr().out
    for flag in ("server", "model", "port", "host", "allowed_host", "html", "open", "timeout", "retries", "tls_ca"):
        assert f"--{flag}" in text
