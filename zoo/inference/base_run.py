"""What the runs of all tasks have in common."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import keras
import numpy as np

from zoo.errors import InputError, check_whole
from zoo.inference.predictor import Predictor
from zoo.registry import ModelSpec, get_spec
from zoo.text import END, Tokenizer, load_tokenizer, pad, without_surrogates
from zoo.workdir import WorkDir

MAX_TEXT_BYTES = 1 << 15
"""How much of a text is read, in bytes of UTF-8: ids are cut as well, but only after all that is read was tokenized."""


class Run:
    """A trained work directory.

    Attributes:
        model: The `keras.Model`, in float32.
        config: The resolved configuration, a dict.
        spec: The `ModelSpec`.
        path: The work directory.

    Args:
        path: The work directory.

    Raises:
        InputError: If it is not a work directory, or its training has not finished.
    """

    def __init__(self, path: str | os.PathLike):
        workdir = WorkDir(path)
        self.path = workdir.path
        self.config: dict[str, Any] = workdir.read_config()
        if not workdir.model.is_file():
            raise InputError(
                f"{workdir.path} has no {workdir.model.name}: its training has not finished (see --resume)."
            )
        self.spec = self.spec_of(path)
        # Registers the class by its name in the file.
        self.spec.load_class()
        self.model = self._load_model(workdir)

    @staticmethod
    def spec_of(path: str | os.PathLike) -> ModelSpec:
        """Returns the spec of the model in a work directory.

        Args:
            path: The work directory.

        Raises:
            InputError: If it is no work directory, or its model has an unknown name.
        """
        return get_spec(WorkDir(path).read_config()["model"]["name"])

    @staticmethod
    def _load_model(workdir: WorkDir) -> keras.Model:
        try:
            return keras.saving.load_model(workdir.model, compile=False)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{workdir.model} is not a model of this version of the zoo: {reason}") from error

    def _load_tokenizer(self, name: str) -> Tokenizer:
        return load_tokenizer(WorkDir(self.path).tokenizer(name))

    def tokenizer_files(self) -> dict[str, Tokenizer]:
        """Returns the tokenizers by the name of their file."""
        raise NotImplementedError

    @cached_property
    def _static_shapes(self) -> bool:
        # JAX compiles every new shape.
        return keras.backend.backend() == "jax"

    def _in_batches(
        self, rows: list[list[int]], batch_size: int, limit: int | None = None
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yields the numbers of rows of like length, and those rows as one padded array.

        So there is little padding, and a batch of decoding ends when its longest row does. The array may have more
        rows than there are numbers.

        Args:
            rows: Rows of ids.
            batch_size: Rows in a batch.
            limit: Largest width of the array that padding to few shapes may make.
        """
        check_whole(batch_size=batch_size)
        if batch_size < 1:
            raise InputError(f"`batch_size` must be at least 1. Received: batch_size={batch_size}.")
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = [rows[index] for index in chosen]
            width = self._width(batch)
            yield chosen, pad(batch, min(width, limit or width), batch_size if self._static_shapes else None)

    def _answers(
        self,
        predictor: Predictor,
        rows: list[list[int]],
        batch_size: int,
        inputs: Callable[[list[int], np.ndarray], dict[str, Any]],
        limit: int | None = None,
    ) -> Iterator[tuple[list[int], Any]]:
        """Yields the numbers of rows of like length, the longest first, and what a model makes of them.

        Args:
            predictor: The model.
            rows: See `_in_batches`.
            batch_size: See `_in_batches`.
            inputs: Function of what `_in_batches` yields that returns the model's inputs.
            limit: See `_in_batches`.
        """
        batches = list(self._in_batches(rows, batch_size, limit))[::-1]
        found = predictor.each([inputs(*batch) for batch in batches])
        return zip((chosen for chosen, _ in batches), found, strict=True)

    def _width(self, rows: list[list[int]]) -> int:
        """Returns the width of an array for these rows, at least 1: one of few where shapes are to be few."""
        width = max(1, *map(len, rows))
        return -(-width // 16) * 16 if self._static_shapes else width


def cut_texts(texts: Sequence[str], from_end: bool = False) -> list[str]:
    """Returns texts of at most `MAX_TEXT_BYTES`; what is left of a character that is cut in two is U+FFFD.

    Args:
        texts: The texts.
        from_end: Whether the ends are kept rather than the beginnings.
    """
    kept = slice(-MAX_TEXT_BYTES, None) if from_end else slice(MAX_TEXT_BYTES)

    def cut(text):
        if 4 * len(text) <= MAX_TEXT_BYTES:  # no character has more bytes
            return text
        return without_surrogates(text).encode("utf-8")[kept].decode("utf-8", "replace")

    return [cut(text) for text in texts]


def read_texts(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[list[int]]:
    """Returns the ids of texts with the end symbol, cut at `limit` symbols.

    Args:
        tokenizer: The tokenizer.
        texts: The texts.
        limit: Largest number of symbols.
    """
    return [[*row[: limit - 1], END] for row in tokenizer.encode(cut_texts(texts))]


def check_texts(texts: Sequence[str]) -> None:
    """Checks that texts are a list of strings, and not one string.

    Args:
        texts: The texts.

    Raises:
        InputError: If they are not.
    """
    if isinstance(texts, str):
        raise InputError(f"`texts` must be a list of strings. Received a single string: {texts!r}.")
