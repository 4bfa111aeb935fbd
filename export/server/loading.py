"""How a server loads a version: session, batching and warm-up as the settings say."""

from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf import text_format

from export.server.batching import Batcher, BatchingParameters
from export.server.config_files import read_batching
from export.server.metrics import Metrics
from export.server.settings import Settings
from export.server.status import RequestError
from zoo.errors import InputError
from zoo.startup import without_greeting

if TYPE_CHECKING:
    from export.server.models import LoadedModel

_MODEL_BATCHING = "batching_params.pbtxt"


class Loader:
    """Loads versions; TensorFlow itself is loaded with the first one.

    Args:
        settings: The server's settings.
        batcher: Runs requests together, or `None`.
        metrics: Where to count.
    """

    def __init__(self, settings: Settings, batcher: Batcher | None, metrics: Metrics):
        self._settings = settings
        self._batcher = batcher
        self._metrics = metrics

    def __call__(self, name: str, path: Path, version: int) -> "LoadedModel":
        """Loads one version and warms it up.

        Args:
            name: The model's name.
            path: The version's directory.
            version: Its number.

        Raises:
            InputError: It cannot be loaded, or fails in its own warm-up.
        """
        with without_greeting():
            from export.server.models import LoadedModel, Runtime
        from export.server.warmup import warm_up

        runtime = Runtime(
            tags=tuple(self._settings.saved_model_tags.split(",")),
            session=self._session_config(),
            batcher=self._batcher,
            batching=self._batching(path),
            check_method_names=self._settings.enable_signature_method_name_check,
        )
        model = LoadedModel(path, version, runtime)
        if self._settings.enable_model_warmup:
            try:
                with self._metrics.warm_up(str(path)):
                    warm_up(model, path, max(1, self._settings.num_request_iterations_for_warmup))
            except RequestError as error:
                model.close()
                raise InputError(f"{path} fails in warm-up ({error.code.name}): {error.message}") from error
        return model

    def _batching(self, path: Path) -> BatchingParameters | None:
        file = path / _MODEL_BATCHING
        if self._batcher is None or not self._settings.enable_per_model_batching_parameters or not file.exists():
            return None
        return BatchingParameters.from_message(read_batching(str(file)))

    def _session_config(self):
        from tensorflow.core.protobuf import config_pb2

        settings, config = self._settings, config_pb2.ConfigProto()
        if settings.tensorflow_session_config_file:
            try:
                text_format.Parse(Path(settings.tensorflow_session_config_file).read_text(), config)
            except (OSError, text_format.ParseError) as error:
                raise InputError(f"--tensorflow_session_config_file: {error}") from error
        flags = {
            "intra_op_parallelism_threads": settings.tensorflow_intra_op_parallelism,
            "inter_op_parallelism_threads": settings.tensorflow_inter_op_parallelism,
        }
        for field, threads in flags.items():
            if threads or settings.tensorflow_session_parallelism:
                setattr(config, field, threads or settings.tensorflow_session_parallelism)
        if settings.per_process_gpu_memory_fraction:
            config.gpu_options.per_process_gpu_memory_fraction = settings.per_process_gpu_memory_fraction
        return config
