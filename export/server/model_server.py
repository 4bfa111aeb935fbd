"""The complete server, built from settings."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from export.server import logs
from export.server.api.grpc_server import GrpcServer
from export.server.api.http_server import HttpServer
from export.server.api.rest_server import RestApp
from export.server.api.services import Services
from export.server.batching import Batcher, BatchingParameters
from export.server.config_files import read_config
from export.server.errors import RequestError, ServingError
from export.server.metrics import Metrics
from export.server.models.core import ServerCore, single_model
from export.server.models.versions import require_versions
from export.server.settings import ServerSettings
from export.wire.protos import model_server_config_pb2

if TYPE_CHECKING:
    from export.server.models.saved_model import LoadedModel


class ModelServer:
    """A replacement for `tensorflow_model_server`: watches its models and serves them over gRPC and optionally REST.

    The constructor binds the ports and may raise ServingError; `listen` accepts requests; `start` loads the models.

    Attributes:
        core: The models.
        port: The gRPC port, or `None` if the server listens only on a UNIX socket.
        rest_port: The REST port, or `None`.
    """

    def __init__(self, settings: ServerSettings):
        self._settings = settings
        self._config = _read_models(settings)
        self._refusal = ""  # the error of the last configuration file, if it was rejected
        for model in self._config.model_config_list.config:
            require_versions(Path(model.base_path))  # before TensorFlow is imported, which takes seconds
        self._metrics = Metrics()
        self._batcher = _new_batcher(settings, self._metrics)
        self.core = ServerCore(self._load, settings.allow_version_labels_for_unavailable_models)
        services = Services(self.core, self._metrics, settings)
        self._grpc = GrpcServer(services.answer, services.count, settings)
        self._rest = None
        if settings.rest_api_port is not None:
            self._rest = HttpServer(RestApp(services, self._metrics, settings), settings)
        self.port, self.rest_port = self._grpc.port, self._rest.port if self._rest else None
        self._listens = False
        self._stopped = threading.Event()

    def listen(self) -> None:
        """Accepts requests; until `start` has loaded the models, each response is an error: the model is loading."""
        if self._listens:
            return
        self._listens = True
        self.core.announce(self._config)
        self._grpc.start()
        if self._rest is not None:
            self._rest.start()

    def start(self) -> str:
        """Loads the models, serves them and returns one line with their names and addresses.

        Raises ServingError if no version of a model can be loaded.
        """
        self.listen()
        try:
            self.core.start(self._config)
        except ServingError:
            self.stop(grace=0.0)
            raise
        self._grpc.is_ready()
        self._poll_every(self._settings.file_system_poll_wait_seconds, self.core.poll)
        if self._settings.model_config_file:
            self._poll_every(self._settings.model_config_file_poll_wait_seconds, self._poll_config)
        return f"serving {self._describe_models()}: {self._describe_addresses()}"

    def stop(self, grace: float | None = None) -> None:
        """Rejects new requests, waits `grace` seconds (default: `drain_seconds`) for those in progress, and stops."""
        grace = self._settings.drain_seconds if grace is None else grace
        self._stopped.set()
        servers = [server for server in (self._grpc, self._rest) if server is not None]
        stopping = [threading.Thread(target=server.stop, args=(grace,)) for server in servers]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        self.core.stop()
        if self._batcher is not None:
            self._batcher.stop()
        logs.info("stopped")

    def _load(self, path: Path, version: int) -> "LoadedModel":
        from export.server.models.loader import load  # imported late, since importing TensorFlow takes seconds

        return load(path, version, self._settings, self._batcher, self._metrics)

    def _poll_every(self, seconds: float, poll: Callable[[], None]) -> None:
        """Calls `poll` periodically in a separate thread; logs exceptions and continues."""

        def run() -> None:
            while not self._stopped.wait(seconds):
                try:
                    poll()
                except Exception as error:
                    logs.error("poll_failed", exception=error, thread=threading.current_thread().name)

        if seconds > 0:
            threading.Thread(target=run, name=f"poll-{poll.__name__}", daemon=True).start()

    def _poll_config(self) -> None:
        try:
            config = _read_models(self._settings)
            # A rejected configuration may become valid later, for example when the version of a label is loaded.
            if config != self._config or self._refusal:
                self._config = config
                self.core.reload(config)
            self._refusal = ""
        except (ServingError, RequestError) as error:
            if str(error) != self._refusal:
                logs.error("config_refused", error=str(error))
            self._refusal = str(error)

    def _describe_models(self) -> str:
        versions = {name: sorted(self.core.available(name)) for name in self.core.names()}
        return ", ".join(
            f"{name} version{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))}"
            for name, numbers in versions.items()
        )

    def _describe_addresses(self) -> str:
        host, socket = self._settings.host, self._settings.grpc_socket_path
        addresses = [f"gRPC on {host}:{self.port}"] if self.port is not None else []
        addresses += [f"gRPC on unix:{socket}"] if socket else []
        addresses += [f"REST on {host}:{self.rest_port}"] if self.rest_port is not None else []
        return ", ".join(addresses)


def _read_models(settings: ServerSettings) -> model_server_config_pb2.ModelServerConfig:
    if settings.model_config_file:
        return read_config("model_config_file", settings.model_config_file)
    return single_model(settings.model_name, Path(settings.model_base_path))


def _new_batcher(settings: ServerSettings, metrics: Metrics) -> Batcher | None:
    if not settings.enable_batching:
        return None
    parameters = BatchingParameters()
    if settings.batching_parameters_file:
        message = read_config("batching_parameters_file", settings.batching_parameters_file)
        parameters = BatchingParameters.from_message(message)
    return Batcher(parameters, lambda seconds: metrics.queued(parameters.thread_pool_name, seconds))
