"""The gRPC server: the official services, health and reflection."""

import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from export.server.config_files import read_config
from export.server.context import GRPC, RequestContext
from export.server.errors import RequestError, ServingError
from export.server.settings import ServerSettings, channel_arguments
from export.wire.protos import model_service_pb2, prediction_service_pb2

Answer = Callable[[str, Any, RequestContext], Any]  # method name, request and context to response
Count = Callable[[str, str, str, grpc.StatusCode, float], None]  # model, method, entrypoint, status, seconds
_OPTIONS = {
    "grpc.max_send_message_length": -1,  # no limit, as in the stock server
    "grpc.so_reuseport": 0,  # a port in use is an error, not a second listener
}
_FOREVER = 1e6  # seconds
_OTHERS = 4  # threads for reflection
# Timeout in seconds for receiving the message of a call that has a thread; shorter while other calls wait for one.
_PATIENCE, _PATIENCE_WHEN_BUSY = 10.0, 2.0
_HEALTH_THREAD = futures.ThreadPoolExecutor(1, "health")
_SERVICES = [
    prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"],
    model_service_pb2.DESCRIPTOR.services_by_name["ModelService"],
]


class _HealthService(health.HealthServicer):
    """The health service with its own thread, so that it never waits for requests."""

    def __init__(self) -> None:
        super().__init__(experimental_thread_pool=_HEALTH_THREAD)

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        return super().Check(request, context)

    Check.experimental_thread_pool = _HEALTH_THREAD  # type: ignore[attr-defined]


class _Calls(grpc.GenericRpcHandler):
    """The handler of the official services; it limits the number of concurrent calls and counts every call.

    gRPC's own limit would reject health checks, too, and does not report calls that it rejects or that end before they
    have a thread. All handlers are stream handlers, because gRPC calls these even if a call has ended.
    """

    def __init__(self, answer: Answer, count: Count, settings: ServerSettings):
        self._answer = answer
        self._count = count
        self._most, self._max_threads = settings.max_queued_requests, settings.grpc_max_threads
        self._in_progress = 0
        self._changing = threading.Lock()
        self._receiving: dict[grpc.ServicerContext, float] = {}  # start times
        self._stopped = threading.Event()
        self._threads = futures.ThreadPoolExecutor(settings.grpc_max_threads, "grpc")
        self._refusing = futures.ThreadPoolExecutor(1, "grpc-refused")
        self._handlers = {
            f"/{service.full_name}/{method.name}": (
                _handler(self._serve, method, self._threads),
                _handler(self._refuse, method, self._refusing),
            )
            for service in _SERVICES
            for method in service.methods
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns the handler that serves or rejects an arriving call."""
        if handler_call_details.method not in self._handlers:
            return None
        serve, refuse = self._handlers[handler_call_details.method]
        with self._changing:
            if self._in_progress >= self._most:
                return refuse
            self._in_progress += 1
        return serve

    def start(self) -> None:
        """Starts the thread that cancels calls whose message does not arrive."""
        threading.Thread(target=self._end_slow_calls, name="grpc-slow", daemon=True).start()

    def stop(self) -> None:
        """Ends the threads."""
        self._stopped.set()
        self._threads.shutdown(wait=False)
        self._refusing.shutdown(wait=False)

    def _serve(self, method: MethodDescriptor, messages: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        try:
            request = self._receive(method, messages, context)
            remaining = context.time_remaining()
            # For a call without a deadline, gRPC reports hundreds of millions of years.
            deadline = None if remaining is None or remaining > _FOREVER else time.monotonic() + remaining
            return self._answer(method.name, request, RequestContext(GRPC, deadline, lambda: not context.is_active()))
        except RequestError as error:
            context.abort(error.code, error.message)
        finally:
            with self._changing:
                self._in_progress -= 1

    def _receive(self, method: MethodDescriptor, messages: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        self._receiving[context] = time.monotonic()
        status = grpc.StatusCode.OK
        try:
            return message_factory.GetMessageClass(method.input_type).FromString(next(messages))
        except DecodeError:
            status = grpc.StatusCode.INTERNAL
            raise RequestError(status, "Exception deserializing request!") from None
        except StopIteration:
            status = grpc.StatusCode.UNIMPLEMENTED
            raise RequestError(status, f"{method.full_name} requires exactly one request message.") from None
        except grpc.RpcError:  # the client disconnected, or the deadline has passed
            status = grpc.StatusCode.CANCELLED if context.time_remaining() else grpc.StatusCode.DEADLINE_EXCEEDED
            raise
        finally:
            del self._receiving[context]
            if status is not grpc.StatusCode.OK:
                self._count("", method.name, GRPC, status, 0.0)

    def _refuse(self, method: MethodDescriptor, messages: Iterator[bytes], context: grpc.ServicerContext) -> None:
        self._count("", method.name, GRPC, grpc.StatusCode.RESOURCE_EXHAUSTED, 0.0)
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")

    def _end_slow_calls(self) -> None:
        while not self._stopped.wait(_PATIENCE_WHEN_BUSY / 8):
            patience = _PATIENCE_WHEN_BUSY if self._in_progress > self._max_threads else _PATIENCE
            cutoff = time.monotonic() - patience
            for context, since in list(self._receiving.items()):
                if since < cutoff:
                    context.cancel()


class GrpcServer:
    """The gRPC server; the constructor binds the port and may raise ServingError, `start` accepts calls.

    Attributes:
        port: The port it listens on; `None` if it listens only on a socket.
    """

    def __init__(self, answer: Answer, count: Count, settings: ServerSettings):
        own = _OPTIONS | {"grpc.max_receive_message_length": settings.max_request_bytes}
        options = own | channel_arguments(settings.grpc_channel_arguments)
        self._server = grpc.server(futures.ThreadPoolExecutor(_OTHERS, "grpc-other"), options=list(options.items()))
        self._calls = _Calls(answer, count, settings)
        self._server.add_generic_rpc_handlers([self._calls])
        names = [service.full_name for service in _SERVICES]
        self._health = _HealthService() if settings.enable_grpc_healthcheck_service else None
        if self._health is not None:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
            names.append(health.SERVICE_NAME)
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)
        self.port = self._listen(settings)

    def start(self) -> None:
        """Accepts calls, with health NOT_SERVING."""
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._server.start()
        self._calls.start()

    def is_ready(self) -> None:
        """Sets health to SERVING."""
        self._set_health(health_pb2.HealthCheckResponse.SERVING)

    def _set_health(self, status: Any) -> None:
        if self._health is not None:
            for service in ("", *(service.full_name for service in _SERVICES)):
                self._health.set(service, status)

    def stop(self, grace: float) -> None:
        """Rejects new requests and waits `grace` seconds for those in progress."""
        if self._health is not None:
            self._health.enter_graceful_shutdown()
        self._server.stop(grace).wait()
        self._calls.stop()

    def _listen(self, settings: ServerSettings) -> int | None:
        credentials = _credentials(settings.ssl_config_file) if settings.ssl_config_file else None
        if settings.grpc_socket_path:
            path = Path(settings.grpc_socket_path)
            try:
                _add_port(self._server, f"unix:{path.absolute()}", credentials)
            except RuntimeError as error:
                raise ServingError(f"--grpc_socket_path {path} cannot be listened on.") from error
            if settings.port == 0:
                return None
        open_port(settings.host, settings.port, "--port").close()  # gRPC would only log the reason of a failure
        return _add_port(self._server, f"{settings.host}:{settings.port}", credentials)


def open_port(host: str, port: int, flag: str) -> socket.socket:
    """Returns a listening socket; raises ServingError with the name of `flag` if the port is not available."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise ServingError(f"{flag} {port} cannot be listened on ({error.strerror}).") from error


def _handler(behavior: Any, method: MethodDescriptor, threads: futures.ThreadPoolExecutor) -> grpc.RpcMethodHandler:
    serve = functools.partial(behavior, method)
    serve.experimental_thread_pool = threads  # type: ignore[attr-defined]
    serialize = message_factory.GetMessageClass(method.output_type).SerializeToString
    return grpc.stream_unary_rpc_method_handler(serve, response_serializer=serialize)


def _add_port(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    return int(port)


def _credentials(path: str) -> grpc.ServerCredentials:
    config = read_config("ssl_config_file", path)
    if config.client_verify and not config.custom_ca:
        raise ServingError(f"--ssl_config_file {path}: client_verify requires custom_ca.")
    if not (config.server_key and config.server_cert):
        raise ServingError(f"--ssl_config_file {path}: server_key and server_cert are required, as PEM texts.")
    credentials = grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )
    try:  # Tested with a free port, because gRPC's error does not distinguish bad certificates from bad addresses.
        _add_port(grpc.server(futures.ThreadPoolExecutor(1)), "localhost:0", credentials)
    except RuntimeError as error:
        raise ServingError(
            f"--ssl_config_file {path}: server_key and server_cert are not a PEM pair, or custom_ca is not a PEM text."
        ) from error
    return credentials
