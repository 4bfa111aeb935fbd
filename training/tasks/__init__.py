"""What training does differently for each kind of task: `get_task("classifier")`."""

from typing import Any

from training.tasks.classifier import ClassifierTask
from training.tasks.language_model import LanguageModelTask
from training.tasks.seq2seq import Seq2SeqTask
from training.tasks.task import Task

__all__ = ["Task", "get_task"]

_TASKS: dict[str, Task[Any]] = {task.name: task for task in (Seq2SeqTask(), ClassifierTask(), LanguageModelTask())}


def get_task(name: str) -> Task[Any]:
    """Returns the task of a name, as model specs and datasets have it."""
    return _TASKS[name]
