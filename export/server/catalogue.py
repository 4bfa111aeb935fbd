"""All models that a server serves: which there are, under which labels, and how that changes while it runs."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from grpc import StatusCode

from export.server import logs
from export.server.servables import Load, ModelServables, Servable, VersionState
from export.server.status import RequestError, invalid_argument, not_found
from export.server.versions import list_versions, some_versions, wanted_versions
from export.wire.protos import model_pb2
from export.wire.protos import model_server_config_pb2 as configs
from zoo.errors import InputError

_PLATFORM = "tensorflow"


def single_model(name: str, base_path: Path) -> configs.ModelServerConfig:
    """Returns the configuration of one model, the newest version of which is served."""
    config = configs.ModelServerConfig()
    config.model_config_list.config.add(name=name, base_path=str(base_path.absolute()), model_platform=_PLATFORM)
    return config


class Catalogue:
    """The models of a server.

    Args:
        load: Loads a version; raises `InputError`.
        retries: How often a failed load is repeated at once.
        retry_seconds: How long to wait before each of these.
        labels_for_unavailable: Whether labels may name versions that are not loaded.
    """

    def __init__(self, load: Load, retries: int = 0, retry_seconds: float = 0.0, labels_for_unavailable: bool = False):
        self._new_model = lambda name: ModelServables(name, load, retries, retry_seconds)
        self._labels_for_unavailable = labels_for_unavailable
        self._changing = threading.Lock()  # one change at a time; requests never wait for it
        self._config = configs.ModelServerConfig()
        self._models: dict[str, ModelServables] = {}
        self._labels: dict[str, dict[str, int]] = {}

    def names(self) -> list[str]:
        """Returns the names of the models, sorted."""
        return sorted(self._models)

    def serves(self, name: str) -> bool:
        """Tells whether there is a model of this name."""
        return name in self._models

    def available(self, name: str) -> set[int]:
        """Returns the versions of a model that answer."""
        model = self._models.get(name)
        return model.available() if model is not None else set()

    def states(self, spec: model_pb2.ModelSpec) -> dict[int, VersionState]:
        """Returns the state of every version seen so far of the model that a `model_spec` names, by number."""
        model = self._models.get(spec.name)
        return model.states() if model is not None else {}

    @contextlib.contextmanager
    def use(self, spec: model_pb2.ModelSpec) -> Iterator[Servable]:
        """Finds the version that a request's `model_spec` names and keeps it loaded for the length of the block.

        Raises:
            RequestError: No such model, version or label is served.
        """
        if not spec.name:
            raise invalid_argument("ModelSpec has no name specified.")
        version, model = self.version_of(spec), self._models.get(spec.name)
        servable = model.acquire(version) if model is not None else None
        if servable is None:
            request = f"Latest({spec.name})" if version is None else f"Specific({spec.name}, {version})"
            raise not_found(f"Servable not found for request: {request}")
        try:
            yield servable
        finally:
            servable.release()

    def version_of(self, spec: model_pb2.ModelSpec) -> int | None:
        """Returns the version that a `model_spec` gives, directly or by label; `None` if it leaves that open.

        Raises:
            RequestError: There is no such label.
        """
        choice = spec.WhichOneof("version_choice")
        if choice == "version_label":
            labels = self._labels.get(spec.name, {})
            if spec.version_label not in labels:
                raise invalid_argument(f"Unrecognized servable version label: {spec.version_label}")
            return labels[spec.version_label]
        return spec.version.value if choice == "version" else None

    def start(self, config: configs.ModelServerConfig) -> None:
        """Loads the first models.

        Raises:
            InputError: The configuration is wrong, or a model has no version that can be loaded.
        """
        try:
            with self._changing:
                self._check(config)
                for model in config.model_config_list.config:
                    some_versions(Path(model.base_path))
                self._labels = self._new_labels(config)
                failed = self._apply(config)
        except RequestError as error:
            flag = "--allow_version_labels_for_unavailable_models"
            hint = f"; {flag} allows it" if error.code is StatusCode.FAILED_PRECONDITION else ""
            raise InputError(f"{error.message}{hint}") from error
        for name in self.names():
            if not self.available(name):
                raise InputError(self._why_none(name))
        self._report(failed)

    def reload(self, config: configs.ModelServerConfig) -> None:
        """Adds, changes and removes models so that they are those of `config`, and waits for new ones.

        Raises:
            RequestError: The configuration is wrong, or a new model did not become available.
        """
        if config.WhichOneof("config") != "model_config_list":
            raise invalid_argument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. "
                "Only ModelConfigList is currently supported"
            )
        with self._changing:
            self._check(config)
            self._labels = self._new_labels(config)
            new = [model.name for model in config.model_config_list.config if model.name not in self._models]
            self._report(self._apply(config))
        missing = [name for name in new if not self.available(name)]
        if missing:
            listed = ", ".join(
                f"{{name: {name} version: {max(self._models[name].states(), default=0)}}}" for name in missing
            )
            raise RequestError(StatusCode.UNKNOWN, f"Some models did not become available: {{{listed}, }}")
        logs.info("config_reloaded", models=self.names())

    def poll(self) -> None:
        """Looks at the base paths once and follows what changed there."""
        with self._changing:
            for model in self._config.model_config_list.config:
                self._report(self._follow(model))

    def stop(self) -> None:
        """Lets go of all models once their requests are through, without waiting for a load in progress."""
        for model in list(self._models.values()):
            model.stop()

    def _check(self, config: configs.ModelServerConfig) -> None:
        """Refuses what the stock server refuses, with its words."""
        if config.WhichOneof("config") == "custom_model_config":
            raise invalid_argument("ModelServer does not yet support custom model config.")
        seen = set()
        for model in config.model_config_list.config:
            if model.name in seen:
                raise invalid_argument(f"Illegal to list model {model.name} multiple times in config list")
            seen.add(model.name)
            if "\0" in model.base_path or not Path(model.base_path).is_absolute():
                raise invalid_argument(
                    f"Expected model {model.name} to have an absolute path or URI; got base_path()={model.base_path}"
                )
            _check_platform(model)

    def _apply(self, config: configs.ModelServerConfig) -> list[tuple[str, int]]:
        """Makes the models those of `config`; returns names and versions of what could not be loaded."""
        self._config = configs.ModelServerConfig()
        self._config.CopyFrom(config)
        models = {}
        for model in config.model_config_list.config:
            models[model.name] = self._models.get(model.name) or self._new_model(model.name)
        removed = [model for name, model in self._models.items() if name not in models]
        self._models = models
        failed = [failure for model in config.model_config_list.config for failure in self._follow(model)]
        for servables in removed:
            servables.stop()
        return failed

    def _follow(self, model: configs.ModelConfig) -> list[tuple[str, int]]:
        try:
            found = list_versions(Path(model.base_path))
            wanted = wanted_versions(model.model_version_policy, found)
            failed = self._models[model.name].aspire({version: found[version] for version in wanted})
        except InputError:
            return []  # The directory is gone for the moment, or being written; what is loaded keeps answering.
        except Exception as error:  # Whatever is strange about one model, the others go on being followed.
            logs.error("model_not_followed", exception=error, model=model.name)
            return []
        return [(model.name, version) for version in failed]

    def _report(self, failed: Iterable[tuple[str, int]]) -> None:
        for name, version in failed:
            error = self._models[name].states()[version].error
            logs.error("version_failed", model=name, version=version, error=error)

    def _new_labels(self, config: configs.ModelServerConfig) -> dict[str, dict[str, int]]:
        labels: dict[str, dict[str, int]] = {}
        for model in config.model_config_list.config:
            for label, version in model.version_labels.items():
                present = self._labels.get(model.name, {}).get(label, version)
                free = self._labels_for_unavailable and present == version
                if not free and version not in self.available(model.name):
                    raise RequestError(
                        StatusCode.FAILED_PRECONDITION,
                        f"Request to assign label to version {version} of model {model.name}, "
                        "which is not currently available for inference",
                    )
                labels.setdefault(model.name, {})[label] = version
        return labels

    def _why_none(self, name: str) -> str:
        errors = [state.error for state in self._models[name].states().values() if state.error]
        return errors[-1] if errors else f"Model {name} has no version that its version policy asks for."


def _check_platform(model: configs.ModelConfig) -> None:
    if model.model_type and model.model_platform:
        raise invalid_argument(
            "Illegal setting both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform."
        )
    if not (model.model_type or model.model_platform):
        raise invalid_argument(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor ModelServerConfig::model_platform."
        )
    if model.model_type not in (configs.MODEL_TYPE_UNSPECIFIED, configs.TENSORFLOW):
        raise invalid_argument(f"ModelServerConfig::model_type choice {model.model_type} not supported.")
    if model.model_platform not in ("", _PLATFORM):
        raise invalid_argument(f"Model {model.name} requests unsupported platform {model.model_platform}")
