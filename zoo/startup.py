"""A quiet start: TensorFlow's C++ code writes to standard error before any setting can stop it."""

import contextlib
import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator

from zoo.errors import InputError
from zoo.extras import EXTRAS, install_command

# Notices, and the warning of every machine without a GPU; anything else is passed on.
_GREETING = re.compile(rb"WARNING: All log messages before absl|[IW]\d{4} |.*failed call to cuInit")


def open_standard_streams() -> None:
    """Opens the null device for standard streams that the process was started without.

    Else the next file or socket would have their number, and be written what is printed.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def discard_output() -> None:
    """Sends what is still to be written to standard output, which nobody reads any more, nowhere."""
    number = os.open(os.devnull, os.O_WRONLY)
    os.dup2(number, 1)
    os.close(number)


@contextlib.contextmanager
def without_greeting() -> Iterator[None]:
    """Holds standard error back while the block imports TensorFlow, and then passes on all of it but the greeting.

    File descriptor 2 itself is redirected, because the lines come from C++. Once TensorFlow has been imported, nothing
    is held back.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        original = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            held.seek(0)
            for line in held:
                if not _GREETING.match(line):
                    os.write(2, line)


def collect_rarely() -> None:
    """Makes Python's garbage collection rare.

    Importing and tracing make millions of objects that stay. Collecting after every 700 of them takes a tenth of the
    time until the first step.
    """
    gc.set_threshold(200_000, 20, 100)


def without_onednn() -> None:
    """Turns oneDNN's kernels off in a TensorFlow imported later, here or in a child process, unless the user decided.

    They are prepared again for each shape, of which decoding has many, and stay in memory.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def one_core_for_each_operation() -> None:
    """Lets each operation of a TensorFlow imported later use one core, unless the user decided: batches share cores."""
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


def start_backend() -> None:
    """Imports Keras quietly, for a command; on other backends than TensorFlow keeps TensorFlow out of the process.

    Keras imports TensorFlow wherever it is installed as soon as it saves or reads a model, which costs seconds and
    half a gigabyte that JAX and PyTorch have no use for. A module that is `None` counts as not installed.

    Raises:
        InputError: The backend is not installed.
    """
    collect_rarely()
    try:
        with without_greeting():
            import keras
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:  # an extra for a backend has the backend's name
            raise
        raise InputError(
            f"The backend of Keras, {error.name}, is not installed: {install_command(error.name)}, or set "
            "KERAS_BACKEND to the one that is (tensorflow, jax or torch)."
        ) from error
    if keras.backend.backend() != "tensorflow":
        sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]
