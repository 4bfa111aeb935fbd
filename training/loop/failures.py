"""Converts foreseeable failures of a run into one message with the cause and the command that resumes the run."""

import contextlib
import shlex
import signal
from collections.abc import Iterator

from training.loop.checkpoint_files import list_checkpoints
from zoo.errors import InputError
from zoo.runtime.cli import disk_full
from zoo.runtime.signals import NAMES, exit_status, received_signal
from zoo.workdir import WorkDir


class RunStopped(Exception):
    """A run ended before its last step. The message contains the cause and how to resume the run.

    `status` is the exit status of the command. `everywhere` is whether all processes raise it; otherwise, this one must
    report it.
    """

    def __init__(self, message: str, status: int, everywhere: bool = False):
        super().__init__(message)
        self.status, self.everywhere = status, everywhere


class Preempted(Exception):
    """A process received a signal to end, and all processes have written a checkpoint."""

    def __init__(self, number: int = signal.SIGTERM):
        super().__init__()
        self.number = number


class LossLost(Exception):
    """The loss computed in a step is not finite."""

    def __init__(self, value: float, step: int):
        super().__init__(f"the loss became {value} at step {step}")


def _out_of_memory(error: BaseException) -> bool:
    """Returns whether an error of TensorFlow, JAX, PyTorch, NumPy or Python means that memory is exhausted."""
    if isinstance(error, MemoryError) or type(error).__name__ in ("ResourceExhaustedError", "OutOfMemoryError"):
        return True
    return "RESOURCE_EXHAUSTED" in str(error)


def _not_compiled(error: BaseException) -> bool:
    """Returns whether an error of TensorFlow means that XLA cannot compile a step."""
    return type(error).__name__ in ("InvalidArgumentError", "UnimplementedError") and "XLA" in str(error)


def _explanation(error: BaseException) -> tuple[str, str, int] | None:
    """Returns the cause, the setting to lower, and the exit status; `None` for unforeseen errors."""
    number = received_signal() or (signal.SIGINT if isinstance(error, KeyboardInterrupt) else None)
    if isinstance(error, Preempted):
        number = error.number
    if number:  # regardless of the error that it caused
        return NAMES[signal.Signals(number)], "", exit_status(number)
    if isinstance(error, LossLost):
        return str(error), "learning_rate", 1
    if reason := disk_full(error):  # checked before memory, since TensorFlow raises the same error for both
        return reason, "", 1
    if _out_of_memory(error):
        return "out of memory", "batch_tokens", 1
    return None


def _resume_command(workdir: WorkDir) -> str:
    """Returns the command that resumes a run, quoted for a shell."""
    return f"python -m training.train --workdir {shlex.quote(str(workdir.path))} --resume"


def _xla_message(workdir: WorkDir) -> str:
    name = workdir.read_config()["model"]["name"]
    reason = f"XLA cannot compile {name} with these options for batches of any length"
    return f"{reason}. Resume without it: {_resume_command(workdir)} --set training.jit=off"


def missing_process(workdir: WorkDir, reason: str) -> str:
    """Returns the message for a missing process of a run, with the command that resumes it."""
    return _message(workdir, reason, "") + (", in every process" if workdir.config.is_file() else "")


def _message(workdir: WorkDir, reason: str, lower: str) -> str:
    if not workdir.config.is_file():
        return f"{reason}; nothing was trained yet."
    checkpoints = list_checkpoints(workdir.checkpoints)
    last = f"the last good checkpoint is {checkpoints[-1]}" if checkpoints else "there is no checkpoint yet"
    command = _resume_command(workdir)
    if not lower:
        return f"{reason}; {last}. Resume with: {command}"
    settings = workdir.read_config()["training"]
    advice = f"lower training.{lower}, now {settings[lower]}"
    if lower == "batch_tokens" and not checkpoints:  # with one, the number of batches per step is fixed
        advice += f", and raise training.accumulate_steps, now {settings['accumulate_steps']}, by the same factor"
    return f"{reason}; {last}. To resume, {advice}: {command} --set training.{lower}=…"


@contextlib.contextmanager
def explained(workdir: WorkDir) -> Iterator[None]:
    """Converts foreseeable errors of a run in the block into `RunStopped`.

    Raises:
        InputError: If XLA cannot compile the model.
        RunStopped: If the run was interrupted or terminated, its loss is not finite, or memory or disk is exhausted.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, InputError) and not received_signal():
            raise
        if _not_compiled(error) and not received_signal():
            raise InputError(_xla_message(workdir)) from error
        explanation = _explanation(error)
        if explanation is None:
            raise
        reason, lower, status = explanation
        everywhere = isinstance(error, (LossLost, Preempted))
        raise RunStopped(_message(workdir, reason, lower), status, everywhere) from error
