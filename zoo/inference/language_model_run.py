"""A trained language model."""

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from zoo.errors import InputError, check_whole
from zoo.inference.base_run import Run, check_texts, cut_texts
from zoo.inference.classifier_run import Tokenizers
from zoo.inference.generator import Generator, TextScorer
from zoo.inference.predictor import Predictor
from zoo.text import PAD, Tokenizer

_SEEDS = 1 << 31


def cut_prompt(ids: list[int], room: int) -> list[int]:
    """Returns the ids of a prompt, or where they leave no room for an answer the last ones, half as many as fit.

    Args:
        ids: The ids.
        room: Largest number of symbols, prompt and answer together.
    """
    return ids if len(ids) < room else ids[len(ids) - room // 2 :]


class Continuation(NamedTuple):
    """How a model goes on with a text.

    Attributes:
        text: What follows.
        log_prob: Its log probability.
    """

    text: str
    log_prob: float


class Score(NamedTuple):
    """How probable a text is.

    Attributes:
        log_prob: Its log probability.
        num_tokens: Its number of symbols.
    """

    log_prob: float
    num_tokens: int


class LanguageModelRun(Run):
    """A work directory of a language model: it goes on with texts.

    Attributes:
        tokenizers: The `text` tokenizer.

    Args:
        path: See `Run`.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__(path)
        self.tokenizers = Tokenizers(self._load_tokenizer("text"))
        self._generators: dict[str, Predictor] = {}

    def tokenizer_files(self) -> dict[str, Tokenizer]:
        """See `Run`."""
        return self.tokenizers._asdict()

    def generate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """Returns how the model goes on with each text.

        Args:
            texts: See `continuations`.
            **options: See `continuations`.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        return [found.text for found in self.continuations(texts, **options)]

    def continuations(
        self,
        texts: Sequence[str],
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        max_length: int | None = None,
        no_repeat_ngram: int = 0,
        batch_size: int = 64,
    ) -> list[Continuation]:
        """Returns how the model goes on with each text, and how probable that is.

        Args:
            texts: What each text begins with; may be empty. Of one that leaves no room for an answer the end is read,
                half of `max_length`.
            temperature: Divides the logits before symbols are drawn; 0 takes the most probable symbol.
            top_k: Draw among this many most probable symbols only; 0 for all.
            top_p: Draw among the fewest symbols that together have this probability.
            seed: Seed of the draws, an integer of 32 bits. The same texts in the same order get the same answers.
            max_length: Largest number of symbols, those of the text included. Default: all that the model can hold.
            no_repeat_ngram: No n symbols come twice, those of the text included; 0 for no such rule.
            batch_size: Texts decoded together.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        check_texts(texts)
        check_whole(seed=seed)
        if not -_SEEDS <= seed < _SEEDS:
            raise InputError(f"`seed` must be from {-_SEEDS} to {_SEEDS - 1}. Received: seed={seed}.")
        generator = self._generator(temperature, top_k, top_p, max_length, no_repeat_ngram)
        ids = self.tokenizers.text.encode(cut_texts(texts, from_end=True))
        rows = [cut_prompt(row, generator.model.max_length) for row in ids]
        answers = [Continuation("", 0.0)] * len(rows)

        def inputs(chosen, batch):
            numbers = np.resize(chosen, len(batch)).astype("int32")
            return {"prompt": batch, "seed": np.full_like(numbers, seed), "row": numbers}

        # Without a text the one column is padding.
        prompts, limit = [row or [PAD] for row in rows], generator.model.max_length
        for chosen, found in self._answers(generator, prompts, batch_size, inputs, limit):
            for index, row, log_prob in zip(chosen, found["ids"], found["log_prob"], strict=False):
                answers[index] = Continuation(self._behind(len(rows[index]), row.tolist()), float(log_prob))
        return answers

    def score(self, texts: Sequence[str], batch_size: int = 64) -> list[Score]:
        """Returns the log probability of each text, of which as much is read as the model can hold.

        Args:
            texts: The texts.
            batch_size: Texts looked at together.

        Raises:
            InputError: If `texts` is one string.
        """
        check_texts(texts)
        limit = self.model.max_length
        rows = [row[:limit] for row in self.tokenizers.text.encode(cut_texts(texts))]
        scores = [Score(0.0, 0)] * len(rows)
        given = [row or [PAD] for row in rows]
        for chosen, found in self._answers(self._scorer, given, batch_size, lambda _, batch: {"tokens": batch}, limit):
            for index, log_prob in zip(chosen, found, strict=False):
                scores[index] = Score(float(log_prob), len(rows[index]))
        return scores

    @cached_property
    def _scorer(self) -> Predictor:
        return Predictor(TextScorer(self.model))

    def _behind(self, length: int, ids: list[int]) -> str:
        """Returns the text of ids without that of the first `length` of them; what joins the two belongs to it."""
        whole, prompt = self.tokenizers.text.decode([ids, ids[:length]])
        return whole[len(prompt) :]

    def _generator(self, *options) -> Predictor:
        key = repr(options)  # In which 1 is neither True nor 1.0.
        if key not in self._generators:
            self._generators[key] = Predictor(Generator(self.model, *options))
        return self._generators[key]
