"""Callbacks of the user, which observe a training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from zoo.cli import import_from_here
from zoo.errors import InputError


class Observer(keras.callbacks.CallbackList):
    """A callback of the user's, which gets numbers, and waits for those of a batch only where it looks at batches."""

    def __init__(self, callback: keras.callbacks.Callback):
        super().__init__([callback], add_history=False, add_progbar=False)
        names = ("on_batch_end", "on_train_batch_end")
        self._looks_at_batches = any(
            getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name) for name in names
        )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._looks_at_batches:
            super().on_train_batch_end(batch, logs)

    def close(self) -> None:
        """Does nothing: Keras tells a callback itself when training ends."""


def make_callbacks(references: Sequence[str], path: Path) -> list[keras.callbacks.Callback]:
    """Returns the callbacks that functions of the user return, each named as `MODULE:FUNCTION`, for a work directory.

    Raises:
        InputError: If there is no such function, or it returns something else.
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
        made = function(path)
        made = list(made) if isinstance(made, list | tuple) else [made]
        for each in made:
            if not isinstance(each, keras.callbacks.Callback):
                raise InputError(f"{option} must return keras.callbacks.Callback objects. Received: {each!r}.")
        callbacks += made
    return callbacks
