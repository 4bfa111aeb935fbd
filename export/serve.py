"""Serves models over gRPC and REST: `python -m export.serve --model_name NAME --model_base_path BASE`.

The flags are those of `tensorflow_model_server`. If that program is on the PATH, it is run instead, with the same
flags; otherwise the server in `export.server` replaces it and prints a line about it.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from export import server
from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, run_command
from zoo.runtime.startup import without_greeting, without_onednn, without_packages

STOCK_SERVER = "tensorflow_model_server"


class ModelServer(server.ModelServer):
    """The embedded server for one model, to be started and stopped by a Python program.

    Args:
        name: The model's name in requests.
        base_path: The directory whose numbered directories are versions of a SavedModel.
        port: The gRPC port; 0 picks a free one.
        rest_port: The REST port; 0 picks a free one, `None` means no REST.
        **others: Further `ServerSettings` by name.

    Raises:
        InputError: A port is not available, or there is no version.
    """

    def __init__(self, name: str, base_path: Path, port: int, rest_port: int | None = None, **others: Any):
        settings = server.ServerSettings(name, str(base_path), port=port, rest_api_port=rest_port, **others)
        with _input_errors():
            super().__init__(settings)

    def start(self) -> str:
        """Loads the models, starts to serve them and returns one line with their names and addresses."""
        with _input_errors():
            _load_tensorflow()
            return super().start()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for models that cannot be loaded, ports in use and invalid files."""
    without_onednn()
    namespace, unknown = _parser().parse_known_args(argv)
    if stock := shutil.which(STOCK_SERVER):
        _exec_stock_server(stock, vars(namespace), unknown)
    if "version" in namespace:
        print(f"TensorFlow ModelServer: embedded stand-in of {importlib.metadata.version('attention-zoo')}")
        print(f"TensorFlow Library: {importlib.metadata.version('tensorflow')}")
        return
    _serve(read_settings(argv), sorted(server.WITHOUT_EFFECT & set(vars(namespace))))


def read_settings(argv: Sequence[str] | None) -> server.ServerSettings:
    """Returns the settings of a command line; exits with a one-line message on invalid usage."""
    parser = _parser()
    flags = vars(parser.parse_args(argv))
    settings = server.ServerSettings(
        **{name: value for name, value in flags.items() if name not in server.WITHOUT_EFFECT}
    )
    try:
        server.check_settings(settings)
    except server.ServingError as error:
        parser.error(str(error))
    return settings


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m export.serve",
        description=f"Serves SavedModels over gRPC and REST. Runs {STOCK_SERVER} if it is installed.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,  # the defaults are in `ServerSettings`
    )
    server.add_flags(parser)
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser


def _serve(settings: server.ServerSettings, without_effect: Sequence[str]) -> None:
    server.write_to_stderr(settings.log_level)
    with _input_errors():
        embedded = server.ModelServer(settings)
        print(f"{STOCK_SERVER} is not on the PATH; running the embedded server instead", flush=True)
        if without_effect:
            print(f"ignored by the embedded server: --{', --'.join(without_effect)}", flush=True)
        embedded.listen()  # While TensorFlow starts, requests already get the response that the model is loading.
        os.environ["KERAS_BACKEND"] = "tensorflow"  # TensorFlow Text imports Keras
        with without_packages("jax", "matplotlib"):  # TensorFlow and Keras import them where they are installed
            _load_tensorflow()
        if not (settings.xla_cpu_compilation_enabled or settings.xla_gpu_compilation_enabled):
            _disable_xla()
        ready = embedded.start()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    print(ready, flush=True)
    stopped.wait()
    embedded.stop()


@contextlib.contextmanager
def _input_errors() -> Iterator[None]:
    """Converts the server's errors to `InputError`, which commands print as one line."""
    try:
        yield
    except server.ServingError as error:
        raise InputError(str(error)) from error


def _load_tensorflow() -> None:
    if "tensorflow_text" in sys.modules:
        return
    with without_greeting():
        importlib.import_module("tensorflow_text")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # hides that the TF1 loader, which is used, is deprecated
    # The modules loaded so far are never freed; scanning them for garbage would block all requests for 0.2 seconds.
    gc.collect()
    gc.freeze()


def _disable_xla() -> None:
    """Disables XLA compilation in this process, which is the stock server's default."""
    package = importlib.util.find_spec("tensorflow").submodule_search_locations[0]  # type: ignore[union-attr, index]
    try:
        ctypes.CDLL(str(Path(package, "libtensorflow_cc.so.2")))["_ZN10tensorflow21DisableXlaCompilationEv"]()
    except (OSError, AttributeError) as error:  # on other systems the library has another name
        print(f"XLA stays enabled: {error}", file=sys.stderr)


def _exec_stock_server(program: str, flags: Mapping[str, Any], others: Sequence[str]) -> NoReturn:
    """Replaces this process by the stock server, without the flags that it does not support."""
    own = sorted(server.own_flags() & set(flags))
    if own:
        print(f"ignored, because {STOCK_SERVER} has no such flag: --{', --'.join(own)}", file=sys.stderr)
    sys.stdout.flush()
    os.execv(program, [program, *(_spell(name, value) for name, value in flags.items() if name not in own), *others])


def _spell(name: str, value: Any) -> str:
    """Returns a flag in the stock server's syntax: an equals sign, whole numbers, absolute paths."""
    if isinstance(value, bool):
        value = str(value).lower()
    elif name == "model_base_path" and "://" not in value:
        value = os.path.abspath(value)
    elif isinstance(value, float) and value.is_integer():  # The stock server declares most of these as integers.
        value = int(value)
    return f"--{name}={value}"


def command() -> NoReturn:
    """Runs the command and ends the process with its exit status."""
    status = run_command(main)
    sys.stdout.flush()
    sys.stderr.flush()
    # All requests are done. Python's own exit would abort the process, because it cannot unwind the threads of gRPC and
    # TensorFlow that are still in C++.
    os._exit(status)


if __name__ == "__main__":
    command()
