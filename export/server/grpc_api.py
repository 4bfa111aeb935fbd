"""The gRPC side: the official services over `handlers`."""

from collections.abc import Callable
from concurrent import futures

import grpc

from export.server import handlers
from export.server.ports import open_port
from export.server.protos import model_service_pb2_grpc, prediction_service_pb2_grpc
from export.server.status import RequestError
from export.server.versions import ModelVersions

# Threads wait while TensorFlow computes, so more of them than cores keep in-graph batching supplied.
_THREADS = 32
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # no limit, as in the stock server
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a second listener
]


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, versions: ModelVersions):
        self._versions = versions

    def Predict(self, request, context):
        return _answer(handlers.predict, self._versions, request, context)

    def GetModelMetadata(self, request, context):
        return _answer(handlers.get_metadata, self._versions, request, context)

    def _not_here(self, request, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "This server answers Predict and GetModelMetadata only.")

    Classify = Regress = MultiInference = _not_here


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, versions: ModelVersions):
        self._versions = versions

    def GetModelStatus(self, request, context):
        return _answer(handlers.get_status, self._versions, request, context)

    def HandleReloadConfigRequest(self, request, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "This server answers GetModelStatus only.")


def _answer(handler: Callable, versions: ModelVersions, request, context):
    try:
        return handler(versions, request)
    except RequestError as error:
        context.abort(error.code, error.message)


class GrpcServer:
    """The gRPC server, bound on construction and answering after `start`.

    Args:
        versions: What to serve.
        host: The address to listen on.
        port: The port; 0 picks a free one.

    Attributes:
        port: The port it listens on.

    Raises:
        InputError: The port cannot be had.
    """

    def __init__(self, versions: ModelVersions, host: str, port: int):
        self._server = grpc.server(futures.ThreadPoolExecutor(_THREADS, "grpc"), options=_OPTIONS)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionService(versions), self._server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(versions), self._server)
        open_port(host, port, "--port").close()  # gRPC would only log why it fails
        self.port = self._server.add_insecure_port(f"{host}:{port}")

    def start(self) -> None:
        """Starts to answer."""
        self._server.start()

    def stop(self, grace: float) -> None:
        """Refuses new requests and gives those in progress `grace` seconds."""
        self._server.stop(grace).wait()
