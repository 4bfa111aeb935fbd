"""A server in a process of its own, started as users start it."""

import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import grpc
import psutil

from benchmarks.runner.process import Process
from benchmarks.serving.protocol import MODEL
from export.wire.protos import get_model_status_pb2, model_service_pb2_grpc

HOST = "127.0.0.1"
# Threads of an operation, as in the deployment files: most operations of decoding are too small for two.
THREADS = 1
SECONDS = 120  # for a response
START = 600  # seconds for a server to start: importing TensorFlow takes long on a busy machine
# One connection for each channel, messages of any size, no proxy.
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


def free_port() -> int:
    """Returns a port on which no process listens."""
    with socket.create_server(("", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class ServerProcess(Process):
    """A process that serves at `address` until it is closed."""

    address: str

    def close(self) -> None:
        self._process.terminate()
        super().close()

    def memory(self) -> int:
        """Returns the resident memory in bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def processor_time(self) -> float:
        """Returns the processor time used so far, in seconds, summed over all cores."""
        return float(sum(psutil.Process(self.pid).cpu_times()[:2]))


class Server(ServerProcess):
    """`export.serve` with one model and further flags; `base` contains the versions."""

    def __init__(self, base: Path, *flags: str):
        self.port, self.rest_port = free_port(), free_port()
        self.address = f"{HOST}:{self.port}"
        model = [f"--model_name={MODEL}", f"--model_base_path={base}"]
        options = [f"--rest_api_port={self.rest_port}", f"--tensorflow_intra_op_parallelism={THREADS}", *flags]
        command = [sys.executable, "-m", "export.serve", f"--port={self.port}", *model, *options]
        super().__init__(command, {"CUDA_VISIBLE_DEVICES": "-1"})

    def versions(self) -> set[int]:
        """Returns the versions that are available; none while the server starts."""
        available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        return {version for version, state in self.states().items() if state == available}

    def states(self) -> dict[int, int]:
        """Returns the state of each version; none while the server starts."""
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = MODEL
        with grpc.insecure_channel(self.address, OPTIONS) as channel:
            try:
                status = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=5)
            except grpc.RpcError:
                return {}
        return {entry.version: entry.state for entry in status.model_version_status}

    def wait(self) -> None:
        """Returns when a version is available; raises `Failed` if the server has ended, or `TimeoutError`."""
        wait_until(lambda: self.versions() or self.has_ended)
        if self.has_ended:
            self._responses.read()  # skips its greeting
            self.receive()  # raises `Failed` with the last line on standard error


def wait_until(condition: Callable[[], object], seconds: float = START) -> None:
    """Returns when a condition holds; raises `TimeoutError` if that takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"The condition did not hold within {seconds:g} s.")
        time.sleep(0.2)


Served = TypeVar("Served", bound=Server)


@contextlib.contextmanager
def serving(base: Path, *flags: str, kind: type[Served] = Server) -> Iterator[Served]:  # type: ignore[assignment]
    """Serves a model for the length of the block; see `Server`."""
    with kind(base, *flags) as server:
        server.wait()
        yield server


def publish(export: Path, base: Path, version: int) -> None:
    """Adds an export to a base path as a version, in one step; the files are hard links."""
    coming = base / f".coming-{version}"
    shutil.copytree(export, coming, copy_function=os.link)
    coming.rename(base / str(version))
