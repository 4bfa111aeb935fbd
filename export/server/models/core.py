"""The models and labels of a server, and how they change while it runs."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpc import StatusCode

from export.server import logs
from export.server.errors import RequestError, ServingError, failed_precondition, invalid_argument, not_found
from export.server.models.manager import Load, Manager, VersionState
from export.server.models.versions import choose_versions, list_versions, require_versions
from export.wire.protos import model_pb2
from export.wire.protos import model_server_config_pb2 as configs

if TYPE_CHECKING:
    from export.server.models.saved_model import LoadedModel

_PLATFORM = "tensorflow"
Failures = list[tuple[str, int]]  # names and versions


def single_model(name: str, base_path: Path) -> configs.ModelServerConfig:
    """Returns the configuration that serves the newest version of one model."""
    config = configs.ModelServerConfig()
    config.model_config_list.config.add(name=name, base_path=str(base_path.absolute()), model_platform=_PLATFORM)
    return config


class ServerCore:
    """The models of a server; labels may name versions that are not loaded only if `labels_for_unavailable`."""

    def __init__(self, load: Load, labels_for_unavailable: bool = False):
        self._manager = Manager(load)
        self._labels_for_unavailable = labels_for_unavailable
        self._changing = threading.Lock()  # one change at a time; requests never wait for it
        self._models: dict[str, configs.ModelConfig] = {}
        self._labels: dict[str, dict[str, int]] = {}
        self._path_errors: dict[str, str] = {}  # errors of reading base paths, by model
        self._starting = False  # until the first models are loaded

    def names(self) -> list[str]:
        """Returns the names of the models, sorted."""
        return sorted(self._models)

    def serves(self, name: str) -> bool:
        """Returns whether there is a model of this name."""
        return name in self._models

    def available(self, name: str) -> set[int]:
        """Returns the loaded versions of a model."""
        return self._manager.available(name)

    def states(self, name: str) -> dict[int, VersionState]:
        """Returns the state of every known version of a model, by number."""
        return self._manager.states(name)

    def path_error(self, name: str) -> str:
        """Returns the error of reading the base path of a model; empty if there is none."""
        return self._path_errors.get(name, "")

    @contextlib.contextmanager
    def use(self, spec: model_pb2.ModelSpec) -> Iterator["LoadedModel"]:
        """Yields the version of a request's `model_spec` and keeps it loaded during the block."""
        if not spec.name:
            raise invalid_argument("ModelSpec has no name specified.")
        if self._starting and self.serves(spec.name) and not self.available(spec.name):
            raise RequestError(StatusCode.UNAVAILABLE, f"Model {spec.name} is loading.")
        version = self._version_of(spec)
        with self._manager.use(spec.name, version) as model:
            if model is None:
                request = f"Latest({spec.name})" if version is None else f"Specific({spec.name}, {version})"
                raise not_found(f"Servable not found for request: {request}")
            yield model

    def _version_of(self, spec: model_pb2.ModelSpec) -> int | None:
        choice = spec.WhichOneof("version_choice")
        if choice != "version_label":
            return spec.version.value if choice == "version" else None
        labels = self._labels.get(spec.name, {})
        if spec.version_label not in labels:
            raise invalid_argument(f"Unrecognized servable version label: {spec.version_label}")
        return labels[spec.version_label]

    def announce(self, config: configs.ModelServerConfig) -> None:
        """Registers the models that `start` will load; until then, requests for them fail with UNAVAILABLE."""
        self._starting = True
        for model in config.model_config_list.config:
            with contextlib.suppress(ServingError):  # reported by `start`
                versions = choose_versions(model.model_version_policy, list_versions(Path(model.base_path)))
                self._manager.announce(model.name, versions)
        self._models = {model.name: model for model in config.model_config_list.config}

    def start(self, config: configs.ModelServerConfig) -> None:
        """Loads the first models.

        Raises:
            ServingError: The configuration is invalid, or a model has no version that can be loaded.
        """
        try:
            with self._changing:
                labels = self._check(config)
                for model in config.model_config_list.config:
                    require_versions(Path(model.base_path))
                failures = self._apply(config, labels)
        except RequestError as error:
            flag = "--allow_version_labels_for_unavailable_models"
            hint = f"; {flag} allows it" if error.code is StatusCode.FAILED_PRECONDITION else ""
            raise ServingError(f"{error.message}{hint}") from error
        for name in self.names():
            if not self.available(name):
                errors = [state.error for state in self.states(name).values() if state.error]
                errors = errors or [f"Model {name} has no version that matches its version policy."]
                raise ServingError(errors[-1])
        self._starting = False
        self._log(failures)

    def reload(self, config: configs.ModelServerConfig) -> None:
        """Adds, changes and removes models to match `config`, and waits until new ones are loaded.

        Raises:
            RequestError: The configuration is invalid, or a new model did not become available.
        """
        if config.WhichOneof("config") != "model_config_list":
            raise invalid_argument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. "
                "Only ModelConfigList is currently supported"
            )
        with self._changing:
            labels, before = self._check(config), self._models
            self._log(self._apply(config, labels))
        missing = [name for name in self._models if name not in before and not self.available(name)]
        if missing:
            listed = ", ".join(f"{{name: {name} version: {max(self.states(name), default=0)}}}" for name in missing)
            raise RequestError(StatusCode.UNKNOWN, f"Some models did not become available: {{{listed}, }}")
        logs.info("config_reloaded", models=self.names())

    def poll(self) -> None:
        """Reads the base paths once, and loads and unloads versions accordingly."""
        with self._changing:
            for model in self._models.values():
                self._log(self._update_versions(model))

    def stop(self) -> None:
        """Unloads all models when their requests are done, without waiting for a load in progress."""
        self._manager.stop()

    def _check(self, config: configs.ModelServerConfig) -> dict[str, dict[str, int]]:
        """Raises the stock server's errors for invalid configurations; returns the versions by model and label."""
        if config.WhichOneof("config") == "custom_model_config":
            raise invalid_argument("ModelServer does not yet support custom model config.")
        names: set[str] = set()
        for model in config.model_config_list.config:
            if model.name in names:
                raise invalid_argument(f"Illegal to list model {model.name} multiple times in config list")
            names.add(model.name)
            if "\0" in model.base_path or not Path(model.base_path).is_absolute():
                raise invalid_argument(
                    f"Expected model {model.name} to have an absolute path or URI; got base_path()={model.base_path}"
                )
            _check_platform(model)
        return {model.name: self._check_labels(model) for model in config.model_config_list.config}

    def _check_labels(self, model: configs.ModelConfig) -> dict[str, int]:
        for label, version in model.version_labels.items():
            current = self._labels.get(model.name, {}).get(label, version)
            allowed = self._labels_for_unavailable and current == version
            if not allowed and version not in self.available(model.name):
                raise failed_precondition(
                    f"Request to assign label to version {version} of model {model.name}, "
                    "which is not currently available for inference"
                )
        return dict(model.version_labels)

    def _apply(self, config: configs.ModelServerConfig, labels: dict[str, dict[str, int]]) -> Failures:
        """Changes the models to those of `config`; returns the versions that could not be loaded."""
        removed = set(self._models)
        self._models = {model.name: model for model in config.model_config_list.config}
        self._labels = labels
        failures = [failure for model in self._models.values() for failure in self._update_versions(model)]
        for name in removed - set(self._models):
            self._manager.remove(name)
            self._path_errors.pop(name, None)
        return failures

    def _update_versions(self, model: configs.ModelConfig) -> Failures:
        try:
            versions = list_versions(Path(model.base_path))
            chosen = choose_versions(model.model_version_policy, versions)
            failed = self._manager.aspire(model.name, {version: versions[version] for version in chosen})
        except ServingError as error:  # Loaded versions remain, because the directory may reappear.
            if self._path_errors.get(model.name) != str(error):
                logs.error("base_path_unreadable", model=model.name, error=str(error))
            self._path_errors[model.name] = str(error)
            return []
        self._path_errors.pop(model.name, None)
        return [(model.name, version) for version in failed]

    def _log(self, failures: Iterable[tuple[str, int]]) -> None:
        for name, version in failures:
            logs.error("version_failed", model=name, version=version, error=self.states(name)[version].error)


def _check_platform(model: configs.ModelConfig) -> None:
    if bool(model.model_type) == bool(model.model_platform):
        both, conjunction = ("both", "and") if model.model_type else ("neither", "nor")
        fields = f"ModelServerConfig::model_type (deprecated) {conjunction} ModelServerConfig::model_platform"
        raise invalid_argument(f"Illegal setting {both} {fields}.")
    if model.model_type == configs.OTHER:
        raise invalid_argument(f"ModelServerConfig::model_type choice {model.model_type} not supported.")
    if model.model_platform not in ("", _PLATFORM):
        raise invalid_argument(f"Model {model.name} requests unsupported platform {model.model_platform}")
