"""What training does differently for each kind of task: `get_task("classifier")`."""

from typing import Any

from training.tasks.classifier import ClassifierTask
from training.tasks.language_model import LanguageModelTask
from training.tasks.seq2seq import Seq2SeqTask
from training.tasks.task import Task
from zoo.errors import InputError

__all__ = ["Task", "get_task"]

_TASKS: dict[str, Task[Any]] = {task.name: task for task in (Seq2SeqTask(), ClassifierTask(), LanguageModelTask())}


def get_task(name: str) -> Task[Any]:
    """Returns the task of a name, as model specs and datasets have it.

    Raises:
        InputError: If models of that task are not trained and measured here.
    """
    if name not in _TASKS:
        raise InputError(f"A {name} is neither trained nor evaluated here, only models of {', '.join(_TASKS)} are.")
    return _TASKS[name]
