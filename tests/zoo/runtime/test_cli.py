"""What every command shares: exit statuses, and one line for what the user can mend."""

import errno
import importlib
import os
import subprocess
import sys

import pytest

from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, run_command
from zoo.runtime.startup import without_greeting, without_packages


def raising(error):
    def main(argv):
        raise error

    return main


def test_success(capsys):
    seen = []
    assert run_command(seen.append, ["a", "b"]) == 0
    assert seen == [["a", "b"]]
    assert capsys.readouterr() == ("", "")


def test_bad_input_is_one_line(capsys):
    assert run_command(raising(InputError("first\n  second\tthird"))) == 2
    assert capsys.readouterr() == ("", "error: first second third\n")


def test_bad_usage_is_one_line(capsys):
    parser = ArgumentParser(prog="it")
    parser.add_argument("--size", type=int, required=True)
    for argv in (["--size", "big"], [], ["--size", "1", "more"]):
        with pytest.raises(SystemExit) as caught:
            parser.parse_args(argv)
        assert caught.value.code == 2
        output = capsys.readouterr()
        assert output.out == "" and output.err.startswith("it: error: ") and output.err.count("\n") == 1


def test_paths_that_may_not_be_used_are_one_line(capsys):
    assert run_command(raising(PermissionError(errno.EACCES, "Permission denied", "data/train.tsv"))) == 2
    assert capsys.readouterr() == ("", "error: data/train.tsv: Permission denied\n")


def test_internal_failures_pass_through():
    for error in (ZeroDivisionError(), PermissionError(errno.EACCES, "Permission denied")):
        with pytest.raises(type(error)):
            run_command(raising(error))


def test_a_full_disk(capsys):
    for names, line in (([], "error: no space"), (["a.png"], "error: a.png: no space")):
        assert run_command(raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *names))) == 1
        assert capsys.readouterr().err == f"{line} left on the disk\n"


def test_interruption(capsys):
    assert run_command(raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_the_greeting_is_held_back_and_nothing_else():
    code = (
        "import os; from zoo.runtime.startup import without_greeting\n"
        "with without_greeting():\n"
        "    os.write(2, b'WARNING: All log messages before absl::InitializeLog() is called\\n')\n"
        "    os.write(2, b'I0000 00:00:1.2 3 port.cc:153] oneDNN custom operations are on.\\n')\n"
        "    os.write(2, b'something is wrong\\n')\n"
        "os.write(2, b'I0000 is the name of my file\\n')\n"
        "with without_greeting():\n"
        "    os.write(2, b'last words\\n'); raise SystemExit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr == "something is wrong\nI0000 is the name of my file\nlast words\n"


def test_nothing_is_held_back_once_tensorflow_is_there(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    with without_greeting():
        os.write(2, b"I0000 now\n")
        assert capfd.readouterr().err == "I0000 now\n"


def test_hidden_packages_count_as_not_installed_for_a_while():
    sys.modules.pop("colorsys", None)
    with without_packages("colorsys", "json"):
        assert importlib.util.find_spec("json") is not None, "it is imported already"
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("colorsys")
    assert importlib.import_module("colorsys")


PRINTS = """
import sys
from zoo.runtime.cli import run_command
def main(argv):
    files = [open("/dev/null") for _ in range(3)]
    print("a lot of text " * 100_000)
    print("and an error", file=sys.stderr)
    assert min(file.fileno() for file in files) > 2
sys.exit(run_command(main))
"""


def test_standard_streams_may_be_closed():
    """As a service manager or `command >&- 2>&-` starts it."""
    for closed in ((1,), (0, 1, 2)):

        def close(closed=closed):
            for number in closed:
                os.close(number)

        assert subprocess.run([sys.executable, "-c", PRINTS], preexec_fn=close, timeout=60).returncode == 0, closed


def test_a_pipe_that_nobody_reads_is_one_line():
    """As `command | head -1` does."""
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-c", PRINTS], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert result.returncode == 1
    assert result.stderr.startswith("error: broken pipe") and result.stderr.count("\n") == 1
