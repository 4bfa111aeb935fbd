"""A server in a process of its own, started as users start it: the stock one where it is on the PATH."""

import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psutil

from benchmarks.process import Process
from benchmarks.serving.questions import MODEL
from export.wire.protos import get_model_status_pb2, model_service_pb2_grpc

HOST = "127.0.0.1"
# Threads of an operation, as in the deployment files: most operations of decoding are too small for two.
THREADS = 1
SECONDS = 120  # for an answer
START = 600  # seconds for a server to start: TensorFlow itself takes long on a busy machine
# One connection for each channel, of any size of message; never through a proxy.
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.create_server(("", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class Server(Process):
    """`export.serve` with one model and more flags, to be closed; `base` has the versions."""

    def __init__(self, base: Path, *flags: str):
        self.port, self.rest_port = free_port(), free_port()
        self.address = f"{HOST}:{self.port}"
        places = [f"--port={self.port}", f"--rest_api_port={self.rest_port}"]
        places += [f"--model_name={MODEL}", f"--model_base_path={base}"]
        threads = f"--tensorflow_intra_op_parallelism={THREADS}"
        command = [sys.executable, "-m", "export.serve", *places, threads, *flags]
        super().__init__(command, {"CUDA_VISIBLE_DEVICES": "-1"})

    def close(self) -> None:
        self._process.terminate()
        super().close()

    def memory(self) -> int:
        """Returns the bytes that it has in memory."""
        return psutil.Process(self.pid).memory_info().rss

    def processor_time(self) -> float:
        """Returns the processor time that it has used, in seconds, of all cores together."""
        return sum(psutil.Process(self.pid).cpu_times()[:2])

    def versions(self) -> set[int]:
        """Returns the versions that answer; none while it starts."""
        available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        return {version for version, state in self.states().items() if state == available}

    def states(self) -> dict[int, int]:
        """Returns the state of each version; of none while it starts."""
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = MODEL
        with grpc.insecure_channel(self.address, OPTIONS) as channel:
            try:
                status = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=5)
            except grpc.RpcError:
                return {}
        return {entry.version: entry.state for entry in status.model_version_status}

    def wait(self) -> None:
        """Returns when a version answers; raises `Failed` if the server has ended, or `TimeoutError`."""
        wait_until(lambda: self.versions() or self.has_ended)
        if self.has_ended:
            self._answers.read()  # its greeting; what it says next is why it has ended
            self.answer()


def wait_until(condition: Callable[[], object], seconds: float = START) -> None:
    """Returns when a condition holds; raises `TimeoutError` if that takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"What was waited for did not come within {seconds:g} s.")
        time.sleep(0.2)


@contextlib.contextmanager
def serving(base: Path, *flags: str) -> Iterator[Server]:
    """Serves a model for the length of the block; see `Server`."""
    with Server(base, *flags) as server:
        server.wait()
        yield server


def publish(export: Path, base: Path, version: int) -> None:
    """Makes an export appear, whole, as a version under another base path; the files are shared."""
    coming = base / f".coming-{version}"
    shutil.copytree(export, coming, copy_function=os.link)
    coming.rename(base / str(version))
