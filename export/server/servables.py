"""The versions of one model in memory: loaded, asked, replaced, and released once nobody asks them any more."""

import gc
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from grpc import StatusCode

from export.server import logs
from export.server.versions import fingerprint
from export.wire.protos import get_model_status_pb2
from zoo.errors import InputError

if TYPE_CHECKING:
    from export.server.models import LoadedModel

Load = Callable[[str, Path, int], "LoadedModel"]
State = get_model_status_pb2.ModelVersionStatus.State


class VersionState(NamedTuple):
    """What became of one version: a `ModelVersionStatus.State` and, if it could not be loaded, why."""

    state: int
    code: StatusCode = StatusCode.OK
    error: str = ""


class Servable:
    """A loaded version and the number of requests that are using it.

    Args:
        model: The loaded model.
    """

    def __init__(self, model: "LoadedModel"):
        self.model = model
        self._users = 0
        self._unused = threading.Condition()

    def acquire(self) -> None:
        """Counts one more request."""
        with self._unused:
            self._users += 1

    def release(self) -> None:
        """Counts one request less."""
        with self._unused:
            self._users -= 1
            self._unused.notify_all()

    def wait_until_unused(self) -> None:
        """Returns when the last request is through."""
        with self._unused:
            self._unused.wait_for(lambda: not self._users)


class ModelServables:
    """The versions of one model.

    A version that is no longer wanted leaves only after one that is has come, so there is always an answer; requests
    in progress keep the version they started with. A version that cannot be loaded replaces nothing; it is tried
    again when its files change.

    Args:
        name: The model's name in requests.
        load: Loads a version; raises `InputError`.
        retries: How often a failed load is repeated at once.
        retry_seconds: How long to wait before each of these.
    """

    def __init__(self, name: str, load: Load, retries: int = 0, retry_seconds: float = 0.0):
        self.name = name
        self._load = load
        self._retries = retries
        self._retry_seconds = retry_seconds
        self._lock = threading.Lock()  # guards the three below
        self._servables: dict[int, Servable] = {}
        self._states: dict[int, VersionState] = {}
        self._failed: dict[int, list[tuple]] = {}
        self._stopped = threading.Event()

    def acquire(self, version: int | None) -> Servable | None:
        """Returns a version, the newest for `None`, to be released after use; `None` where it is not available."""
        with self._lock:
            number = max(self._servables, default=None) if version is None else version
            servable = self._servables.get(number) if number is not None else None
            if servable is not None:
                servable.acquire()
            return servable

    def available(self) -> set[int]:
        """Returns the versions that answer."""
        with self._lock:
            return set(self._servables)

    def states(self) -> dict[int, VersionState]:
        """Returns the state of every version seen so far, by number."""
        with self._lock:
            return dict(sorted(self._states.items()))

    def aspire(self, wanted: Mapping[int, Path]) -> list[int]:
        """Loads what is wanted and not there yet, then lets go of what is there and not wanted.

        Args:
            wanted: Directories by version.

        Returns:
            The versions that were tried and could not be loaded; `states` says why.
        """
        tried = []
        for version in sorted(set(wanted) - self.available()):
            if not self._stopped.is_set() and self._failed.get(version) != _files(wanted[version]):
                tried.append(version)
                self._add(version, wanted[version])
        available = self.available()
        if available & set(wanted):
            for version in available - set(wanted):
                self._remove(version)
        return [version for version in tried if version not in available]

    def stop(self) -> None:
        """Lets go of every version; a load that waits to be tried again is not."""
        self._stopped.set()
        for version in self.available():
            self._remove(version)

    def _add(self, version: int, path: Path) -> None:
        self._set_state(version, VersionState(State.LOADING))
        files, begin = _files(path), time.monotonic()
        try:
            servable = Servable(self._load_with_retries(path, version))
        except InputError as error:
            self._failed[version] = files
            self._set_state(version, VersionState(State.END, StatusCode.INVALID_ARGUMENT, str(error)))
            return
        except Exception as error:  # Whatever TensorFlow throws at a strange model, the others go on being served.
            self._failed[version] = files
            self._set_state(version, VersionState(State.END, StatusCode.INTERNAL, repr(error)))
            logs.error("version_broke", exception=error, model=self.name, version=version)
            return
        self._failed.pop(version, None)
        with self._lock:
            self._servables[version] = servable
            self._states[version] = VersionState(State.AVAILABLE)
        seconds = round(time.monotonic() - begin, 3)
        logs.info("version_available", model=self.name, version=version, seconds=seconds)

    def _load_with_retries(self, path: Path, version: int) -> "LoadedModel":
        for _ in range(self._retries):
            try:
                return self._load(self.name, path, version)
            except InputError as error:
                logs.error("version_retried", model=self.name, version=version, error=str(error))
                if self._stopped.wait(max(0.0, self._retry_seconds)):
                    raise
        return self._load(self.name, path, version)

    def _remove(self, version: int) -> None:
        with self._lock:
            servable = self._servables.pop(version, None)
            if servable is None:
                return  # `stop` and `aspire` may both have seen it
            self._states[version] = VersionState(State.UNLOADING)
        # Its requests may take their time, and neither new versions nor other models should wait for them.
        threading.Thread(target=self._unload, args=(version, servable), name="unload", daemon=True).start()

    def _unload(self, version: int, servable: Servable) -> None:
        servable.wait_until_unused()
        servable.model.close()
        if not self._stopped.is_set():
            gc.collect()  # Graphs are full of cycles, and the next version may be on its way already.
        with self._lock:
            if self._states[version].state == State.UNLOADING:  # It may have come back meanwhile.
                self._states[version] = VersionState(State.END)
        logs.info("version_unloaded", model=self.name, version=version)

    def _set_state(self, version: int, state: VersionState) -> None:
        with self._lock:
            self._states[version] = state


def _files(path: Path) -> list[tuple]:
    try:
        return fingerprint(path)
    except OSError:  # A file vanished while they were listed: it is being written.
        return []
