"""A trained sequence-to-sequence model."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np

from zoo.run.run import Run, check_texts
from zoo.text import END, PAD, START, Tokenizer
from zoo.translator import Translator

MAX_SOURCE_LENGTH = 512
"""Symbols of a source text that are read, the end included; the rest is cut off."""


class Tokenizers(NamedTuple):
    """The tokenizers of the two sides."""

    source: Tokenizer
    target: Tokenizer


class Seq2SeqRun(Run):
    """A work directory of a sequence-to-sequence model: strings in, strings out.

    Attributes:
        tokenizers: `source` and `target` tokenizer.

    Args:
        path: See `Run`.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(path)
        self.tokenizers = Tokenizers(*map(self._load_tokenizer, Tokenizers._fields))
        self._translators: dict[tuple, Translator] = {}

    def tokenizer_files(self) -> dict[str, Tokenizer]:
        """See `Run`."""
        return self.tokenizers._asdict()

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
        check_texts(texts)
        key = (beam_size, length_penalty, max_length)
        if key not in self._translators:
            self._translators[key] = Translator(self.model, *key)
            self._translators[key].compile(jit_compile=self._static_shapes)
        rows = self.source_ids(texts)
        ids: list[list[int]] = [[] for _ in rows]
        for chosen, batch in self._in_batches(rows, batch_size):
            outputs = self._translators[key].predict_on_batch(batch)
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
