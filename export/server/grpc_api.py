"""The gRPC side: the official services over `handlers`, with health and reflection."""

import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from export.server.config_files import read_ssl
from export.server.deadline import GRPC, Call
from export.server.handlers import Handlers
from export.server.ports import open_port
from export.server.settings import Settings, channel_arguments
from export.server.status import RequestError
from export.wire.protos import (
    model_service_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2,
    prediction_service_pb2_grpc,
)
from zoo.errors import InputError

_OPTIONS = {
    "grpc.max_receive_message_length": -1,  # no limit, as in the stock server
    "grpc.max_send_message_length": -1,
    "grpc.so_reuseport": 0,  # a port in use is an error, not a second listener
}
_FOREVER = 1e6  # seconds
_HEALTH_THREAD = futures.ThreadPoolExecutor(1, "health")
_PREDICTION = prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"].full_name
_MODEL = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name


class _PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, handlers: Handlers):
        self._handlers = handlers

    def Predict(self, request, context):
        return _answer(self._handlers.predict, request, context)

    def Classify(self, request, context):
        return _answer(self._handlers.classify, request, context)

    def Regress(self, request, context):
        return _answer(self._handlers.regress, request, context)

    def MultiInference(self, request, context):
        return _answer(self._handlers.multi_inference, request, context)

    def GetModelMetadata(self, request, context):
        return _answer(self._handlers.get_metadata, request, context)


class _ModelService(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, handlers: Handlers):
        self._handlers = handlers

    def GetModelStatus(self, request, context):
        return _answer(self._handlers.get_status, request, context)

    def HandleReloadConfigRequest(self, request, context):
        return _answer(self._handlers.reload_config, request, context)


class _HealthService(health.HealthServicer):
    """Health that waits for no thread behind requests."""

    def __init__(self):
        super().__init__(experimental_thread_pool=_HEALTH_THREAD)

    def Check(self, request, context):
        return super().Check(request, context)

    Check.experimental_thread_pool = _HEALTH_THREAD  # type: ignore[attr-defined]


def _answer(handler: Callable, request, context: grpc.ServicerContext):
    remaining = context.time_remaining()
    # A call without a deadline is said to have hundreds of millions of years.
    deadline = None if remaining is None or remaining > _FOREVER else time.monotonic() + remaining
    try:
        return handler(request, Call(GRPC, deadline, lambda: not context.is_active()))
    except RequestError as error:
        context.abort(error.code, error.message)


class GrpcServer:
    """The gRPC server, bound on construction and answering after `start`.

    Args:
        handlers: What answers.
        settings: Where to listen, how many calls at a time, TLS.

    Attributes:
        port: The port it listens on; `None` where it listens on a socket only.

    Raises:
        InputError: The port or the socket cannot be had, or the TLS configuration is wrong.
    """

    def __init__(self, handlers: Handlers, settings: Settings):
        self._server = grpc.server(
            futures.ThreadPoolExecutor(settings.grpc_max_threads, "grpc"),
            options=list((_OPTIONS | channel_arguments(settings.grpc_channel_arguments)).items()),
            maximum_concurrent_rpcs=settings.max_queued_requests,
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_PredictionService(handlers), self._server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(_ModelService(handlers), self._server)
        names = [_PREDICTION, _MODEL]
        self._health = _HealthService() if settings.enable_grpc_healthcheck_service else None
        if self._health is not None:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
            names.append(health.SERVICE_NAME)
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)
        self.port = self._listen(settings)

    def start(self) -> None:
        """Starts to answer."""
        self._server.start()
        if self._health is not None:
            for service in ("", _PREDICTION, _MODEL):
                self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace: float) -> None:
        """Refuses new requests and gives those in progress `grace` seconds."""
        if self._health is not None:
            self._health.enter_graceful_shutdown()
        self._server.stop(grace).wait()

    def _listen(self, settings: Settings) -> int | None:
        credentials = _credentials(settings.ssl_config_file) if settings.ssl_config_file else None
        if settings.grpc_socket_path:
            path = Path(settings.grpc_socket_path)
            try:
                _add_port(self._server, f"unix:{path.absolute()}", credentials)
            except RuntimeError as error:
                raise InputError(f"--grpc_socket_path {path} cannot be listened on.") from error
            if settings.port == 0:
                return None
        open_port(settings.host, settings.port, "--port").close()  # gRPC would only log why it fails
        return _add_port(self._server, f"{settings.host}:{settings.port}", credentials)


def _add_port(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    return server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)


def _credentials(path: str) -> grpc.ServerCredentials:
    config = read_ssl(path)
    if config.client_verify and not config.custom_ca:
        raise InputError(f"--ssl_config_file {path}: client_verify needs a custom_ca to verify clients by.")
    if not (config.server_key and config.server_cert):
        raise InputError(f"--ssl_config_file {path}: server_key and server_cert are needed, as PEM texts.")
    credentials = grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )
    try:  # Where listening fails gRPC does not say whether the address or the texts are at fault.
        _add_port(grpc.server(futures.ThreadPoolExecutor(1)), "localhost:0", credentials)
    except RuntimeError as error:
        raise InputError(
            f"--ssl_config_file {path}: server_key and server_cert are no PEM pair, or custom_ca is no PEM text."
        ) from error
    return credentials
