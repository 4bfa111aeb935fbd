"""Serves models over gRPC and REST: `python -m export.serve --model_name NAME --model_base_path BASE`.

The flags are those of `tensorflow_model_server`. Where that program is on the PATH it is run instead, with the same
flags; elsewhere the server in `export.server` stands in for it and says so.
"""

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from export.server import logs
from export.server.embedded import EmbeddedServer
from export.server.settings import Command, Settings, read_command
from zoo.cli import run_command
from zoo.startup import without_greeting, without_onednn

STOCK_SERVER = "tensorflow_model_server"


class ModelServer(EmbeddedServer):
    """The embedded server for one model, as a Python program starts it.

    Args:
        name: The model's name in requests.
        base_path: The directory whose numbered directories are versions of a SavedModel.
        port: The gRPC port; 0 picks a free one.
        rest_port: The REST port; 0 picks a free one, `None` means no REST.
        **others: Further `Settings` by name.

    Raises:
        InputError: A port cannot be had, or there is no version.

    Example:
        server = ModelServer("dates", Path("exported"), port=0)
        server.start()
        print(server.port)
        server.stop()
    """

    def __init__(self, name: str, base_path: Path, port: int, rest_port: int | None = None, **others: Any):
        super().__init__(
            Settings(model_name=name, model_base_path=str(base_path), port=port, rest_api_port=rest_port, **others)
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        argv: Arguments without the program's name; `None` means those of the process.

    Raises:
        InputError: A model cannot be found or loaded, a port cannot be had, or a configuration file is wrong.
    """
    description = f"Serves SavedModels over gRPC and REST. Runs {STOCK_SERVER} where there is one."
    without_onednn()
    stock = shutil.which(STOCK_SERVER)
    command = read_command(argv, "python -m export.serve", description, for_stock=stock is not None)
    if stock is not None:
        _become(stock, command)
    if command.show_version:
        print(f"TensorFlow ModelServer: embedded stand-in of {_version('attention-zoo')}")
        print(f"TensorFlow Library: {_version('tensorflow')}")
        return
    logs.write_to_stderr(command.settings.log_level)
    server = EmbeddedServer(command.settings)
    print(f"{STOCK_SERVER} is not on the PATH; the embedded server stands in for it", flush=True)
    if command.without_effect:
        print(f"without effect in the embedded server: --{', --'.join(command.without_effect)}", flush=True)
    _load_tensorflow()
    if not (command.settings.xla_cpu_compilation_enabled or command.settings.xla_gpu_compilation_enabled):
        _disable_xla()
    ready = server.start()
    stopped = _stop_signals()
    print(ready, flush=True)
    stopped.wait()
    server.stop()


def _load_tensorflow() -> None:
    with without_greeting():
        importlib.import_module("export.server.models")
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
        logs.error("xla_still_enabled", error=str(error))


def _become(program: str, command: Command) -> None:
    """Replaces this process by the stock server."""
    version = ["--version"] if command.show_version else []
    if command.not_for_stock:
        print(f"left out, as {STOCK_SERVER} has no such flag: --{', --'.join(command.not_for_stock)}", file=sys.stderr)
    sys.stdout.flush()
    os.execv(program, [program, *command.for_stock, *version])


def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


def _stop_signals() -> threading.Event:
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


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
