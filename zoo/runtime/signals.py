"""Handles Ctrl-C and SIGTERM in commands, which exit cleanly at any time, with one line and status 130 or 143.

TensorFlow or an import may replace the exception of a signal handler by another one, and where exceptions cannot be
raised it is lost. The handler therefore also stores the signal, and error reports check it first.
"""

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM."""


class _State:
    """The state of the process's signals."""

    received: int | None = None
    is_held = False  # whether the first signal is only stored, for a loop that checks for it
    is_ending = False  # whether the signal is being reported, so that no further one is raised


def received_signal() -> int | None:
    """Returns the number of the received signal, if any; further signals are then not raised."""
    if _State.received is not None:
        _State.is_ending = True
    return _State.received


def raise_if_received() -> None:
    """Raises the exception of a received signal again, in case it was lost."""
    if _State.received is not None and not _State.is_held and not _State.is_ending:
        _raise(_State.received)


@contextlib.contextmanager
def holding_signals() -> Iterator[Callable[[], None]]:
    """Yields a function; after its call, until the block ends, the first signal is only stored; a second is raised.

    The block checks `held_signal` where it can end; otherwise a stored signal is raised at the end of the block. If an
    error ends the block, a stored signal is not its cause and is discarded.
    """

    def hold() -> None:
        _State.is_held = _State.received is None

    try:
        yield hold
    except BaseException:
        if _State.is_held:
            _State.received = None
        raise
    finally:
        _State.is_held = False
    raise_if_received()


def held_signal() -> int | None:
    """Returns the number of the stored signal, if any."""
    return _State.received if _State.is_held else None


def exit_status(number: int) -> int:
    """Returns the exit status of a command that a signal ended, by the convention of shells."""
    return 128 + number


@contextlib.contextmanager
def raising_signals(at_end: signal.Handlers | None = None) -> Iterator[None]:
    """Raises `KeyboardInterrupt` or `Terminated` in the block on SIGINT or SIGTERM, if it runs in the main thread.

    Signals that the process ignores, such as Ctrl-C in the background of a shell, remain ignored. `at_end` is the
    handler after the block, such as `signal.SIG_IGN`. Default: the previous handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals are handled in the main thread only.
        return
    handled = [number for number in NAMES if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _handle) for number in handled}
    report, sys.unraisablehook = sys.unraisablehook, _report
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if at_end is None else at_end)
        sys.unraisablehook = report
        _State.received, _State.is_held, _State.is_ending = None, False, False


def _handle(number: int, frame: FrameType | None) -> None:
    is_first, _State.received = _State.received is None, _State.received or number
    if is_first and _State.is_held:
        return
    _State.is_held = False
    # A second signal must not interrupt code that closes files after the first.
    if not _State.is_ending and not _is_handled(sys.exc_info()[1]):
        _raise(number)


def _raise(number: int) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _is_handled(error: BaseException | None) -> bool:
    """Returns whether a signal is in the chain of the exception that is being handled."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _report(unraisable: Any) -> None:
    if unraisable.exc_type is None or not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """Ends the process immediately."""
    os.write(2, f"{NAMES[signal.Signals(number)]}\n".encode())
    os._exit(exit_status(number))


def _program() -> str:
    """Returns the module or script that this process runs."""
    if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv:  # the parent packages of the module are being imported
        return sys.orig_argv[sys.orig_argv.index("-m") + 1]
    main = sys.modules["__main__"]
    return main.__spec__.name if main.__spec__ else os.path.basename(getattr(main, "__file__", None) or "")


def _guard_start() -> None:
    """Lets signals end this process immediately during the imports of a command; does nothing in other programs."""
    if not re.match(r"(training|export)\.|attention-zoo-", _program()):
        return
    for number in NAMES:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end_at_once)


_guard_start()
