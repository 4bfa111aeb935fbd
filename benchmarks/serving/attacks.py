"""Hostile requests, and the responses of the stock server to them.

The expected codes are those of the stock server's sources (`predict_util.cc`, `server_core.cc`) and of gRPC itself.
"""

import time
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np

from benchmarks.serving.protocol import METHOD, predict_request
from benchmarks.serving.server import OPTIONS, SECONDS, Server, serving
from export.wire.protos import predict_pb2
from export.wire.tensors import to_proto

LARGE, LIMIT = 24 << 20, 16 << 20  # bytes of a large message, and of the limit of `too_large`


class Attack(NamedTuple):
    """A hostile request or connection: its description, our status, and that of the stock server."""

    sent: str
    got: str
    stock: str
    message: str = ""


def requests(server: Server) -> list[Attack]:
    """Sends all requests but `too_large`."""
    return [_send(server, *arguments) for arguments in _requests()]


def too_large(base: Path) -> Attack:
    """Sends a large message to a server with a limit."""
    limit = f"--grpc_channel_arguments=grpc.max_receive_message_length={LIMIT}"
    with serving(base, limit, "--enable_model_warmup=false") as server:
        sent = f"{LARGE >> 20} MiB where {LIMIT >> 20} are allowed"
        return _send(server, sent, "RESOURCE_EXHAUSTED", _changed(text=np.zeros(LARGE // 4, np.float32)))


def _requests():
    """Yields the description of a request, the stock server's status, and the request."""
    yield "the wrong type", "INVALID_ARGUMENT", _changed(text=np.zeros(1, np.float32))
    yield "the wrong input", "INVALID_ARGUMENT", _changed(words=[b"A man."])
    yield "an input too many", "INVALID_ARGUMENT", _changed(text=[b"A man."], words=[b"A man."])
    yield "no input", "INVALID_ARGUMENT", _changed()
    yield "a filter of the wrong output", "INVALID_ARGUMENT", _named(output_filter="words")
    yield "the wrong signature", "FAILED_PRECONDITION", _named(signature_name="nowhere")
    yield "the wrong version", "NOT_FOUND", _named(version=9)
    yield "the wrong label", "INVALID_ARGUMENT", _named(version_label="nowhere")
    yield "the wrong model", "NOT_FOUND", _named(name="nobody")
    yield "no model", "INVALID_ARGUMENT", predict_pb2.PredictRequest()
    yield "no message of the protocol", "INTERNAL", b"\xff\xff\xff"
    yield f"{LARGE >> 20} MiB of the wrong type", "INVALID_ARGUMENT", _changed(text=np.zeros(LARGE // 4, np.float32))
    yield f"a text of {LARGE >> 20} MiB", "OK", _changed(text=[b"A man. " * (LARGE // 7)])


def _changed(**inputs) -> predict_pb2.PredictRequest:
    """Returns a valid request with these inputs instead of its own."""
    request = predict_request(["A man."])
    request.inputs.clear()
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(to_proto(np.asarray(values), as_content=True))
    return request


def _named(output_filter: str = "", version: int = 0, **names) -> predict_pb2.PredictRequest:
    """Returns a valid request with another name in its specification of the model or its filter of outputs."""
    request = predict_request(["A man."], [output_filter] if output_filter else ())
    if version:
        request.model_spec.version.value = version
    for field, name in names.items():
        setattr(request.model_spec, field, name)
    return request


def _send(server: Server, sent: str, stock: str, request: predict_pb2.PredictRequest | bytes) -> Attack:
    data = request if isinstance(request, bytes) else request.SerializeToString()
    began = time.monotonic()
    with grpc.insecure_channel(server.address, OPTIONS) as channel:
        try:
            size = len(channel.unary_unary(METHOD)(data, timeout=SECONDS))
        except grpc.RpcError as error:
            return Attack(sent, error.code().name, stock, " ".join(error.details().split()).replace("|", "\\|"))
        return Attack(sent, "OK", stock, f"{size:,} bytes, in {time.monotonic() - began:.1f} s")
