"""Starts backends without the messages that TensorFlow's C++ code prints before any setting takes effect."""

import contextlib
import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator

from zoo.errors import InputError
from zoo.runtime.extras import EXTRAS, install_command

# Notices, and the warning about a missing GPU; other lines are printed.
_GREETING = re.compile(rb"WARNING: All log messages before absl|[IW]\d{4} |.*failed call to cuInit")


def open_standard_streams() -> None:
    """Opens the null device for standard streams that are closed.

    Otherwise the next file or socket would get the number of a standard stream and receive printed text.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def discard_output() -> None:
    """Redirects standard output to the null device, after a broken pipe."""
    number = os.open(os.devnull, os.O_WRONLY)
    os.dup2(number, 1)
    os.close(number)


@contextlib.contextmanager
def without_greeting() -> Iterator[None]:
    """Buffers standard error while the block imports TensorFlow, and then prints all lines except the greeting.

    File descriptor 2 itself is redirected, because the lines come from C++. If TensorFlow is already imported, this
    does nothing.
    """
    if "tensorflow" in sys.modules:
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as buffer:
        original = os.dup(2)
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            buffer.seek(0)
            for line in buffer:
                if not _GREETING.match(line):
                    os.write(2, line)


@contextlib.contextmanager
def without_packages(*names: str) -> Iterator[None]:
    """Makes packages count as not installed while the block imports others, which would import them if they could.

    Packages that are already imported are left alone.
    """
    hidden = dict.fromkeys(set(names) - sys.modules.keys())
    sys.modules.update(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def collect_rarely() -> None:
    """Makes Python's garbage collection rare.

    Importing and tracing create millions of permanent objects. Collecting after every 700 of them takes a tenth of the
    time until the first step.
    """
    gc.set_threshold(200_000, 20, 100)


def without_onednn() -> None:
    """Disables oneDNN before TensorFlow is imported, also for child processes, unless the variable is already set.

    Its kernels are prepared for each shape, of which decoding has many, and stay in memory.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def one_core_for_each_operation() -> None:
    """Limits each TensorFlow operation to one core, for concurrent batches, unless the variable is already set."""
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")


def start_backend() -> None:
    """Imports Keras quietly for a command; on other backends, prevents the import of TensorFlow.

    If TensorFlow is installed, Keras imports it for saving or loading a model, which takes seconds and half a gigabyte
    that JAX and PyTorch do not need. A module that is `None` in `sys.modules` counts as not installed.

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
            "KERAS_BACKEND to an installed one (tensorflow, jax or torch)."
        ) from error
    if keras.backend.backend() != "tensorflow":
        sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]
