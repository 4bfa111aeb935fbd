"""The versions of all models in memory: loads, replaces, and unloads them when no request uses them any more."""

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from grpc import StatusCode

from export.server import logs
from export.server.errors import ServingError
from export.server.models.versions import Fingerprint, fingerprint
from export.wire.protos import get_model_status_pb2

if TYPE_CHECKING:
    from export.server.models.saved_model import LoadedModel

_CLOSING_SECONDS = 1.0
Load = Callable[[Path, int], "LoadedModel"]
State = get_model_status_pb2.ModelVersionStatus.State


class VersionState(NamedTuple):
    """The state of a version, a `ModelVersionStatus.State`, and, if loading failed, the error and the files."""

    state: int
    code: StatusCode = StatusCode.OK
    error: str = ""
    files: Fingerprint | None = None


@dataclass(eq=False)
class _Servable:
    """A loaded version and the number of requests that use it."""

    model: "LoadedModel"
    users: int = 0


class Manager:
    """Loads and unloads versions as they are aspired, one change at a time.

    A version that is no longer aspired is unloaded only after an aspired one is loaded, so that the model stays
    available; requests in progress keep their version. A version for which `load` raises `ServingError` replaces
    nothing; it is tried again when its files change.
    """

    def __init__(self, load: Load):
        self._load = load
        self._changed = threading.Condition()  # guards the two below
        self._servables: dict[str, dict[int, _Servable]] = {}
        self._states: dict[str, dict[int, VersionState]] = {}
        self._unloading: set[threading.Thread] = set()
        self._stopped = threading.Event()

    @contextlib.contextmanager
    def use(self, name: str, version: int | None) -> Iterator["LoadedModel | None"]:
        """Yields a version, the newest for `None`, and keeps it loaded; yields `None` if it is not available."""
        with self._changed:
            servables = self._servables.get(name, {})
            servable = servables.get(max(servables, default=0) if version is None else version)
            if servable is not None:
                servable.users += 1
        try:
            yield servable.model if servable is not None else None
        finally:
            if servable is not None:
                with self._changed:
                    servable.users -= 1
                    self._changed.notify_all()

    def available(self, name: str) -> set[int]:
        """Returns the loaded versions of a model."""
        with self._changed:
            return set(self._servables.get(name, ()))

    def states(self, name: str) -> dict[int, VersionState]:
        """Returns the state of every known version of a model, by number."""
        with self._changed:
            return dict(sorted(self._states.get(name, {}).items()))

    def aspire(self, name: str, versions: Mapping[int, Path]) -> list[int]:
        """Loads these versions of a model unless they are loaded, then unloads all others.

        Returns the versions that could not be loaded; `states` contains their errors.
        """
        failed, states = [], self.states(name)
        for version in sorted(set(versions) - self.available(name)):
            path = versions[version]
            unchanged = version in states and states[version].files == fingerprint(path)
            if not (unchanged or self._stopped.is_set() or self._add(name, version, path)):
                failed.append(version)
        available = self.available(name)
        if available & set(versions):
            for version in available - set(versions):
                self._unload(name, version)
        return failed

    def announce(self, name: str, versions: Iterable[int]) -> None:
        """Sets the state of versions that will be loaded."""
        for version in versions:
            self._set_state(name, version, VersionState(State.LOADING))

    def remove(self, name: str) -> None:
        """Unloads a model and removes the states of its versions."""
        for version in self.available(name):
            self._unload(name, version)
        with self._changed:
            self._states.pop(name, None)

    def stop(self) -> None:
        """Unloads all models; waits up to a second for requests in progress."""
        self._stopped.set()
        for name in list(self._servables):
            for version in self.available(name):
                self._unload(name, version)
        # A process that exits while TensorFlow closes a session is aborted.
        deadline = time.monotonic() + _CLOSING_SECONDS
        for thread in list(self._unloading):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _add(self, name: str, version: int, path: Path) -> bool:
        """Loads a version; returns whether it was loaded."""
        self._set_state(name, version, VersionState(State.LOADING))
        files, begin = fingerprint(path), time.monotonic()
        logs.info("version_loading", model=name, version=version)
        try:
            servable = _Servable(self._load(path, version))
        except ServingError as error:
            self._set_state(name, version, VersionState(State.END, StatusCode.INVALID_ARGUMENT, str(error), files))
            return False
        except Exception as error:  # Errors of one model must not affect the others.
            self._set_state(name, version, VersionState(State.END, StatusCode.INTERNAL, repr(error), files))
            logs.error("version_broke", exception=error, model=name, version=version)
            return False
        with self._changed:
            self._servables.setdefault(name, {})[version] = servable
            self._states[name][version] = VersionState(State.AVAILABLE)
        seconds = round(time.monotonic() - begin, 3)
        logs.info("version_available", model=name, version=version, seconds=seconds)
        return True

    def _unload(self, name: str, version: int) -> None:
        with self._changed:
            servable = self._servables[name].pop(version, None)
            if servable is None:
                return  # `stop` and `aspire` may both try to unload it
            self._states[name][version] = VersionState(State.UNLOADING)
        # It is closed in a thread, so that new versions and other models need not wait for requests in progress.
        arguments = (name, version, servable)
        thread = threading.Thread(target=self._close_when_unused, args=arguments, name="unload", daemon=True)
        self._unloading.add(thread)
        thread.start()

    def _close_when_unused(self, name: str, version: int, servable: _Servable) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not servable.users)
        servable.model.close()
        if not self._stopped.is_set():
            gc.collect()  # frees the graph, which has reference cycles, as the next version may be loading already
        with self._changed:
            states = self._states.get(name, {})
            if version in states and states[version].state == State.UNLOADING:  # It may have been loaded again.
                states[version] = VersionState(State.END)
        logs.info("version_unloaded", model=name, version=version)
        self._unloading.discard(threading.current_thread())

    def _set_state(self, name: str, version: int, state: VersionState) -> None:
        with self._changed:
            self._states.setdefault(name, {})[version] = state
