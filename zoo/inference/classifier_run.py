"""A trained classifier."""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import keras
import numpy as np

from zoo.errors import InputError
from zoo.inference.base_run import Run, check_texts, read_texts
from zoo.inference.predictor import Predictor
from zoo.text import Tokenizer
from zoo.workdir import WorkDir

MAX_TEXT_LENGTH = 512
"""Symbols of a text that are read, the end included; the rest is cut off."""


class Tokenizers(NamedTuple):
    """The one tokenizer of a classifier or a language model."""

    text: Tokenizer


class Answer(NamedTuple):
    """What a classifier says of a text.

    Attributes:
        label: The most probable class.
        probabilities: Of each class, in the order of `ClassifierRun.classes`, float32 [C].
    """

    label: str
    probabilities: np.ndarray


class ClassifierRun(Run):
    """A work directory of a classifier: strings in, labels out.

    Attributes:
        tokenizers: The `text` tokenizer.
        classes: The labels, in the order of the model's outputs.

    Args:
        path: See `Run`.

    Raises:
        InputError: See `Run`; or if the configuration names no classes.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(path)
        self.tokenizers = Tokenizers(self._load_tokenizer("text"))
        data = self.config.get("data")
        classes = data.get("classes") if isinstance(data, dict) else None
        if not isinstance(classes, list):
            raise InputError(
                f"{WorkDir(path).config} is not the configuration of a trained classifier: it has no data.classes."
            )
        self.classes: list[str] = classes

    def tokenizer_files(self) -> dict[str, Tokenizer]:
        """See `Run`."""
        return self.tokenizers._asdict()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts as the model reads them, the end included.

        Args:
            texts: The texts.

        Raises:
            InputError: If `texts` is one string.
        """
        check_texts(texts)
        return read_texts(self.tokenizers.text, texts, MAX_TEXT_LENGTH)

    def classify(self, texts: Sequence[str], batch_size: int = 64) -> list[Answer]:
        """Returns label and probabilities of each text.

        Args:
            texts: The texts.
            batch_size: Texts read together.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        rows = self.ids(texts)
        probabilities = np.zeros((len(rows), len(self.classes)), np.float32)
        for chosen, logits in self._answers(self._predictor, rows, batch_size, lambda _, batch: {"tokens": batch}):
            probabilities[chosen] = keras.ops.convert_to_numpy(keras.ops.softmax(logits[: len(chosen)]))
        return [Answer(self.classes[row.argmax()], row) for row in probabilities]

    @cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self.model)

    def embed(self, texts: Sequence[str]) -> list[tuple[list[str], np.ndarray]]:
        """Returns the tokens of each text and what the model makes of them in their context.

        Args:
            texts: The texts.

        Returns:
            A list of `(tokens, vectors)` with vectors float32 [S, D]; the end symbol is the last token.

        Raises:
            InputError: If `texts` is one string.
        """
        results = []
        for row in self.ids(texts):
            vectors = self.model.represent(np.array([row], "int32"))
            results.append((self.tokenizers.text.pieces(row), keras.ops.convert_to_numpy(vectors)[0]))
        return results

    def attention(self, texts: Sequence[str]) -> list[tuple[list[str], np.ndarray]]:
        """Returns the tokens of each text and the attention between them.

        Args:
            texts: The texts.

        Returns:
            A list of `(tokens, weights)` with weights [layers, heads, S, S].

        Raises:
            InputError: If the model has no attention, or `texts` is one string.
        """
        if not self.model.attends:
            raise InputError(f"{self.spec.name} has no attention.")
        results = []
        for row in self.ids(texts):
            weights = self.model.attention(np.array([row], "int32"))
            results.append((self.tokenizers.text.pieces(row), keras.ops.convert_to_numpy(weights)[0]))
        return results
