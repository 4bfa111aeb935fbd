"""Signals: one line and the status of a shell, whenever they come."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from zoo.runtime.cli import run_command
from zoo.runtime.signals import Terminated, held_signal, holding_signals, raise_if_received, raising_signals


@pytest.fixture(autouse=True)
def interruptible():
    """A process that was started in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0.01)


def test_one_line_and_a_status(capsys):
    for number, line, status in ((signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)):
        before = signal.getsignal(number)
        assert run_command(lambda argv, number=number: send(number), []) == status
        assert capsys.readouterr().err == f"{line}\n"
        assert signal.getsignal(number) is before


def test_a_signal_that_comes_out_as_another_error(capsys):
    def main(argv):
        try:
            send(signal.SIGTERM)
        except Terminated:
            raise ImportError("TensorFlow cannot be imported") from None

    assert run_command(main, []) == 143
    assert capsys.readouterr().err == "terminated\n"


def held_until(signals):
    with holding_signals() as hold:
        hold()
        for number in signals:
            send(number)
        print(held_signal())


def test_the_first_signal_can_be_held_and_a_second_cannot(capsys):
    assert run_command(lambda argv: held_until([]), []) == 0
    assert run_command(lambda argv: held_until([signal.SIGTERM]), []) == 143  # at the end of the block
    assert capsys.readouterr().out == f"None\n{signal.SIGTERM:d}\n"
    assert run_command(lambda argv: held_until([signal.SIGINT, signal.SIGTERM]), []) == 130
    assert capsys.readouterr().out == ""


def test_a_signal_that_came_before_is_not_held():
    with raising_signals(), pytest.raises(Terminated), holding_signals() as hold:
        with contextlib.suppress(Terminated):
            send(signal.SIGTERM)
        hold()
        assert held_signal() is None
        raise_if_received()


class Swallowing:
    """Python ignores what is raised while an object is destroyed, and reports it at length."""

    def __del__(self):
        send(signal.SIGINT)


def test_a_signal_that_is_lost_is_raised_again(capsys):
    def main(argv):
        Swallowing()
        raise_if_received()
        print("not reached")

    assert run_command(main, []) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_a_second_signal_leaves_cleaning_up_alone(capsys):
    cleaned = []

    def main(argv):
        try:
            send(signal.SIGINT)
        finally:
            send(signal.SIGINT)
            send(signal.SIGTERM)
            cleaned.append(True)

    assert run_command(main, []) == 130
    assert cleaned and capsys.readouterr().err == "interrupted\n"


def test_what_a_process_ignores_is_ignored_still():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with raising_signals():
        send(signal.SIGINT)
        with pytest.raises(Terminated):
            send(signal.SIGTERM)


def test_while_a_command_imports(tmp_path):
    """Nothing of the program has run by then."""
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "train.py").write_text("import os, zoo\nos.kill(os.getpid(), 2)\nwhile True: pass\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.getcwd()])}
    argv = [sys.executable, "-m", "training.train"]
    for start in ("", "import zoo"):
        (tmp_path / "training" / "__init__.py").write_text(start)
        done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n"), start
