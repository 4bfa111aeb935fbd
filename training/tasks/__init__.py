"""The parts of training that differ between kinds of tasks: `get_task("classifier")`."""

from typing import Any

from training.tasks.classifier import ClassifierTask
from training.tasks.language_model import LanguageModelTask
from training.tasks.seq2seq import Seq2SeqTask
from training.tasks.task import Task
from zoo.errors import InputError

__all__ = ["Task", "get_task"]

_TASKS: dict[str, Task[Any]] = {task.name: task for task in (Seq2SeqTask(), ClassifierTask(), LanguageModelTask())}


def get_task(name: str) -> Task[Any]:
    """Returns a task by its name in model specs and datasets.

    Raises:
        InputError: If models of that task cannot be trained and evaluated.
    """
    if name not in _TASKS:
        raise InputError(f"A {name} cannot be trained or evaluated, only models for {', '.join(_TASKS)}.")
    return _TASKS[name]
