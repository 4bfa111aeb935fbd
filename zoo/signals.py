"""How Ctrl-C and SIGTERM end a command: cleanly, with one line, and with status 130 or 143, whenever they come.

An exception that a signal handler raises can come out of TensorFlow, or out of an import, as another one, and where
nothing can be raised it is lost. So the handler notes the signal as well, and who explains errors asks for it first.
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
    """The process was asked to end by SIGTERM."""


class _State:
    """What has come so far; signals are of the process."""

    received: int | None = None
    is_held = False  # The first one is not raised: a loop asks for it, at a place where it can end.
    is_ending = False  # It is being said why; nothing is to be raised any more.


def received_signal() -> int | None:
    """Returns the number of the signal that asks the command to end, if one has come; no more are then raised."""
    if _State.received is not None:
        _State.is_ending = True
    return _State.received


def raise_if_received() -> None:
    """Raises what a signal has raised before, where that was lost."""
    if _State.received is not None and not _State.is_held and not _State.is_ending:
        _raise(_State.received)


@contextlib.contextmanager
def holding_signals() -> Iterator[Callable[[], None]]:
    """Yields a function from whose call on, until the block ends, the first signal is only noted; a second is raised.

    The block asks `held_signal` where it can end; a signal that it did not ask for is raised at its end. An error that
    ends the block while a signal is held is not due to it, and the signal is forgotten.
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
    """Returns the number of the signal that came and is held, if there is one."""
    return _State.received if _State.is_held else None


def exit_status(number: int) -> int:
    """Returns the exit status of a command that a signal ended, as shells have it."""
    return 128 + number


@contextlib.contextmanager
def raising_signals(at_end: signal.Handlers | None = None) -> Iterator[None]:
    """Raises `KeyboardInterrupt` or `Terminated` in the block on SIGINT or SIGTERM, if it runs in the main thread.

    A signal that the process ignores, as one in the background of a shell ignores Ctrl-C, is ignored still. `at_end`
    is how signals are handled after the block, such as `signal.SIG_IGN`. Default: as before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals reach the main thread only.
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
    # What closes files after the first signal is to be left alone by the second.
    if not _State.is_ending and not _is_handled(sys.exc_info()[1]):
        _raise(number)


def _raise(number: int) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _is_handled(error: BaseException | None) -> bool:
    """Returns whether a signal is among what led to the exception that is being handled."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _report(unraisable: Any) -> None:
    if unraisable.exc_type is None or not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """Ends a process that has nothing to lose yet."""
    os.write(2, f"{NAMES[signal.Signals(number)]}\n".encode())
    os._exit(exit_status(number))


def _program() -> str:
    """Returns the module or script that this process runs."""
    if sys.argv[:1] == ["-m"] and "-m" in sys.orig_argv:  # the packages around the module are being imported
        return sys.orig_argv[sys.orig_argv.index("-m") + 1]
    main = sys.modules["__main__"]
    return main.__spec__.name if main.__spec__ else os.path.basename(getattr(main, "__file__", None) or "")


def _guard_start() -> None:
    """Lets signals end this process at once if it is a command that still imports what it needs.

    Another program that imports the package is left alone.
    """
    if not re.match(r"(training|export)\.|attention-zoo-", _program()):
        return
    for number in NAMES:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end_at_once)


_guard_start()
