"""How a run ends that cannot go on: one message that says why and what to do, and a directory that can be resumed."""

import contextlib
import errno
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from training.loop.checkpoint_files import list_checkpoints
from zoo.errors import InputError
from zoo.workdir import WorkDir

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SIGNAL_STATUS = 128


class RunStopped(Exception):
    """A run ended before its last step; says why and how to go on, and has the exit status of the command."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status


class LossLost(Exception):
    """The loss computed in a step is not finite."""

    def __init__(self, value: float, step: int):
        super().__init__(f"the loss became {value} at step {step}")


class Terminated(BaseException):
    """The process was asked to end by SIGTERM."""


def _out_of_memory(error: BaseException) -> bool:
    """Returns whether memory ran out, as TensorFlow, JAX, PyTorch, NumPy and Python report it."""
    if isinstance(error, MemoryError) or type(error).__name__ in ("ResourceExhaustedError", "OutOfMemoryError"):
        return True
    return "RESOURCE_EXHAUSTED" in str(error)


def _not_compiled(error: BaseException) -> bool:
    """Returns whether XLA cannot compile a step, as TensorFlow reports it."""
    return type(error).__name__ in ("InvalidArgumentError", "UnimplementedError") and "XLA" in str(error)


def _disk_full(error: BaseException) -> bool:
    # h5py and TensorFlow report it as text.
    return getattr(error, "errno", None) in _FULL or "No space left on device" in str(error)


def _explanation(error: BaseException) -> tuple[str, str, int] | None:
    """Returns what happened, the setting to lower, and the exit status; `None` for unforeseen errors."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "", _SIGNAL_STATUS + signal.SIGINT
    if isinstance(error, Terminated):
        return "terminated", "", _SIGNAL_STATUS + signal.SIGTERM
    if isinstance(error, LossLost):
        return str(error), "learning_rate", 1
    if _disk_full(error):  # before memory, since TensorFlow has one kind of error for both
        return "no space left on the disk", "", 1
    if _out_of_memory(error):
        return "out of memory", "batch_tokens", 1
    return None


def _without_xla(workdir: WorkDir) -> str:
    name = workdir.read_config()["model"]["name"]
    command = f"python -m training.train --workdir {workdir.path} --resume --set training.jit=off"
    return f"XLA cannot compile {name} with these options for batches of any length. Go on without: {command}"


def _message(workdir: WorkDir, reason: str, lower: str) -> str:
    if not workdir.config.is_file():
        return f"{reason}; nothing was trained yet."
    checkpoints = list_checkpoints(workdir.checkpoints)
    where = f"the last good checkpoint is {checkpoints[-1]}" if checkpoints else "there is no checkpoint yet"
    command = f"python -m training.train --workdir {workdir.path} --resume"
    if not lower:
        return f"{reason}; {where}. Go on with: {command}"
    settings = workdir.read_config()["training"]
    advice = f"lower training.{lower}, now {settings[lower]}"
    if lower == "batch_tokens" and not checkpoints:  # else the number of batches in a step is fixed
        advice += f", and raise training.accumulate_steps, now {settings['accumulate_steps']}, as much"
    return f"{reason}; {where}. To go on, {advice}: {command} --set training.{lower}=…"


@contextlib.contextmanager
def explained(workdir: WorkDir) -> Iterator[None]:
    """Turns what can end a run in the block, SIGTERM included, into `RunStopped`.

    Raises:
        InputError: If XLA cannot compile the model.
        RunStopped: If the run was interrupted or terminated, its loss was lost, or memory or disk are full.
    """
    with _terminable():
        try:
            yield
        except InputError:
            raise
        except (Exception, KeyboardInterrupt, Terminated) as error:
            if _not_compiled(error):
                raise InputError(_without_xla(workdir)) from error
            explanation = _explanation(error)
            if explanation is None:
                raise
            reason, lower, status = explanation
            raise RunStopped(_message(workdir, reason, lower), status) from error


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Raises `Terminated` in the block on SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals reach the main thread only.
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
