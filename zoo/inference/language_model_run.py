"""A trained language model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.decoding_options import SEED, GenerationOptions
from zoo.explorer import View
from zoo.inference.answers import TextAttention
from zoo.inference.base_run import Inputs, Run, as_texts, cut_texts
from zoo.inference.exploring import continuation_view
from zoo.inference.generator import Generator, TextScorer
from zoo.inference.predictions import Prediction, SymbolScorer, read_predictions
from zoo.inference.text_encoder_run import Tokenizers
from zoo.vocabulary import END, PAD, START


def cut_prompt(ids: list[int], room: int) -> list[int]:
    """Returns the ids of a prompt; the last `room // 2` if they leave no room for an answer in `room` symbols."""
    return ids if len(ids) < room else ids[len(ids) - room // 2 :]


class Continuation(NamedTuple):
    """How a model continues a text.

    Attributes:
        text: What follows.
        log_prob: Its log probability.
    """

    text: str
    log_prob: float


class Score(NamedTuple):
    """How probable a text is.

    Attributes:
        log_prob: Its log probability; of a model without `start_symbol` that of all but its first symbol.
        num_tokens: Its number of symbols.
    """

    log_prob: float
    num_tokens: int


class LanguageModelRun(Run):
    """A work directory of a language model: it continues texts.

    Attributes:
        tokenizers: The `text` tokenizer.

    Args:
        path: See `Run`.
    """

    tokenizers: Tokenizers
    tokenizers_type = Tokenizers

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Run`; the start comes first, if the model has one, and as much is read as the model can hold."""
        texts = as_texts(texts)
        rows = self.tokenizers.text.encode(cut_texts(texts))
        if not self.model.start_symbol:
            return [row[: self.model.max_length] or [START] for row in rows]
        return [[START, *row][: self.model.max_length] for row in rows]

    def attention(self, texts: Sequence[str], kind: str = "decoder") -> list[TextAttention]:
        """Returns the tokens of each text, the start first, and the attention of each to itself and those before it.

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
        batch_size: int = 64,
    ) -> list[Continuation]:
        """Returns the continuation of each text, and how probable it is.

        Args:
            texts: What each text begins with; may be empty. Of one that leaves no room for an answer the end is read,
                half of `max_length`.
            temperature: See `zoo.decoding_options.GenerationOptions`, as for the options below.
            top_k: Draw among this many most probable symbols only; 0 for all.
            top_p: Draw among the fewest symbols that together have this probability.
            seed: Seed of the draws, an integer of 32 bits. The same texts in the same order get the same answers.
            max_length: Largest number of symbols, those of the text included. Default: all that the model can hold.
            no_repeat_ngram: No n symbols come twice, those of the text included; 0: they may.
            batch_size: Texts decoded together.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        texts = as_texts(texts)
        seed = SEED.checked("seed", seed)
        request = GenerationOptions(
            temperature=temperature, top_k=top_k, top_p=top_p, max_length=max_length, no_repeat_ngram=no_repeat_ngram
        ).resolved(self.model)
        room = request.max_length or 0
        rows = [cut_prompt(row, room) for row in self.tokenizers.text.encode(cut_texts(texts, from_end=True))]

        def inputs(indices: list[int], batch: np.ndarray) -> Inputs:
            numbers = np.resize(indices, len(batch)).astype("int32")
            return {"prompt": batch, "seed": np.full_like(numbers, seed), "row": numbers}

        generator = self._predictor(request, lambda: Generator(self.model, request))
        outputs = self._predict(generator, _never_empty(rows), batch_size, inputs, room)
        return [
            Continuation(self._text_after(len(row), output["ids"].tolist()), float(output["log_prob"]))
            for row, output in zip(rows, outputs, strict=True)
        ]

    def score(self, texts: Sequence[str], batch_size: int = 64) -> list[Score]:
        """Returns the log probability of each text, of which as much is read as the model can hold.

        Args:
            texts: The texts.
            batch_size: Texts scored together.

        Raises:
            InputError: If `texts` is one string.
        """
        texts = as_texts(texts)
        limit = self.model.max_length
        rows = [row[:limit] for row in self.tokenizers.text.encode(cut_texts(texts))]
        scorer = self._predictor("score", lambda: TextScorer(self.model))
        scores = self._predict(scorer, _never_empty(rows), batch_size, lambda _, batch: {"tokens": batch}, limit)
        return [Score(float(score), len(row)) for score, row in zip(scores, rows, strict=True)]

    def predictions(self, texts: Sequence[str], batch_size: int = 16) -> list[list[Prediction]]:
        """Returns, for each text, how probable each symbol is, that of its end too, and what else could stand there.

        Args:
            texts: The texts, of which as much is read as the model can hold.
            batch_size: Texts scored together.

        Raises:
            InputError: If `texts` is one string.
        """
        texts = as_texts(texts)
        before, encoded = self.ids(texts), self.tokenizers.text.encode(cut_texts(texts))
        first = 0 if self.model.start_symbol else 1
        rows = [[*row[first:], END][: self.model.max_length] for row in encoded]

        def inputs(indices: list[int], batch: np.ndarray) -> Inputs:
            return {"tokens": batch, "before": self._pad_like(batch, [before[index] for index in indices])}

        scorer = self._predictor("predictions", lambda: SymbolScorer(TextScorer(self.model)))
        outputs = self._predict(scorer, rows, batch_size, inputs, self.model.max_length)
        return [read_predictions(self.tokenizers.text, row, output) for row, output in zip(rows, outputs, strict=True)]

    def _view(self, text: str, **options: Any) -> View:
        return continuation_view(self, text, **options)

    def _text_after(self, length: int, ids: list[int]) -> str:
        """Returns the text of ids without that of the first `length` of them; what joins the two belongs to it."""
        whole, prompt = self.tokenizers.text.decode([ids, ids[:length]])
        return whole[len(prompt) :]


def _never_empty(rows: list[list[int]]) -> list[list[int]]:
    """Returns rows with one symbol of padding for each that is empty."""
    return [row or [PAD] for row in rows]
