"""Which version of the model answers: the newest under the base path, followed as it changes."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from export.server.protos import get_model_status_pb2, model_pb2
from export.server.status import invalid_argument, not_found
from zoo.errors import InputError

if TYPE_CHECKING:
    from export.server.models import LoadedModel

POLL_SECONDS = 1.0  # the stock server's file_system_poll_wait_seconds

_State = get_model_status_pb2.ModelVersionStatus.State


class VersionState(NamedTuple):
    """What became of one version: a `ModelVersionStatus.State` and, if it could not be loaded, why."""

    state: int
    error: str = ""


def list_versions(base_path: Path) -> dict[int, Path]:
    """Returns the version directories under `base_path` by number; other names are not versions.

    Raises:
        InputError: There is no such directory.
    """
    try:
        entries = list(base_path.iterdir())
    except OSError as error:
        raise InputError(
            f"--model_base_path must be a directory of versions. Received: {base_path} ({error.strerror})"
        ) from error
    return {int(entry.name): entry for entry in entries if _is_number(entry.name) and entry.is_dir()}


def newest_version(base_path: Path) -> tuple[int, Path]:
    """Returns number and directory of the newest version.

    Raises:
        InputError: There is no such directory, or no version in it.
    """
    found = list_versions(base_path)
    if not found:
        raise InputError(
            f"No versions found under {base_path}. A version is a directory with a number for its name, "
            f"such as {base_path / '1'}, that holds a saved_model.pb."
        )
    newest = max(found)
    return newest, found[newest]


class ModelVersions:
    """The versions of one model; a newer one replaces the current one once it has loaded.

    Requests in progress keep the version they started with. A version that cannot be loaded replaces nothing; it is
    tried again when its files change. When the newest directory is removed, the next older one takes over.

    Args:
        name: The model's name in requests.
        base_path: The directory whose numbered directories are the versions.
        load: Loads one version; raises `InputError`.
    """

    def __init__(self, name: str, base_path: Path, load: "Callable[[Path, int], LoadedModel]"):
        self.name = name
        self._base_path = base_path
        self._load = load
        self._current: LoadedModel | None = None
        self._states: dict[int, VersionState] = {}
        self._failed: dict[int, list[tuple]] = {}
        self._stopped = threading.Event()

    def find(self, spec: model_pb2.ModelSpec) -> "LoadedModel":
        """Returns the loaded model that a request's `model_spec` names.

        Raises:
            RequestError: No such model or version is served.
        """
        if spec.WhichOneof("version_choice") == "version_label":
            raise invalid_argument(f"Unrecognized servable version label: {spec.version_label}")
        wanted = spec.version.value if spec.HasField("version") else None
        current = self._current
        if current is None or spec.name != self.name or wanted not in (None, current.version):
            request = f"Latest({spec.name})" if wanted is None else f"Specific({spec.name}, {wanted})"
            raise not_found(f"Servable not found for request: {request}")
        return current

    def states(self) -> dict[int, VersionState]:
        """Returns the state of every version seen so far, by number."""
        return dict(sorted(self._states.copy().items()))

    def load_newest(self) -> int:
        """Loads the newest version and returns its number.

        Raises:
            InputError: There is none, or it cannot be loaded.
        """
        version, path = newest_version(self._base_path)
        self._states[version] = VersionState(_State.LOADING)
        try:
            loaded = self._load(path, version)
        except InputError as error:
            self._states[version] = VersionState(_State.END, str(error))
            raise
        previous, self._current = self._current, loaded
        self._states[version] = VersionState(_State.AVAILABLE)
        if previous is not None:
            self._states[previous.version] = VersionState(_State.END)
        return version

    def poll(self) -> None:
        """Looks at the base path once and loads what is new there; a failure is reported and changes nothing."""
        try:
            version, path = newest_version(self._base_path)
            files = _fingerprint(path)
        except (InputError, OSError):
            return  # The directory is gone for the moment, or being written; what is loaded keeps answering.
        if self._current is not None and version == self._current.version or self._failed.get(version) == files:
            return
        try:
            print(f"serving {self.name} version {self.load_newest()}", flush=True)
        except InputError as error:
            self._failed[version] = files
            print(f"error: version {version} is left out: {error}", file=sys.stderr, flush=True)

    def start_polling(self) -> None:
        """Calls `poll` every second from a thread of its own, until `stop`."""
        threading.Thread(target=self._poll_until_stopped, name="versions", daemon=True).start()

    def stop(self) -> None:
        """Ends the polling."""
        self._stopped.set()

    def _poll_until_stopped(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            self.poll()


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _fingerprint(path: Path) -> list[tuple]:
    """Changes whenever a file of the version does."""
    files = [(str(file), file.stat()) for file in path.rglob("*")]
    return sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in files)
