"""A trained language model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.decoding_options import SEED, GenerationOptions
from zoo.explorer import View
from zoo.inference.answers import TextAttention
from zoo.inference.base_run import Inputs, Run, as_texts, cut_texts
from zoo.inference.exploring import answer_view, attention_of, notes_on_length
from zoo.inference.generator import Generator, TextScorer
from zoo.inference.predictions import Prediction, TokenScorer, read_predictions
from zoo.inference.text_encoder_run import Tokenizers
from zoo.vocabulary import END, PAD, START


def cut_prompt(ids: list[int], max_length: int) -> list[int]:
    """Returns the ids of a prompt, or only the last `max_length // 2` if there are `max_length` or more."""
    return ids if len(ids) < max_length else ids[len(ids) - max_length // 2 :]


class Continuation(NamedTuple):
    """A continuation of a text by a model.

    Attributes:
        text: The text of the continuation.
        log_prob: Its log probability.
    """

    text: str
    log_prob: float


class Score(NamedTuple):
    """The log probability of a text.

    Attributes:
        log_prob: Its log probability; for a model without `start_symbol`, its first token does not count.
        num_tokens: Its number of tokens.
    """

    log_prob: float
    num_tokens: int


class LanguageModelRun(Run):
    """A work directory of a language model, which continues texts.

    Attributes:
        tokenizers: The `text` tokenizer.

    Args:
        path: See `Run`.
    """

    tokenizers: Tokenizers
    tokenizers_type = Tokenizers

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Run`; texts begin with the start token, if the model has one, and are cut to its `max_length`."""
        texts = as_texts(texts)
        rows = self.tokenizers.text.encode(cut_texts(texts))
        if not self.model.start_symbol:
            return [row[: self.model.max_length] or [START] for row in rows]
        return [[START, *row][: self.model.max_length] for row in rows]

    def attention(self, texts: Sequence[str], kind: str = "decoder") -> list[TextAttention]:
        """Returns the tokens of each text, see `ids`, and the attention of each token to itself and previous ones.

        Args:
            texts: The texts.
            kind: `"decoder"`, the only one that language models have.

        Returns:
            A list of `(tokens, weights)` with weights [layers, heads, T, T]; row t predicts the token after t.

        Raises:
            InputError: If the model has no such attention, or `texts` is one string.
        """
        self._check_kind(kind)
        return self._attention_of(self._decoder_attention, texts)

    def _decoder_attention(self, tokens: np.ndarray) -> Any:
        return self.model.attentions(tokens)["decoder"]

    def generate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """Returns the continuation of each text.

        Args:
            texts: See `continuations`.
            **options: See `continuations`.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        return [continuation.text for continuation in self.continuations(texts, **options)]

    def continuations(
        self,
        texts: Sequence[str],
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        max_length: int | None = None,
        no_repeat_ngram: int = 0,
        draft_length: int = 0,
        batch_size: int = 64,
    ) -> list[Continuation]:
        """Returns the continuation of each text and its log probability.

        Args:
            texts: The prompts; may be empty. A prompt of `max_length` or more tokens is cut to its last
                `max_length // 2` tokens.
            temperature: See `zoo.decoding_options.GenerationOptions`, also for the options below.
            top_k: Sample only from this many most probable tokens; 0 for all.
            top_p: Sample from the smallest set of most probable tokens with this total probability.
            seed: Seed of the samples, an integer of 32 bits; the same texts in the same order give the same results.
            max_length: Maximum number of tokens, including the prompt. Default: the maximum of the model.
            no_repeat_ngram: No n-gram of this size occurs twice, including the prompt's; 0 for no such constraint.
            draft_length: Number of tokens to draft and confirm at once; 0 for none. The results stay the same.
            batch_size: Texts in a batch.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        texts = as_texts(texts)
        seed = SEED.checked("seed", seed)
        request = GenerationOptions(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            max_length=max_length,
            no_repeat_ngram=no_repeat_ngram,
            draft_length=draft_length,
        ).resolved(self.model)
        limit = request.max_length or 0
        rows = [cut_prompt(row, limit) for row in self.tokenizers.text.encode(cut_texts(texts, from_end=True))]

        def inputs(indices: list[int], batch: np.ndarray) -> Inputs:
            numbers = np.resize(indices, len(batch)).astype("int32")
            return {"prompt": batch, "seed": np.full_like(numbers, seed), "row": numbers}

        generator = self._predictor(request, lambda: Generator(self.model, request, draft=self.draft_model))
        outputs = self._predict(generator, _never_empty(rows), batch_size, inputs, limit)
        return [
            Continuation(self._text_after(len(row), output["ids"].tolist()), float(output["log_prob"]))
            for row, output in zip(rows, outputs, strict=True)
        ]

    def score(self, texts: Sequence[str], batch_size: int = 64) -> list[Score]:
        """Returns the log probability of each text, cut to the model's `max_length`.

        Args:
            texts: The texts.
            batch_size: Texts in a batch.

        Raises:
            InputError: If `texts` is one string, or `batch_size` is not a positive integer.
        """
        texts = as_texts(texts)
        limit = self.model.max_length
        rows = [row[:limit] for row in self.tokenizers.text.encode(cut_texts(texts))]
        scorer = self._predictor("score", lambda: TextScorer(self.model))
        scores = self._predict(scorer, _never_empty(rows), batch_size, lambda _, batch: {"tokens": batch}, limit)
        return [Score(float(score), len(row)) for score, row in zip(scores, rows, strict=True)]

    def predictions(self, texts: Sequence[str], batch_size: int = 16) -> list[list[Prediction]]:
        """Returns the log probability and the most probable alternatives of each token of each text and of its end.

        Args:
            texts: The texts, cut to the model's `max_length`.
            batch_size: Texts in a batch.

        Raises:
            InputError: If `texts` is one string, or `batch_size` is not a positive integer.
        """
        texts = as_texts(texts)
        before, encoded = self.ids(texts), self.tokenizers.text.encode(cut_texts(texts))
        first = 0 if self.model.start_symbol else 1
        rows = [[*row[first:], END][: self.model.max_length] for row in encoded]

        def inputs(indices: list[int], batch: np.ndarray) -> Inputs:
            return {"tokens": batch, "before": self._pad_like(batch, [before[index] for index in indices])}

        scorer = self._predictor("predictions", lambda: TokenScorer(TextScorer(self.model)))
        outputs = self._predict(scorer, rows, batch_size, inputs, self.model.max_length)
        return [read_predictions(self.tokenizers.text, row, output) for row, output in zip(rows, outputs, strict=True)]

    def _view(self, text: str, **options: Any) -> View:
        (continuation,), (prompt,) = self.continuations([text], **options), self.ids([text])
        whole = text + continuation.text
        (ids,), (predictions,) = self.ids([whole]), self.predictions([whole])
        before, weights = self.reader.pieces(ids), attention_of(self.model.attentions, ids)
        length = min(len(prompt) - 1, len(ids))
        answer = answer_view(continuation.text, continuation.log_prob, None, before, predictions, weights, length)
        notes = notes_on_length(self.reader, whole, len(ids))
        return View("language_model", self.spec.name, text, answers=[answer], notes=notes)

    def _text_after(self, length: int, ids: list[int]) -> str:
        """Returns the text of the ids after the first `length` ones, including a space before it."""
        text, prompt = self.tokenizers.text.decode([ids, ids[:length]])
        return text[len(prompt) :]


def _never_empty(rows: list[list[int]]) -> list[list[int]]:
    """Returns rows in which empty ones are replaced by one padding token."""
    return [row or [PAD] for row in rows]
