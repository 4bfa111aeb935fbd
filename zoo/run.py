"""A trained work directory, loaded for use."""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import keras
import numpy as np

from zoo.errors import InputError
from zoo.registry import get_spec
from zoo.text import END, PAD, START, Tokenizer, load_tokenizer, pad
from zoo.translator import Translator
from zoo.workdir import WorkDir

MAX_SOURCE_LENGTH = 512
"""Symbols of a source text that are read, the end included; the rest is cut off."""


class Tokenizers(NamedTuple):
    """The tokenizers of the two sides."""

    source: Tokenizer
    target: Tokenizer


class Run:
    """A trained work directory.

    Attributes:
        model: The `keras.Model`, in float32.
        tokenizers: `source` and `target` tokenizer.
        config: The resolved configuration, a dict.

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
        self.spec = get_spec(self.config["model"]["name"])
        self.tokenizers = Tokenizers(load_tokenizer(workdir.source_tokenizer), load_tokenizer(workdir.target_tokenizer))
        # Registers the class by its name in the file.
        self.spec.load_class()
        self.model = self._load_model(workdir)
        self._translators: dict[tuple, Translator] = {}

    @staticmethod
    def _load_model(workdir: WorkDir) -> keras.Model:
        try:
            return keras.saving.load_model(workdir.model, compile=False)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"{workdir.model} is not a model of this version of the zoo: {reason}") from error

    @cached_property
    def _static_shapes(self) -> bool:
        # JAX compiles every new shape.
        return keras.backend.backend() == "jax"

    def source_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts as the model reads them, the end included.

        Args:
            texts: Source texts.
        """
        return [[*row[: MAX_SOURCE_LENGTH - 1], END] for row in self.tokenizers.source.encode(texts)]

    def translate(
        self,
        texts: Sequence[str],
        beam_size: int = 1,
        length_penalty: float = 0.6,
        max_length: int = 256,
        batch_size: int = 64,
    ) -> list[str]:
        """Returns the translation of each text.

        Args:
            texts: Source texts.
            beam_size: 1 for greedy search, more for beam search.
            length_penalty: Exponent of the length penalty of beam search.
            max_length: Largest number of target symbols.
            batch_size: Texts decoded together.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        return self.tokenizers.target.decode(self.target_ids(texts, beam_size, length_penalty, max_length, batch_size))

    def target_ids(
        self,
        texts: Sequence[str],
        beam_size: int = 1,
        length_penalty: float = 0.6,
        max_length: int = 256,
        batch_size: int = 64,
    ) -> list[list[int]]:
        """Returns the ids of the translation of each text, the end included where it was reached.

        Args and errors: see `translate`.
        """
        if isinstance(texts, str):
            raise InputError(f"`texts` must be a list of strings. Received a single string: {texts!r}.")
        key = (beam_size, length_penalty, max_length)
        if key not in self._translators:
            self._translators[key] = Translator(self.model, *key)
            self._translators[key].compile(jit_compile=self._static_shapes)
        rows = self.source_ids(texts)
        ids: list[list[int]] = [[] for _ in rows]
        # Texts of like length together: little padding, and a batch ends when its longest row does.
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            outputs = self._translators[key].predict_on_batch(self._batch([rows[i] for i in chosen], batch_size))
            for index, row in zip(chosen, outputs["ids"][:, 0], strict=False):
                ids[index] = row[row != PAD].tolist()
        return ids

    def attention(self, texts: Sequence[str], **options) -> list[tuple[list[str], list[str], np.ndarray]]:
        """Returns, for each text, source tokens, target tokens and the cross-attention between them.

        Args:
            texts: Source texts.
            **options: As in `translate`.

        Returns:
            A list of `(source_tokens, target_tokens, weights)` with weights [layers, heads, T, S].
        """
        targets = self.target_ids(texts, **options)
        results = []
        for source, target in zip(self.source_ids(texts), targets, strict=True):
            weights = self.model.attention(np.array([source], "int32"), np.array([[START, *target[:-1]]], "int32"))
            pieces = self.tokenizers.source.pieces(source), self.tokenizers.target.pieces(target)
            results.append((*pieces, keras.ops.convert_to_numpy(weights)[0]))
        return results

    def _batch(self, rows: list[list[int]], batch_size: int) -> np.ndarray:
        if not self._static_shapes:
            return pad(rows)
        return pad(rows, -(-max(map(len, rows)) // 16) * 16, batch_size)
