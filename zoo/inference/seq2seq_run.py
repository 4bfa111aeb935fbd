"""A trained sequence-to-sequence model."""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import keras
import numpy as np

from zoo.errors import InputError, unknown_name
from zoo.inference.base_run import Run, check_texts, read_texts
from zoo.inference.predictor import Predictor
from zoo.inference.translator import LEAST_LOG_PROB, Scorer, Translator
from zoo.text import PAD, START, Tokenizer, pad

MAX_SOURCE_LENGTH = 512
"""Symbols of a source text that are read, the end included; the rest is cut off."""

MAX_TARGET_LENGTH = 512
"""Symbols of a target text that are scored, the end included; the rest is cut off."""

_OPTIONS = ("beam_size", "length_penalty", "coverage_penalty", "max_length", "no_repeat_ngram")


class Hypothesis(NamedTuple):
    """A translation.

    Attributes:
        text: The translation.
        log_prob: Its log probability.
        ids: Its ids, the end included where it was reached.
    """

    text: str
    log_prob: float
    ids: list[int]


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
        self._translators: dict[str, Predictor] = {}

    def tokenizer_files(self) -> dict[str, Tokenizer]:
        """See `Run`."""
        return self.tokenizers._asdict()

    def source_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts as the model reads them, the end included.

        Args:
            texts: Source texts.
        """
        return read_texts(self.tokenizers.source, texts, MAX_SOURCE_LENGTH)

    def translate(
        self, texts: Sequence[str], prefixes: Sequence[str] | None = None, batch_size: int = 64, **options: Any
    ) -> list[str]:
        """Returns the translation of each text.

        Args:
            texts: Source texts.
            prefixes: What each translation is to begin with. Default: anything.
            batch_size: Texts decoded together.
            **options: `beam_size`, `length_penalty`, `coverage_penalty`, `max_length`, `no_repeat_ngram`; see
                `zoo.inference.translator.Translator`.

        Raises:
            InputError: If `texts` or `prefixes` is one string, their numbers differ, or an option is out of range.
        """
        return [best[0].text for best in self._hypotheses(texts, prefixes, batch_size, 1, options)]

    def nbest(
        self,
        texts: Sequence[str],
        beam_size: int = 5,
        prefixes: Sequence[str] | None = None,
        batch_size: int = 64,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the `beam_size` best translations of each text, best first; fewer where there are no more.

        Args:
            texts: Source texts.
            beam_size: How many.
            prefixes: See `translate`.
            batch_size: See `translate`.
            **options: See `translate`.
        """
        return self._hypotheses(texts, prefixes, batch_size, None, {"beam_size": beam_size, **options})

    def score(self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 64) -> list[float]:
        """Returns the log probability of each target, its end included, given its source.

        Args:
            sources: Source texts.
            targets: As many target texts.
            batch_size: Pairs looked at together.

        Raises:
            InputError: If either is one string, or their numbers differ.
        """
        check_texts(sources)
        check_texts(targets)
        _check_numbers("targets", targets, sources)
        rows = self.source_ids(sources)
        ids = read_texts(self.tokenizers.target, targets, MAX_TARGET_LENGTH)
        scores = [0.0] * len(rows)

        def inputs(chosen, batch):
            return {"source": batch, "target": self._beside(batch, [ids[index] for index in chosen])}

        for chosen, found in self._answers(self._scorer, rows, batch_size, inputs):
            for index, score in zip(chosen, found, strict=False):
                scores[index] = float(score)
        return scores

    @cached_property
    def _scorer(self) -> Predictor:
        return Predictor(Scorer(self.model))

    def _beside(self, batch: np.ndarray, rows: list[list[int]]) -> np.ndarray:
        """Returns rows as an array with as many rows as the batch, at least one symbol wide."""
        return pad(rows, self._width(rows), len(batch))

    def _hypotheses(self, texts, prefixes, batch_size, nbest, options) -> list[list[Hypothesis]]:
        check_texts(texts)
        given = None
        if prefixes is not None:
            check_texts(prefixes)
            _check_numbers("prefixes", prefixes, texts)
            given = self.tokenizers.target.encode(prefixes)
        translator, rows = self._translator(nbest, options), self.source_ids(texts)
        found: list[list[Hypothesis]] = [[] for _ in rows]

        def inputs(chosen, batch):
            if given is None:
                return {"source": batch}
            return {"source": batch, "prefix": self._beside(batch, [given[index] for index in chosen])}

        for chosen, outputs in self._answers(translator, rows, batch_size, inputs):
            for index, ids, log_probs in zip(chosen, outputs["ids"], outputs["log_prob"], strict=False):
                found[index] = self._read_off(ids, log_probs)
        return found

    def _read_off(self, ids: np.ndarray, log_probs: np.ndarray) -> list[Hypothesis]:
        there = log_probs > LEAST_LOG_PROB
        rows = [row[row != PAD].tolist() for row in ids[there]]
        texts = self.tokenizers.target.decode(rows)
        return [Hypothesis(*each) for each in zip(texts, map(float, log_probs[there]), rows, strict=True)]

    def _translator(self, nbest, options) -> Predictor:
        for name in options:
            if name not in _OPTIONS:
                raise unknown_name("option of decoding", name, _OPTIONS)
        key = repr((nbest, sorted(options.items())))  # In which 1 is neither True nor 1.0.
        if key not in self._translators:
            self._translators[key] = Predictor(Translator(self.model, nbest=nbest, **options))
        return self._translators[key]

    def attention(
        self, texts: Sequence[str], prefixes: Sequence[str] | None = None, batch_size: int = 64, **options: Any
    ) -> list[tuple[list[str], list[str], np.ndarray]]:
        """Returns, for each text, source tokens, target tokens and the cross-attention between them.

        Args:
            texts: Source texts.
            prefixes: See `translate`.
            batch_size: See `translate`.
            **options: See `translate`.

        Returns:
            A list of `(source_tokens, target_tokens, weights)` with weights [layers, heads, T, S].
        """
        hypotheses = self._hypotheses(texts, prefixes, batch_size, 1, options)
        return [self.align(text, best[0]) for text, best in zip(texts, hypotheses, strict=True)]

    def align(self, text: str, hypothesis: Hypothesis) -> tuple[list[str], list[str], np.ndarray]:
        """Returns source tokens, target tokens and the cross-attention [layers, heads, T, S] of one translation.

        Args:
            text: The source text.
            hypothesis: Any of its translations, from `nbest`.
        """
        (source,), target = self.source_ids([text]), hypothesis.ids
        weights = self.model.attention(np.array([source], "int32"), np.array([[START, *target[:-1]]], "int32"))
        pieces = self.tokenizers.source.pieces(source), self.tokenizers.target.pieces(target)
        return *pieces, keras.ops.convert_to_numpy(weights)[0]


def _check_numbers(name: str, texts: Sequence[str], others: Sequence[str]) -> None:
    if len(texts) != len(others):
        raise InputError(f"`{name}` must be as many as there are sources, {len(others)}. Received: {len(texts)}.")
