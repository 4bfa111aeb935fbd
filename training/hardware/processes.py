"""Coordinates the processes of one training on JAX: elects the chief, compares values, detects missing processes.

JAX connects them through a service in process 0. It aborts a process, with pages of addresses, when that service has
ended, and waits for hours for a process that died on another host. So each process sends a heartbeat every second, and
ends with a one-line message when that of another process is missing. `training.hardware.supervisor` converts an abort
into such a message.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any, NoReturn

import keras
import numpy as np

from training.hardware.cluster import Cluster
from zoo.errors import InputError
from zoo.runtime.signals import exit_status, held_signal

# Longer than a process may be suspended, and shorter than the minute in which all must end.
SILENCE = 45.0
_BETWEEN_BEATS = 1.0
_FOR_EVER = 7 * 24 * 3600
_CHIEF = 0


class Processes:
    """The processes of a training, as one of them; for a single process, all methods return immediately."""

    def __init__(self, index: int = 0, count: int = 1, client: Any = None):
        self.index, self.count, self._client = index, count, client
        self._reported = False

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief, which writes logs, checkpoints and the model."""
        return self.index == _CHIEF

    def wait(self, place: str) -> None:
        """Waits until all processes have reached a place in the program; each name is used once in a run."""
        if self.count > 1:
            self._client.wait_at_barrier(f"zoo/{place}", _FOR_EVER * 1000)

    def assert_equal(self, values: Mapping[str, Any]) -> None:
        """Checks that all processes have the same values as process 0, and waits for all of them.

        Raises:
            InputError: If they differ; the message contains the first difference.
        """
        if self.count == 1:
            return
        own = {name: json.dumps(value, sort_keys=True, default=str) for name, value in values.items()}
        key = f"zoo/agreed/{'+'.join(own)[:200]}"
        if self.is_chief:
            self._client.key_value_set(key, json.dumps(own))
        of_chief = json.loads(self._client.blocking_key_value_get(key, _FOR_EVER * 1000))
        for name in {**of_chief, **own}:
            if own.get(name) != of_chief.get(name):
                value, value_of_chief = own.get(name, "nothing"), of_chief.get(name, "nothing")
                raise InputError(
                    f"Process {self.index} of {self.count} differs from process 0 in {name}: {value} here, "
                    f"{value_of_chief} in process 0."
                )
        self.wait(key)

    def should_stop(self, step: int) -> bool:
        """Returns whether any process received SIGTERM; `True` after the same step in all processes.

        All processes must call it after each step. For a single process, it returns whether a signal is held.
        """
        if self.count == 1:
            return held_signal() is not None
        from jax.experimental import multihost_utils

        return bool(multihost_utils.reached_preemption_sync_point(step))

    def report(self, reason: str) -> None:
        """Sends the others the reason why this process ends early."""
        if self.count > 1 and not self._reported:
            self._reported = True
            with contextlib.suppress(Exception):
                self._client.key_value_set(f"zoo/ended/{self.index}", f"{self._name()} ended: {reason.rstrip('.')}")
            if self.is_chief:  # the service ends with this process
                time.sleep(3 * _BETWEEN_BEATS)

    @contextlib.contextmanager
    def watched(self, explain: Callable[[str], str]) -> Iterator[None]:
        """Ends this process with a one-line message, during the block, when another one ended or is missing.

        An error of the block also ends it, and is reported to the others. For an error of the connection, it first
        waits until the missing process is known. JAX would wait for the others when the interpreter ends.

        Args:
            explain: Returns the message for a reason.
        """
        if self.count == 1:
            yield
            return
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=[explain, done], daemon=True)
        watch.start()
        try:
            yield
        except InputError as error:
            self.report(str(error))
            _end(" ".join(str(error).split()), 2)
        except KeyboardInterrupt:
            self.report("interrupted")
            _end("interrupted", exit_status(signal.SIGINT))
        except BaseException as error:
            if _is_broken_connection(error):
                watch.join(SILENCE + 10)
            self.report(str(error) or type(error).__name__)
            traceback.print_exc()
            self.end(1)
        finally:
            done.set()

    def leave(self) -> None:
        """Waits for the others at the end of the run, and disconnects."""
        if self.count > 1:
            import jax

            self.wait("end")
            jax.distributed.shutdown()

    def end(self, status: int) -> NoReturn:
        """Ends this process with a status, without waiting for connections, which may be broken."""
        if self.count == 1:
            sys.exit(status)
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(status)

    def _name(self) -> str:
        return f"process {self.index} of {self.count} ({socket.gethostname()})"

    def _watch(self, explain: Callable[[str], str], done: threading.Event) -> None:
        last_beats: dict[str, tuple[str, float]] = {}
        start_time = time.monotonic()
        for beat in range(sys.maxsize):
            try:
                self._client.key_value_set(
                    f"zoo/alive/{self.index}", f"{beat} {socket.gethostname()}", allow_overwrite=True
                )
                alive = dict(self._client.key_value_dir_get("zoo/alive/"))
                ended = self._client.key_value_dir_get("zoo/ended/")
            except Exception:  # the service has ended; JAX is about to abort the process
                if done.wait(_BETWEEN_BEATS):
                    return
                continue
            now = time.monotonic()
            others = [reason for key, reason in ended if not key.endswith(f"/{self.index}")]
            if others and not self._reported:
                _end(explain(others[0]))
            for index in range(self.count):
                text = alive.get(f"zoo/alive/{index}", "")
                if last_beats.get(str(index), ("", start_time))[0] != text or str(index) not in last_beats:
                    last_beats[str(index)] = (text, now)
                silent = now - last_beats[str(index)][1]
                if index != self.index and silent > SILENCE:
                    host = text.partition(" ")[2] or "never connected"
                    _end(explain(f"process {index} of {self.count} ({host}) has not responded for {silent:.0f} s"))
            if done.wait(_BETWEEN_BEATS):
                return


ALONE = Processes()
"""A training of one process."""


def join(cluster: Cluster | None) -> Processes:
    """Connects this process with the others of a cluster, before JAX computes anything.

    Raises:
        InputError: If the backend is not JAX, or the coordinator does not respond.
    """
    if cluster is None:
        return ALONE
    if keras.backend.backend() != "jax":
        raise InputError(
            "Several processes can train only on JAX, which KERAS_BACKEND=jax chooses; under "
            f"{keras.backend.backend()} one process spreads a batch over the GPUs of its machine (training.devices)."
        )
    import jax
    from jax._src import distributed

    if cluster.process_id != _CHIEF:
        _reach(cluster)
    try:
        jax.distributed.initialize(
            cluster.coordinator,
            cluster.num_processes,
            cluster.process_id,
            initialization_timeout=cluster.seconds,
            heartbeat_timeout_seconds=_FOR_EVER,  # missing processes are detected by `Processes.watched`
        )
    except RuntimeError as error:
        raise InputError(
            f"The processes did not connect at {cluster.coordinator}: {str(error).splitlines()[0]}."
        ) from error
    return Processes(cluster.process_id, cluster.num_processes, distributed.global_state.client)


def _reach(cluster: Cluster) -> None:
    """Waits until the coordinator accepts connections; raises InputError if it does not in time."""
    host, _, port = cluster.coordinator.rpartition(":")
    end = time.monotonic() + cluster.seconds
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise InputError(
                    f"The coordinator {cluster.coordinator}, process 0, cannot be reached after {cluster.seconds} s "
                    f"({error.strerror or error}). Is it running, and is the port open?"
                ) from error
        time.sleep(0.5)


def backend_versions() -> dict[str, str]:
    """Returns the versions of the installed libraries that compute or write checkpoints."""
    versions = {}
    for name in ("jax", "jaxlib", "numpy", "orbax-checkpoint"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def whole(variable: Any) -> np.ndarray[Any, Any]:
    """Returns the whole value of a variable that may be sharded over processes; all of them must call this."""
    value = getattr(variable, "value", variable)
    if keras.backend.backend() == "jax" and not (value.is_fully_addressable or value.is_fully_replicated):
        from jax.experimental import multihost_utils

        value = multihost_utils.process_allgather(value, tiled=True)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        value = tf.convert_to_tensor(value)  # NumPy cannot read a variable that is mirrored on devices
    array: np.ndarray[Any, Any] = keras.ops.convert_to_numpy(value)
    return array


def bring_home(model: keras.Model) -> None:
    """Copies the whole of a model that is sharded over processes into the main memory of each.

    The model cannot be trained after that.
    """
    if keras.backend.backend() != "jax":
        return
    import jax

    if jax.process_count() > 1:
        (home, *_) = jax.local_devices(backend="cpu")
        for variable in model.variables:
            value = whole(variable)
            variable._layout = None
            variable._value = jax.device_put(value, home)


def _is_broken_connection(error: BaseException) -> bool:
    """Returns whether an error comes from a computation of several processes, one of which may have died."""
    return type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError") or "Gloo" in str(error)


def _end(line: str, status: int = 1) -> NoReturn:
    """Ends the process at once, since its main thread may wait forever."""
    sys.stderr.flush()
    os.write(2, f"error: {line}\n".encode())
    os._exit(status)
