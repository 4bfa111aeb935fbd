"""The parts that all commands share: one-line errors, exit statuses and `--import`.

Exit status 0 is success, 2 is bad usage or bad input (one line on standard error, no traceback),
1 is an internal failure (Python's own traceback).
"""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from zoo.errors import InputError
from zoo.extras import missing_extra
from zoo.startup import without_greeting

# Errors whose cause can be a path that the user named.
_PATH_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)


class _Import(argparse.Action):
    """Imports a module while the arguments are read, so that the other arguments can name what it registers."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        sys.path.insert(0, os.getcwd())
        try:
            with without_greeting():
                importlib.import_module(values)
        except ImportError as error:
            raise InputError(f"--import {values}: {error}.") from error
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
            help="your module to import first, which registers models, data or signatures",
        )

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


def run_command(main: Callable[[Sequence[str] | None], None], argv: Sequence[str] | None = None) -> int:
    """Runs `main(argv)` and turns its outcome into an exit status.

    Args:
        main: The command. It raises `InputError` for anything that the user can fix.
        argv: Arguments without the program's name; `None` means those of the process.

    Returns:
        0 on success, 2 after an `InputError`, where a path may not be read or written or an extra is not installed, 130
        after Ctrl-C. Other exceptions pass through.
    """
    # TensorFlow's C++ code complains about a missing GPU; errors that matter reach Python as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        main(argv)
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        if missing is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in _PATH_ERRORS or not error.filename:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0
