"""The embedded server put together: settings in, a running server out."""

import threading
from pathlib import Path

from export.server import logs
from export.server.batching import Batcher, BatchingParameters
from export.server.catalogue import Catalogue, single_model
from export.server.config_files import read_batching, read_models
from export.server.grpc_api import GrpcServer
from export.server.handlers import Handlers
from export.server.loading import Loader
from export.server.metrics import Metrics
from export.server.periodic import Every
from export.server.rest_api import RestApp, RestServer
from export.server.settings import Settings
from export.server.status import RequestError
from export.server.versions import some_versions
from export.wire.protos import model_server_config_pb2
from zoo.errors import InputError


class EmbeddedServer:
    """A stand-in for `tensorflow_model_server`: its models followed, answered over gRPC and, if asked for, REST.

    The ports are bound on construction, the models are loaded by `start`.

    Args:
        settings: What to serve, where and how.

    Attributes:
        catalogue: The models.

    Raises:
        InputError: A port cannot be had, or a configuration file is wrong.
    """

    def __init__(self, settings: Settings):
        self._settings = settings
        self._config = _configuration(settings)
        self._refusal = ""  # why the file was last refused
        for model in self._config.model_config_list.config:
            some_versions(Path(model.base_path))  # reported before the seconds that TensorFlow takes to start
        self._metrics = Metrics()
        self._batcher = self._new_batcher()
        self.catalogue = Catalogue(
            Loader(settings, self._batcher, self._metrics),
            settings.max_num_load_retries,
            settings.load_retry_interval_micros / 1e6,
            settings.allow_version_labels_for_unavailable_models,
        )
        handlers = Handlers(
            self.catalogue,
            self._metrics,
            settings.enable_serialization_as_tensor_content,
            settings.log_requests,
            settings.log_contents,
        )
        self._grpc = GrpcServer(handlers, settings)
        self._rest = None
        if settings.rest_api_port is not None:
            self._rest = RestServer(RestApp(handlers, settings, self._metrics), settings)
        self._polls = [
            Every(settings.file_system_poll_wait_seconds, self.catalogue.poll, "versions"),
            Every(settings.model_config_file_poll_wait_seconds, self._poll_config, "config"),
        ]

    @property
    def port(self) -> int | None:
        """The gRPC port, or `None` if only a UNIX socket is listened on."""
        return self._grpc.port

    @property
    def rest_port(self) -> int | None:
        """The REST port, or `None`."""
        return None if self._rest is None else self._rest.port

    def start(self) -> str:
        """Loads the models and starts to answer.

        Returns:
            One line that says what is served and where.

        Raises:
            InputError: There is a model of which no version can be loaded.
        """
        try:
            self.catalogue.start(self._config)
        except InputError:
            self.stop(grace=0.0)
            raise
        for poll in self._polls:
            poll.start()
        self._grpc.start()
        if self._rest is not None:
            self._rest.start()
        return f"serving {self._models()}: {self._places()}"

    def stop(self, grace: float | None = None) -> None:
        """Refuses new requests, gives those in progress some time, and ends.

        Args:
            grace: Seconds; `None` means as in the settings.
        """
        grace = self._settings.drain_seconds if grace is None else grace
        for poll in self._polls:
            poll.stop()
        sides = [side for side in (self._grpc, self._rest) if side is not None]
        stopping = [threading.Thread(target=side.stop, args=(grace,)) for side in sides]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        self.catalogue.stop()
        if self._batcher is not None:
            self._batcher.stop()
        logs.info("stopped")

    def _new_batcher(self) -> Batcher | None:
        if not self._settings.enable_batching:
            return None
        parameters = BatchingParameters()
        if self._settings.batching_parameters_file:
            parameters = BatchingParameters.from_message(read_batching(self._settings.batching_parameters_file))
        return Batcher(parameters, lambda seconds: self._metrics.queued(parameters.thread_pool_name, seconds))

    def _poll_config(self) -> None:
        try:
            config = _configuration(self._settings)
            # What is refused now may do later: a label waits for its version.
            if config != self._config or self._refusal:
                self._config = config
                self.catalogue.reload(config)
            self._refusal = ""
        except (InputError, RequestError) as error:
            if str(error) != self._refusal:
                logs.error("config_refused", error=str(error))
            self._refusal = str(error)

    def _models(self) -> str:
        names = self.catalogue.names()
        versions = [" and ".join(map(str, sorted(self.catalogue.available(name)))) for name in names]
        return ", ".join(
            f"{name} version{'s' if ' ' in version else ''} {version}"
            for name, version in zip(names, versions, strict=True)
        )

    def _places(self) -> str:
        host, socket = self._settings.host, self._settings.grpc_socket_path
        places = [f"gRPC on {host}:{self.port}"] if self.port is not None else []
        places += [f"gRPC on unix:{socket}"] if socket else []
        places += [f"REST on {host}:{self.rest_port}"] if self.rest_port is not None else []
        return ", ".join(places)


def _configuration(settings: Settings) -> model_server_config_pb2.ModelServerConfig:
    if settings.model_config_file:
        return read_models(settings.model_config_file)
    return single_model(settings.model_name, Path(settings.model_base_path))
