"""Serves a model over gRPC and REST: `python -m export.serve --model_name NAME --model_base_path BASE`.

The flags are those of `tensorflow_model_server`. Where that program is on the PATH it is run instead, with the same
flags; elsewhere the server in `export.server` stands in for it and says so.
"""

import logging
import os
import shutil
import signal
import sys
import threading
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from export.server.grpc_api import GrpcServer
from export.server.rest_api import RestServer
from export.server.versions import ModelVersions, newest_version
from zoo.cli import ArgumentParser, run_command
from zoo.errors import InputError
from zoo.quiet import without_greeting

STOCK_SERVER = "tensorflow_model_server"
DRAIN_SECONDS = 20.0
_HOST = "0.0.0.0"  # every interface, as the stock server


class ModelServer:
    """The embedded server: one model, its versions followed, answered over gRPC and, if asked for, REST.

    The ports are bound on construction, the model is loaded by `start`.

    Args:
        name: The model's name in requests.
        base_path: The directory whose numbered directories are versions of a SavedModel.
        port: The gRPC port; 0 picks a free one.
        rest_port: The REST port; 0 picks a free one, `None` means no REST.
        host: The address to listen on.

    Raises:
        InputError: A port cannot be had.

    Example:
        server = ModelServer("dates", Path("exported"), port=0)
        server.start()
        print(server.port)
        server.stop()
    """

    def __init__(self, name: str, base_path: Path, port: int, rest_port: int | None = None, host: str = _HOST):
        self.versions = ModelVersions(name, base_path, _load)
        self._grpc = GrpcServer(self.versions, host, port)
        self._rest = None if rest_port is None else RestServer(self.versions, host, rest_port)
        self._host = host

    @property
    def port(self) -> int:
        """The gRPC port."""
        return self._grpc.port

    @property
    def rest_port(self) -> int | None:
        """The REST port, or `None`."""
        return None if self._rest is None else self._rest.port

    def start(self) -> str:
        """Loads the newest version and starts to answer.

        Returns:
            One line that says what is served and where.

        Raises:
            InputError: There is no version, or the newest cannot be loaded.
        """
        try:
            version = self.versions.load_newest()
        except InputError:
            self.stop(grace=0.0)
            raise
        self.versions.start_polling()
        self._grpc.start()
        ready = f"serving {self.versions.name} version {version}: gRPC on {self._host}:{self.port}"
        if self._rest is None:
            return ready
        self._rest.start()
        return f"{ready}, REST on {self._host}:{self.rest_port}"

    def stop(self, grace: float = DRAIN_SECONDS) -> None:
        """Refuses new requests, gives those in progress `grace` seconds, and ends."""
        self.versions.stop()
        self._grpc.stop(grace)
        if self._rest is not None:
            self._rest.stop(grace)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        argv: Arguments without the program's name; `None` means those of the process.

    Raises:
        InputError: The model cannot be found or loaded, or a port cannot be had.
    """
    parser = _parser()
    flags, others = parser.parse_known_args(argv)
    stock = shutil.which(STOCK_SERVER)
    if stock is not None:
        _become(stock, flags, others)
    if others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    base_path = Path(flags.model_base_path)
    newest_version(base_path)  # A wrong path is reported before the seconds that TensorFlow takes to start.
    server = ModelServer(flags.model_name, base_path, flags.port, flags.rest_api_port)
    print(f"{STOCK_SERVER} is not on the PATH; the embedded server stands in for it", flush=True)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)  # the TF1 loader is deprecated; what it does is wanted
    ready = server.start()
    stopped = _stop_signals()
    print(ready, flush=True)
    stopped.wait()
    server.stop()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m export.serve",
        description=f"Serves the newest version of a SavedModel. Runs {STOCK_SERVER} where there is one.",
        allow_abbrev=False,
    )
    parser.add_argument("--port", type=_port, default=8500, help="gRPC port (default 8500; 0 picks a free one)")
    parser.add_argument("--rest_api_port", type=_port, help="REST port (default none; 0 picks a free one)")
    parser.add_argument("--model_name", default="default", help="the name that requests give (default: default)")
    parser.add_argument("--model_base_path", required=True, help="the directory that holds the numbered versions")
    return parser


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise ArgumentTypeError(f"a port is a number from 0 to 65535. Received: {text!r}")
    return int(text)


def _become(program: str, flags, others: Sequence[str]) -> None:
    """Replaces this process by the stock server, whose flags have to be written with an equals sign."""
    known = [f"--{name}={value}" for name, value in vars(flags).items() if value is not None]
    sys.stdout.flush()
    os.execv(program, [program, *known, *others])


def _load(path: Path, version: int):
    with without_greeting():
        from export.server.models import LoadedModel  # here, so that usage and bad paths need no TensorFlow

        return LoadedModel(path, version)


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
