"""Common parts of all commands: one-line errors, exit statuses, signals and `--import`.

Exit status 0 is success, 2 is bad usage or bad input (one line on standard error, no traceback), 130 and 143 are Ctrl-C
and SIGTERM (likewise), and 1 is a failure: of the disk or of a pipe (likewise), or an internal one (Python's own
traceback).
"""

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from zoo.errors import InputError
from zoo.runtime.extras import missing_extra
from zoo.runtime.signals import NAMES, exit_status, raising_signals, received_signal
from zoo.runtime.startup import discard_output, open_standard_streams, without_greeting

Command = Callable[[Sequence[str] | None], None]

# Errors that an invalid path in the arguments can cause.
_PATH_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
_DISK_FULL = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file exceeds the maximum size (see ulimit -f)",
}


class _Import(argparse.Action):
    """Imports a module during argument parsing, so that other arguments can use the names that it registers."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        import_from_here(values, "--import")


def import_from_here(name: str, option: str) -> ModuleType:
    """Imports a module, which may be in the current folder, and returns it.

    Raises:
        InputError: If it cannot be imported; the message contains the option's name.
    """
    sys.path.insert(0, os.getcwd())
    try:
        with without_greeting():
            return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{option} {name}: {error}.") from error
    finally:
        sys.path.remove(os.getcwd())


class ArgumentParser(argparse.ArgumentParser):
    """`argparse.ArgumentParser` that reports bad usage as one line, and imports the modules of `--import`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_argument(
            "--import",
            action=_Import,
            dest=argparse.SUPPRESS,
            metavar="MODULE",
            help="module to import first, which registers models, data or signatures",
        )

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


def run_process(main: Command) -> int:
    """Runs a command as `run_command` does, as the last action of the process, which afterwards ignores signals."""
    return run_command(main, at_end=signal.SIG_IGN)


def run_command(main: Command, argv: Sequence[str] | None = None, at_end: signal.Handlers | None = None) -> int:
    """Runs `main(argv)` and returns its exit status.

    Args:
        main: The command. It raises `InputError` for errors that the user can fix.
        argv: Arguments without the program's name; `None` means those of the process.
        at_end: See `raising_signals`.

    Returns:
        0 on success; 2 after an `InputError`, if a path cannot be read or written, or if an extra is not installed; 1
        if the disk is full or a pipe is broken; 130 after Ctrl-C and 143 after SIGTERM. Other exceptions are raised.
    """
    # TensorFlow's C++ code warns about a missing GPU; relevant errors reach Python as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    open_standard_streams()
    with raising_signals(at_end):
        try:
            main(argv)
            sys.stdout.flush()
        except (Exception, KeyboardInterrupt) as error:
            outcome = _outcome(error)
            if outcome is None:
                raise
            if isinstance(error, BrokenPipeError):
                discard_output()
            line, status = outcome
            print(line, file=sys.stderr)
            return status
    return 0


def _outcome(error: BaseException) -> tuple[str, int] | None:
    """Returns the line that a command prints for an error, and its exit status; `None` for an internal failure."""
    number = received_signal() or (signal.SIGINT if isinstance(error, KeyboardInterrupt) else None)
    if number:  # whatever the type of the exception
        return NAMES[signal.Signals(number)], exit_status(number)
    if isinstance(error, InputError):
        return f"error: {' '.join(str(error).split())}", 2
    if isinstance(error, ModuleNotFoundError) and (missing := missing_extra(error)):
        return f"error: {missing}", 2
    if isinstance(error, BrokenPipeError):
        return "error: broken pipe: the reader of the output has closed it", 1
    if reason := disk_full(error):
        file = getattr(error, "filename", None)
        return f"error: {file}: {reason}" if file else f"error: {reason}", 1
    if isinstance(error, OSError) and error.errno in _PATH_ERRORS and error.filename:
        return f"error: {error.filename}: {error.strerror}", 2
    return None


def is_closed(stream: Any) -> bool:
    """Returns whether the process was started without this standard stream; see `open_standard_streams`."""
    return stream is None or getattr(stream, "name", None) == os.devnull


def disk_full(error: BaseException) -> str | None:
    """Returns the message for an error that means that a file cannot grow, else `None`."""
    for number, reason in _DISK_FULL.items():
        # h5py and TensorFlow report such errors only as text.
        if getattr(error, "errno", None) == number or os.strerror(number) in str(error):
            return reason
    return None
