"""Serves models over gRPC and REST: `python -m export.serve --model_name NAME --model_base_path BASE`.

The flags are those of `tensorflow_model_server`. Where that program is on the PATH it is run instead, with the same
flags; elsewhere the server in `export.server` stands in for it and says so.
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
from zoo.cli import ArgumentParser, run_command
from zoo.errors import InputError
from zoo.startup import without_greeting, without_onednn

STOCK_SERVER = "tensorflow_model_server"


class ModelServer(server.ModelServer):
    """The stand-in server for one model, as a Python program starts and stops it.

    Args:
        name: The model's name in requests.
        base_path: The directory whose numbered directories are versions of a SavedModel.
        port: The gRPC port; 0 picks a free one.
        rest_port: The REST port; 0 picks a free one, `None` means no REST.
        **others: Further `ServerSettings` by name.

    Raises:
        InputError: A port cannot be had, or there is no version.
    """

    def __init__(self, name: str, base_path: Path, port: int, rest_port: int | None = None, **others: Any):
        settings = server.ServerSettings(name, str(base_path), port=port, rest_api_port=rest_port, **others)
        with _input_errors():
            super().__init__(settings)

    def start(self) -> str:
        """Loads the models and starts to answer; returns one line that says what is served and where."""
        with _input_errors():
            _load_tensorflow()
            return super().start()


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for models that cannot be loaded, ports that are taken and wrong files."""
    without_onednn()
    namespace, unknown = _parser().parse_known_args(argv)
    if stock := shutil.which(STOCK_SERVER):
        _become(stock, vars(namespace), unknown)
    if "version" in namespace:
        print(f"TensorFlow ModelServer: embedded stand-in of {importlib.metadata.version('attention-zoo')}")
        print(f"TensorFlow Library: {importlib.metadata.version('tensorflow')}")
        return
    _serve(read_settings(argv), sorted(server.WITHOUT_EFFECT & set(vars(namespace))))


def read_settings(argv: Sequence[str] | None) -> server.ServerSettings:
    """Returns the settings that a command line gives; ends the process with one line on bad usage."""
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
        description=f"Serves SavedModels over gRPC and REST. Runs {STOCK_SERVER} where there is one.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,  # flags that are not given; the defaults are in `ServerSettings`
    )
    server.add_flags(parser)
    parser.add_argument("--version", action="store_true", help="print the version")
    return parser


def _serve(settings: server.ServerSettings, without_effect: Sequence[str]) -> None:
    server.write_to_stderr(settings.log_level)
    with _input_errors():
        stand_in = server.ModelServer(settings)
        print(f"{STOCK_SERVER} is not on the PATH; the embedded server stands in for it", flush=True)
        if without_effect:
            print(f"without effect in the embedded server: --{', --'.join(without_effect)}", flush=True)
        stand_in.listen()  # that the models are loading is said while TensorFlow starts, too
        _load_tensorflow()
        if not (settings.xla_cpu_compilation_enabled or settings.xla_gpu_compilation_enabled):
            _disable_xla()
        ready = stand_in.start()
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    print(ready, flush=True)
    stopped.wait()
    stand_in.stop()


@contextlib.contextmanager
def _input_errors() -> Iterator[None]:
    """Turns the server's errors into those that commands print as one line."""
    try:
        yield
    except server.ServingError as error:
        raise InputError(str(error)) from error


def _load_tensorflow() -> None:
    if "tensorflow_text" in sys.modules:
        return
    with without_greeting():
        importlib.import_module("tensorflow_text")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # the TF1 loader is deprecated; what it does is wanted
    # What has been loaded by now stays; collecting garbage among it would stop all requests for a fifth of a second.
    gc.collect()
    gc.freeze()


def _disable_xla() -> None:
    """Makes this whole process refuse to compile with XLA, as the stock server does unless told otherwise."""
    package = importlib.util.find_spec("tensorflow").submodule_search_locations[0]  # type: ignore[union-attr, index]
    try:
        ctypes.CDLL(str(Path(package, "libtensorflow_cc.so.2")))["_ZN10tensorflow21DisableXlaCompilationEv"]()
    except (OSError, AttributeError) as error:  # on other systems the library has another name
        print(f"XLA stays enabled: {error}", file=sys.stderr)


def _become(program: str, flags: Mapping[str, Any], others: Sequence[str]) -> NoReturn:
    """Replaces this process by the stock server, leaving out flags that it does not have."""
    own = sorted(server.own_flags() & set(flags))
    if own:
        print(f"left out, as {STOCK_SERVER} has no such flag: --{', --'.join(own)}", file=sys.stderr)
    sys.stdout.flush()
    os.execv(program, [program, *(_spell(name, value) for name, value in flags.items() if name not in own), *others])


def _spell(name: str, value: Any) -> str:
    """Returns a flag as the stock server takes it: an equals sign, whole numbers, absolute paths."""
    if isinstance(value, bool):
        value = str(value).lower()
    elif name == "model_base_path" and "://" not in value:
        value = os.path.abspath(value)
    elif isinstance(value, float) and value.is_integer():  # most of what is a float here is a whole number there
        value = int(value)
    return f"--{name}={value}"


def command() -> NoReturn:
    """Runs the command and ends the process with its exit status."""
    status = run_command(main)
    sys.stdout.flush()
    sys.stderr.flush()
    # All requests are answered. Threads of gRPC and TensorFlow that are still in C++ cannot be unwound by Python's
    # own exit, which then aborts the process.
    os._exit(status)


if __name__ == "__main__":
    command()
