"""The server and the models of the cases of serving."""

import http.client
import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import grpc

from benchmarks.faults.table import Stage
from benchmarks.faults.training import finished
from benchmarks.serving.protocol import Response
from benchmarks.serving.server import HOST, OPTIONS, Server, serving

SECONDS = 60  # for a response, on a busy machine
TEXT = "the apple fell from the tree"


class Attacked(Server):
    """`export.serve` over gRPC and REST."""

    def __init__(self, base: Path, *flags: str):
        super().__init__(base, "--file_system_poll_wait_seconds=0.2", *flags)

    def channel(self) -> grpc.Channel:
        """Returns a new gRPC channel, to be closed."""
        return grpc.insecure_channel(self.address, OPTIONS)

    def connect(self) -> http.client.HTTPConnection:
        """Returns a new REST connection, to be closed."""
        return http.client.HTTPConnection(HOST, self.rest_port, timeout=SECONDS)

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process."""
        self._process.send_signal(number)

    def handles_sigterm(self) -> bool:
        """Returns whether the process has installed a handler for SIGTERM."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
        return bool(caught >> (signal.SIGTERM - 1) & 1)

    def status(self) -> int:
        """Waits for the end of the process and returns its exit status."""
        return self._process.wait(SECONDS)

    def errors(self) -> str:
        """Returns the standard error of the process."""
        file = self._errors.fileno()  # read without moving the offset, at which the server writes
        return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")


def attacked(base: Path) -> AbstractContextManager[Attacked]:
    """Serves a model for the length of the block."""
    return serving(base, kind=Attacked)


def classifier(stage: Stage) -> Path:
    """Returns the base path of an exported text classifier."""
    base = stage.shared / "classifier"
    if not base.exists():
        from export.saved_model import export_saved_model

        export_saved_model(finished(stage)[0], base, 1)
    return base


def numbering(stage: Stage, version: int) -> Path:
    """Returns the directory of a version of a model that appends the number of the version to texts."""
    folder = stage.shared / "numbering" / str(version)
    if not folder.exists():
        import tensorflow as tf

        model = tf.Module()
        model.number = tf.Variable(float(version))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def append(text):
            number = tf.strings.as_string(tf.cast(model.number, tf.int32))
            return {"text": tf.strings.join([text, number]), "log_prob": tf.fill(tf.shape(text), model.number)}

        tf.saved_model.save(model, str(folder), signatures=append)
    return folder


def numbered(text: str, version: int) -> Response:
    """Returns the response of a version of that model."""
    return Response((f"{text}{version}",), (float(version),))
