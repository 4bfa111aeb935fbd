"""A quiet start: TensorFlow's C++ side greets on standard error before any setting can stop it."""

import contextlib
import gc
import os
import re
import sys
import tempfile
from collections.abc import Iterator

from zoo.errors import InputError
from zoo.extras import EXTRAS

# Notices and the complaint of every machine without a GPU; anything else is passed on.
_GREETING = re.compile(rb"WARNING: All log messages before absl|[IW]\d{4} |.*failed call to cuInit")


@contextlib.contextmanager
def without_greeting() -> Iterator[None]:
    """Holds standard error back while the block imports TensorFlow, and then passes on all of it but the greeting.

    File descriptor 2 itself is diverted, because the lines come from C++. Once TensorFlow is there, nothing is held
    back.
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
    """Has Python look for garbage rarely.

    Importing and tracing make millions of objects that stay. To look for garbage among them after every 700 takes a
    tenth of the time until the first step.
    """
    gc.set_threshold(200_000, 20, 100)


def without_onednn() -> None:
    """Has a TensorFlow that is yet to be imported, here or in a child process, leave out oneDNN's kernels, unless told.

    They are prepared anew for each shape, of which decoding has many, and what has been prepared is kept.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


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
            f"The backend of Keras, {error.name}, is not installed: pip install 'attention-zoo[{error.name}]', or set "
            "KERAS_BACKEND to the one that is (tensorflow, jax or torch)."
        ) from error
    if keras.backend.backend() != "tensorflow":
        sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]
