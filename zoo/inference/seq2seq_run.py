"""A trained sequence-to-sequence model."""

import copy
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import keras
import numpy as np

from zoo.decoding_options import TranslationOptions
from zoo.errors import InputError, unknown_name
from zoo.explorer import View
from zoo.inference.answers import TextAttention
from zoo.inference.base_run import Inputs, Run, as_texts, read_texts
from zoo.inference.exploring import answer_view, attention_of, notes_on_length
from zoo.inference.predictions import Prediction, TokenScorer, read_predictions
from zoo.inference.shortlist import Shortlist
from zoo.inference.translator import LEAST_LOG_PROB, Scorer, Translator
from zoo.text import Tokenizer
from zoo.vocabulary import PAD, START
from zoo.workdir import WorkDir

MAX_SOURCE_LENGTH = 512
"""Maximum number of tokens of a source text, including the end; longer texts are cut."""

MAX_TARGET_LENGTH = 512
"""Maximum number of tokens of a target text that is scored, including the end; longer texts are cut."""


class Hypothesis(NamedTuple):
    """A translation.

    Attributes:
        text: The translation.
        log_prob: Its log probability.
        ids: Its ids, including the end if it was reached.
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

    tokenizers: Tokenizers
    tokenizers_type = Tokenizers

    def reloaded(self) -> "Seq2SeqRun":
        """See `Run`."""
        run: Any = super().reloaded()
        run.tokenizers = self.tokenizers
        return run  # type: ignore[no-any-return]

    def with_languages(self, source: str | None = None, target: str | None = None) -> Self:
        """Returns a run with the same model for other languages; only for models with language codes.

        Args:
            source: The code of the language of sources. Default: unchanged.
            target: The code of the language of translations. Default: unchanged.

        Raises:
            InputError: If the model has no such language; the message suggests similar ones.
        """
        run, tokenizers = copy.copy(self), self.tokenizers._asdict()
        for side, code in (("source", source), ("target", target)):
            if code is None:
                continue
            if not tokenizers[side].around.languages:
                fixed = " It is set at import, by --target_language." if tokenizers["source"].around.languages else ""
                raise InputError(
                    f"{self.path} has no choice of {side} languages.{fixed} Received: {side}_language={code!r}."
                )
            try:
                around = tokenizers[side].around.of_language(code)
            except InputError as error:
                raise InputError(f"--{side}_language: {error}") from None
            tokenizers[side] = tokenizers[side].with_around(around)
        run.tokenizers = Tokenizers(**tokenizers)
        run.__dict__.pop("shortlist", None)
        return run

    def source_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts as the model reads them, including the end.

        Args:
            texts: Source texts.
        """
        return read_texts(self.tokenizers.source, texts, MAX_SOURCE_LENGTH)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Run`; the texts are source texts, and the ids include the end."""
        texts = as_texts(texts)
        return self.source_ids(texts)

    @functools.cached_property
    def shortlist(self) -> Shortlist:
        """The table of likely translations in the work directory; raises InputError if there is none."""
        if self.tokenizers.target.forced:
            language = self.tokenizers.target.around.language
            raise InputError(f"A shortlist cannot be combined with a forced language code. Received: {language!r}.")
        return Shortlist.load(WorkDir(self.path), self.model.source_vocab_size, self.model.target_vocab_size)

    def translator(self, options: TranslationOptions, resizes: bool | None = None) -> Translator:
        """Returns the model with its decoding.

        Args:
            options: The decoding options.
            resizes: See `Translator`.

        Raises:
            InputError: If the model does not support the options.
        """
        shortlist = self.shortlist if options.shortlist else None
        return Translator(self.model, options, resizes, shortlist, self.draft_model)

    def translate(
        self, texts: Sequence[str], prefixes: Sequence[str] | None = None, batch_size: int = 64, **options: Any
    ) -> list[str]:
        """Returns the translation of each text.

        Args:
            texts: Source texts.
            prefixes: The text with which each translation begins. Default: no such constraint.
            batch_size: Texts in a batch.
            **options: Options of `zoo.decoding_options.TranslationOptions`, except `nbest`.

        Raises:
            InputError: If `texts` or `prefixes` is one string, their numbers differ, or an option is out of range.
        """
        return [hypotheses[0].text for hypotheses in self._hypotheses(texts, prefixes, batch_size, 1, options)]

    def nbest(
        self,
        texts: Sequence[str],
        beam_size: int = 5,
        prefixes: Sequence[str] | None = None,
        batch_size: int = 64,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the `beam_size` best translations of each text, best first, or fewer if there are no more.

        Args:
            texts: Source texts.
            beam_size: Number of translations.
            prefixes: See `translate`.
            batch_size: See `translate`.
            **options: See `translate`.
        """
        return self._hypotheses(texts, prefixes, batch_size, None, {"beam_size": beam_size, **options})

    def score(self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 64) -> list[float]:
        """Returns the log probability of each target, including its end, given its source.

        Args:
            sources: Source texts.
            targets: As many target texts.
            batch_size: Pairs in a batch.

        Raises:
            InputError: If either is one string, their numbers differ, or `batch_size` is not a positive integer.
        """
        sources = as_texts(sources, "sources")
        targets = _paired("targets", targets, sources)
        target_ids = read_texts(self.tokenizers.target, targets, MAX_TARGET_LENGTH)

        def inputs(indices: list[int], batch: np.ndarray) -> Inputs:
            return {"source": batch, "target": self._pad_like(batch, [target_ids[index] for index in indices])}

        forced = len(self.tokenizers.target.forced)
        scorer = self._predictor(("score", forced), lambda: Scorer(self.model, forced))
        return [float(score) for score in self._predict(scorer, self.source_ids(sources), batch_size, inputs)]

    def predictions(
        self, texts: Sequence[str], hypotheses: Sequence[Hypothesis], batch_size: int = 16
    ) -> list[list[Prediction]]:
        """Returns the log probability and the most probable alternatives of each token of a translation of each text.

        Args:
            texts: Source texts.
            hypotheses: A translation of each text, from `nbest`.
            batch_size: Pairs in a batch.

        Raises:
            InputError: If `texts` is one string, or the numbers of texts and hypotheses differ.
        """
        texts = as_texts(texts)
        _paired("hypotheses", [hypothesis.text for hypothesis in hypotheses], texts)

        def inputs(indices: list[int], batch: np.ndarray) -> Inputs:
            return {"source": batch, "target": self._pad_like(batch, [hypotheses[index].ids for index in indices])}

        scorer = self._predictor("predictions", lambda: TokenScorer(Scorer(self.model)))
        outputs = self._predict(scorer, self.source_ids(texts), batch_size, inputs)
        tokenizer = self.tokenizers.target
        return [
            read_predictions(tokenizer, hypothesis.ids, output)
            for hypothesis, output in zip(hypotheses, outputs, strict=True)
        ]

    def _view(self, text: str, beam_size: int = 5, **options: Any) -> View:
        (hypotheses,), (source,) = self.nbest([text], beam_size=beam_size, **options), self.source_ids([text])
        predictions = self.predictions([text] * len(hypotheses), hypotheses)
        encoder, answers = {}, []
        for number, (hypothesis, of_tokens) in enumerate(zip(hypotheses, predictions, strict=True)):
            before = [START, *hypothesis.ids[:-1]]
            weights = attention_of(self.model.attentions, source, before)
            encoder = {kind: weights.pop(kind) for kind in ("encoder",) if kind in weights}  # equal for all hypotheses
            pieces = self.tokenizers.target.pieces(before)
            answers.append(answer_view(hypothesis.text, hypothesis.log_prob, number, pieces, of_tokens, weights))
        notes = notes_on_length(self.reader, text, len(source) - 1)
        return View("seq2seq", self.spec.name, text, self.reader.pieces(source), encoder, answers, notes=notes)

    def _hypotheses(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None,
        batch_size: int,
        nbest: int | None,
        options: dict[str, Any],
    ) -> list[list[Hypothesis]]:
        texts = as_texts(texts)
        prefix_ids: list[list[int]] | None = None
        target = self.tokenizers.target
        if prefixes is not None:
            prefixes = _paired("prefixes", prefixes, texts)
            prefix_ids = [[*target.around.before, *row] for row in target.encode(prefixes)]
        elif target.forced:
            prefix_ids = [list(target.forced)] * len(texts)
        request = self._request(options, nbest)
        if prefixes is not None and request.shortlist:
            raise InputError(
                f"`prefixes` cannot be combined with a shortlist. Received: shortlist={request.shortlist}."
            )
        translator = self._predictor(request, lambda: self.translator(request))

        def inputs(indices: list[int], batch: np.ndarray) -> Inputs:
            if prefix_ids is None:
                return {"source": batch}
            return {"source": batch, "prefix": self._pad_like(batch, [prefix_ids[index] for index in indices])}

        outputs = self._predict(translator, self.source_ids(texts), batch_size, inputs)
        return [self._read_hypotheses(output["ids"], output["log_prob"]) for output in outputs]

    @staticmethod
    def _request(options: dict[str, Any], nbest: int | None) -> TranslationOptions:
        known = [name for name in TranslationOptions.declared() if name != "nbest"]
        for name in options:
            if name not in known:
                raise unknown_name("option of decoding", name, known)
        return TranslationOptions(**options, nbest=nbest)

    def _read_hypotheses(self, ids: np.ndarray, log_probs: np.ndarray) -> list[Hypothesis]:
        """Returns the sequences in the results of a search, ids [K, L], as hypotheses."""
        is_sequence = log_probs > LEAST_LOG_PROB
        rows = [row[row != PAD].tolist() for row in ids[is_sequence]]
        texts = self.tokenizers.target.decode(rows)
        return [Hypothesis(*fields) for fields in zip(texts, map(float, log_probs[is_sequence]), rows, strict=True)]

    def attention(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        batch_size: int = 64,
        kind: str = "cross",
        **options: Any,
    ) -> list[TextAttention]:
        """Returns the tokens of each text, the tokens of its translation, and the attention between them.

        Args:
            texts: Source texts.
            kind: `"cross"`, from the translation to the source; `"encoder"`, within the source; or `"decoder"`, within
                the translation.
            prefixes: See `translate`.
            batch_size: See `translate`.
            **options: See `translate`.

        Returns:
            A list of `(source_tokens, target_tokens, weights)` with weights [layers, heads, T, S]. For self-attention,
            a list of `(tokens, weights)` with weights [layers, heads, S, S] or [layers, heads, T, T]; a translation's
            tokens then begin with the start, and row t is the attention that predicts the token after t.

        Raises:
            InputError: If the model has no such attention; and see `translate`.
        """
        self._check_kind(kind)
        texts = as_texts(texts)
        if kind == "encoder":
            return self._attention_of(self._encoder_attention, texts)
        hypotheses = self._hypotheses(texts, prefixes, batch_size, 1, options)
        if kind == "cross":
            return [TextAttention(self.align(text, best[0])) for text, best in zip(texts, hypotheses, strict=True)]
        return [
            TextAttention(self._attention_within(text, best[0])) for text, best in zip(texts, hypotheses, strict=True)
        ]

    def _encoder_attention(self, source: np.ndarray) -> Any:
        return self.model.attentions(source, np.array([[START]], "int32"))["encoder"]

    def _attention_within(self, text: str, hypothesis: Hypothesis) -> tuple[list[str], np.ndarray]:
        """Returns the tokens of a translation, the start first, and the attention between them."""
        (source,), target = self.source_ids([text]), [START, *hypothesis.ids[:-1]]
        attentions = self.model.attentions(np.array([source], "int32"), np.array([target], "int32"))
        return self.tokenizers.target.pieces(target), keras.ops.convert_to_numpy(attentions["decoder"])[0]

    def align(self, text: str, hypothesis: Hypothesis) -> tuple[list[str], list[str], np.ndarray]:
        """Returns source tokens, target tokens and the cross-attention [layers, heads, T, S] of one translation.

        Args:
            text: The source text.
            hypothesis: One of its translations, from `nbest`.
        """
        (source,), target = self.source_ids([text]), hypothesis.ids
        weights = self.model.attention(np.array([source], "int32"), np.array([[START, *target[:-1]]], "int32"))
        pieces = self.tokenizers.source.pieces(source), self.tokenizers.target.pieces(target)
        return *pieces, keras.ops.convert_to_numpy(weights)[0]


def _paired(name: str, texts: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Returns the texts, one for each source."""
    texts = as_texts(texts, name)
    if len(texts) != len(sources):
        raise InputError(f"`{name}` must contain one text per source, {len(sources)}. Received: {len(texts)}.")
    return texts
