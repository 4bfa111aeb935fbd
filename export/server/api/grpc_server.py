"""The gRPC side: the official services, health and reflection."""

import functools
import socket
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from export.server.config_files import read_config
from export.server.context import GRPC, RequestContext
from export.server.errors import RequestError, ServingError
from export.server.settings import Settings, channel_arguments
from export.wire.protos import model_service_pb2, prediction_service_pb2

Answer = Callable[[str, Any, RequestContext], Any]  # method name, request and context to response
_OPTIONS = {
    "grpc.max_receive_message_length": -1,  # no limit, as in the stock server
    "grpc.max_send_message_length": -1,
    "grpc.so_reuseport": 0,  # a port in use is an error, not a second listener
}
_FOREVER = 1e6  # seconds
_HEALTH_THREAD = futures.ThreadPoolExecutor(1, "health")
_SERVICES = [
    prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"],
    model_service_pb2.DESCRIPTOR.services_by_name["ModelService"],
]


class _HealthService(health.HealthServicer):
    """Health that waits for no thread that requests use."""

    def __init__(self) -> None:
        super().__init__(experimental_thread_pool=_HEALTH_THREAD)

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        return super().Check(request, context)

    Check.experimental_thread_pool = _HEALTH_THREAD  # type: ignore[attr-defined]


class GrpcServer:
    """The gRPC server; bound on construction, which raises ServingError, and answering after `start`.

    Attributes:
        port: The port it listens on; `None` where it listens on a socket only.
    """

    def __init__(self, answer: Answer, settings: Settings):
        self._server = grpc.server(
            futures.ThreadPoolExecutor(settings.grpc_max_threads, "grpc"),
            options=list((_OPTIONS | channel_arguments(settings.grpc_channel_arguments)).items()),
            maximum_concurrent_rpcs=settings.max_queued_requests,
        )
        self._server.add_generic_rpc_handlers([_service_handler(service, answer) for service in _SERVICES])
        names = [service.full_name for service in _SERVICES]
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
            for service in ("", *(service.full_name for service in _SERVICES)):
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
                raise ServingError(f"--grpc_socket_path {path} cannot be listened on.") from error
            if settings.port == 0:
                return None
        open_port(settings.host, settings.port, "--port").close()  # gRPC would only log why it fails
        return _add_port(self._server, f"{settings.host}:{settings.port}", credentials)


def open_port(host: str, port: int, flag: str) -> socket.socket:
    """Returns a listening socket; raises ServingError, naming `flag`, if the port cannot be had."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise ServingError(f"{flag} {port} cannot be listened on ({error.strerror}).") from error


def _service_handler(service: ServiceDescriptor, answer: Answer) -> grpc.GenericRpcHandler:
    methods = {
        method.name: grpc.unary_unary_rpc_method_handler(
            functools.partial(_respond, answer, method.name),
            request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
            response_serializer=message_factory.GetMessageClass(method.output_type).SerializeToString,
        )
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _respond(answer: Answer, method: str, request: Any, context: grpc.ServicerContext) -> Any:
    remaining = context.time_remaining()
    # A call without a deadline is said to have hundreds of millions of years.
    deadline = None if remaining is None or remaining > _FOREVER else time.monotonic() + remaining
    try:
        return answer(method, request, RequestContext(GRPC, deadline, lambda: not context.is_active()))
    except RequestError as error:
        context.abort(error.code, error.message)


def _add_port(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    return int(port)


def _credentials(path: str) -> grpc.ServerCredentials:
    config = read_config("ssl_config_file", path)
    if config.client_verify and not config.custom_ca:
        raise ServingError(f"--ssl_config_file {path}: client_verify needs a custom_ca to verify clients by.")
    if not (config.server_key and config.server_cert):
        raise ServingError(f"--ssl_config_file {path}: server_key and server_cert are needed, as PEM texts.")
    credentials = grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )
    try:  # Where listening fails gRPC does not say whether the address or the texts are at fault.
        _add_port(grpc.server(futures.ThreadPoolExecutor(1)), "localhost:0", credentials)
    except RuntimeError as error:
        raise ServingError(
            f"--ssl_config_file {path}: server_key and server_cert are no PEM pair, or custom_ca is no PEM text."
        ) from error
    return credentials
