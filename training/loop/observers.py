"""Runs the callbacks of a user, which only observe a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from zoo.errors import InputError
from zoo.runtime.cli import import_from_here


class Observer(keras.callbacks.CallbackList):
    """Wraps a callback of the user, and converts the logs of batches to numbers only if it has a batch method."""

    def __init__(self, callback: keras.callbacks.Callback):
        super().__init__([callback], add_history=False, add_progbar=False)
        names = ("on_batch_end", "on_train_batch_end")
        self._has_batch_method = any(
            getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name) for name in names
        )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._has_batch_method:
            super().on_train_batch_end(batch, logs)

    def close(self) -> None:
        """Does nothing, since Keras calls the callback itself when training ends."""


def make_callbacks(references: Sequence[str], path: Path) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of the user's functions, referenced as `MODULE:FUNCTION`, for a work directory.

    Raises:
        InputError: If there is no such function, or it returns other objects.
    """
    callbacks: list[keras.callbacks.Callback] = []
    for reference in references:
        module, _, name = reference.partition(":")
        option = f"--callback {reference}"
        if not module or not name:
            raise InputError(f"--callback must be MODULE:FUNCTION. Received: {reference!r}.")
        function = getattr(import_from_here(module, "--callback"), name, None)
        if not callable(function):
            raise InputError(f"{option}: {module} has no function {name!r}.")
        result = function(path)
        result = list(result) if isinstance(result, list | tuple) else [result]
        for callback in result:
            if not isinstance(callback, keras.callbacks.Callback):
                raise InputError(f"{option} must return keras.callbacks.Callback objects. Received: {callback!r}.")
        callbacks += result
    return callbacks
