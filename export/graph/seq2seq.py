"""The signatures of sequence-to-sequence models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from export.graph.attention_weights import (
    DEFAULT,
    NUMBERS,
    chosen,
    expected_sizes,
    one_for_each_text,
    sizes,
)
from export.graph.consensus import consensus
from export.graph.model_graph import IDS, TEXT, ModelGraph, read_texts, repeated, shared, trimmed
from export.graph.predictions import expected_predictions, predicted
from export.graph.signatures import SHORT_TEXTS, TEXTS, Answers, attends, register_default, register_signature, stacked
from export.options import Seq2SeqExportOptions
from zoo.decoding import sequence_log_prob, token_log_probs
from zoo.inference import MAX_SOURCE_LENGTH, MAX_TARGET_LENGTH, Hypothesis, Seq2SeqRun
from zoo.inference.decoders import TOKENS, shifted
from zoo.inference.predictions import ALTERNATIVES
from zoo.inference.translator import LEAST_LOG_PROB, Translator
from zoo.vocabulary import PAD, START

NO_SEQUENCE = ("", -1e30)
"""Text and log probability that stand in the outputs of `nbest` for sequences that the search did not find."""


class Seq2SeqGraph(ModelGraph):
    """A sequence-to-sequence model."""

    options: Seq2SeqExportOptions
    max_ids = MAX_SOURCE_LENGTH

    def __init__(self, run: Seq2SeqRun, options: Seq2SeqExportOptions):
        super().__init__(run, options)
        shortlist = None
        if self.options.shortlist:
            # Variables, so that all functions share one copy.
            shortlist = run.shortlist.stored(lambda table: tf.Variable(table, trainable=False))
            self.weights += [shortlist.translations, shortlist.rank]

        def translator(nbest: int, **options: Any) -> Translator:
            decoding = self.options.decoding(nbest)
            return Translator(run.model, decoding, shortlist=shortlist, draft=run.draft_model, **options)

        self._translator = translator(1 if self.options.rerank == "none" else self.options.beam_size)
        self._fixed_translator = translator(1, resizes=False)
        self.nbest_translator = translator(self.options.nbest or 1)
        self.num_forced = len(run.tokenizers.target.forced)

    @shared(TEXT)
    def read(self, text: tf.Tensor) -> tf.Tensor:
        return read_texts(self.tokenizers["source"], text, MAX_SOURCE_LENGTH)

    @shared(IDS)
    def encoded(self, source: tf.Tensor) -> Any:
        """Returns the memory of source ids [B, S]."""
        return self.model.encode(source, training=False)

    @shared(IDS, IDS)
    def logits(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Returns the logits [B, T, V] that predict target ids [B, T], given source ids [B, S]."""
        return self.model.decode(shifted(target), self.encoded(source), training=False)[0]

    @shared(IDS)
    def compute(self, ids: tf.Tensor) -> Any:
        if self.options.rerank == "none":
            return self._best(self._translator, {"source": ids, "memory": self.encoded(ids)})
        results = self._sequences(self._translator, ids)
        chosen = consensus(self.texts(results["ids"]), results["log_prob"])
        return {name: tf.gather(answers, chosen, batch_dims=1) for name, answers in results.items()}

    def compute_fixed(self, ids: tf.Tensor) -> Any:
        return self._best(self._fixed_translator, {"source": ids})

    def _translate(self, translator: Translator, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        forced = self.tokenizers["target"].forced.tolist()
        prefix = {"prefix": repeated(forced, tf.shape(inputs["source"])[0])} if forced else {}
        results: dict[str, tf.Tensor] = translator({**inputs, **prefix})
        return results

    def _sequences(self, translator: Translator, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns all translations of each row, best first; the ids of missing ones are padding."""
        results = self._translate(translator, {"source": ids, "memory": self.encoded(ids)})
        is_sequence = results["log_prob"][:, :, None] > LEAST_LOG_PROB
        return {**results, "ids": tf.where(is_sequence, results["ids"], PAD)}

    def _best(self, translator: Translator, inputs: dict[str, Any]) -> dict[str, tf.Tensor]:
        """Returns the best translation of each row."""
        return {name: answers[:, 0] for name, answers in self._translate(translator, inputs).items()}

    @shared(IDS)
    def hypotheses(self, ids: tf.Tensor) -> Any:
        """Returns the `ids` [B, n, L] and `log_prob` [B, n] of the n best translations; missing ones are padding."""
        return self._sequences(self.nbest_translator, ids)

    def texts(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the texts [B, n] of target ids [B, n, L]; missing sequences are empty texts."""
        shape = tf.shape(ids)
        return tf.reshape(self.decode(tf.reshape(ids, [shape[0] * shape[1], shape[2]])), shape[:2])

    def write(self, ids: tf.Tensor, results: Any) -> dict[str, tf.Tensor]:
        return {"text": self.decode(trimmed(results["ids"])), "log_prob": results["log_prob"]}

    @shared(IDS)
    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the texts [B] of target ids [B, T]."""
        return self.tokenizers["target"].decode(ids)

    @shared(IDS, IDS)
    def predictions(self, source: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the predictions at each target id [B, T], see `export.graph.predictions`."""
        logits = self.logits(source, target)
        return predicted(token_log_probs(logits, target, TOKENS, ALTERNATIVES), self.tokenizers["target"])

    @shared(IDS, IDS)
    def attentions(self, source: tf.Tensor, before: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns each kind of attention, given source ids [B, S] and shifted target ids [B, T]."""
        return dict(self.model.attentions(source, before))

    @shared(IDS, IDS, NUMBERS, NUMBERS)
    def inside(self, source: tf.Tensor, ids: tf.Tensor, layer: tf.Tensor, head: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns tokens, predictions and attention of the translations with target ids [B, T]."""
        target = trimmed(ids)
        before, tokenizer = shifted(target), self.tokenizers["target"]
        weights = self.attentions(source, before)
        return {
            "text": self.decode(target),
            "source_tokens": self.tokenizers["source"].pieces(source),
            "target_tokens": tokenizer.pieces(target),
            "decoder_tokens": tokenizer.pieces(before),
            **self.predictions(source, target),
            **chosen(weights, layer, head),
            **sizes(weights),
        }


def _hypotheses(run: Seq2SeqRun, options: Seq2SeqExportOptions, texts: list[str]) -> list[Hypothesis]:
    if options.rerank == "none":
        return [best for best, *_ in _nbest_hypotheses(run, options, texts, 1)]
    answers = _nbest_hypotheses(run, options, texts, options.beam_size)
    return [row[_consensus_of(row)] for row in answers]


def _consensus_of(answers: list[Hypothesis]) -> int:
    texts, log_probs = [[answer.text for answer in answers]], [[answer.log_prob for answer in answers]]
    return int(consensus(tf.constant(texts), tf.constant(log_probs, tf.float32))[0])


def _nbest_hypotheses(
    run: Seq2SeqRun, options: Seq2SeqExportOptions, texts: list[str], nbest: int
) -> list[list[Hypothesis]]:
    request = options.decoding(nbest).to_dict()
    del request["nbest"]  # The run returns all beams.
    return [answers[:nbest] for answers in run.nbest(texts, **request)]


def _expected_translations(run: Seq2SeqRun, options: Seq2SeqExportOptions) -> Answers:
    best = _hypotheses(run, options, TEXTS)
    outputs = {"text": [answer.text for answer in best], "log_prob": [answer.log_prob for answer in best]}
    return {"text": TEXTS}, outputs


register_default("seq2seq", _expected_translations, alone="text")


def _expected_nbest(run: Seq2SeqRun, options: Seq2SeqExportOptions) -> Answers:
    nbest = options.nbest or 1
    answers = _nbest_hypotheses(run, options, TEXTS, nbest)
    pairs = [[(answer.text, answer.log_prob) for answer in row] for row in answers]
    filled = [[*row, *[NO_SEQUENCE] * (nbest - len(row))] for row in pairs]
    texts, log_probs = ([[pair[index] for pair in row] for row in filled] for index in (0, 1))
    return {"text": TEXTS}, {"texts": texts, "log_probs": log_probs}


@register_signature("seq2seq", "nbest", batchable=True, expected=_expected_nbest)
def nbest(graph: Seq2SeqGraph, text: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """Several translations of each text, best first."""
    results = graph.hypotheses(graph.read(text))
    texts = tf.ensure_shape(graph.texts(results["ids"]), [None, graph.nbest_translator.options.nbest])
    return {"texts": texts, "log_probs": results["log_prob"]}


def _expected_scores(run: Seq2SeqRun, options: Seq2SeqExportOptions) -> Answers:
    targets = [answer.text for answer in _hypotheses(run, options, TEXTS)]
    return {"source": TEXTS, "target": targets}, {"log_prob": run.score(TEXTS, targets)}


@register_signature("seq2seq", "score", batchable=True, expected=_expected_scores)
def score(graph: Seq2SeqGraph, source: tf.Tensor, target: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """The log probability of each target, given its source."""
    ids = read_texts(graph.tokenizers["target"], target, MAX_TARGET_LENGTH)
    logits = graph.logits(graph.read(source), ids)
    return {"log_prob": sequence_log_prob(logits[:, graph.num_forced :], ids[:, graph.num_forced :], TOKENS)}


def _expected_attention(run: Seq2SeqRun, options: Seq2SeqExportOptions) -> Answers:
    best = _hypotheses(run, options, SHORT_TEXTS)
    source, target, weights = zip(*map(run.align, SHORT_TEXTS, best), strict=True)
    outputs = {"text": [answer.text for answer in best], "attention": stacked(weights, 0.0)}
    tokens = {"source_tokens": stacked(source, ""), "target_tokens": stacked(target, "")}
    return {"text": SHORT_TEXTS}, outputs | tokens


@register_signature("seq2seq", "attention", available=attends, expected=_expected_attention)
def attention(graph: Seq2SeqGraph, text: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """The translation of each text, the tokens of both, and the attention between them."""
    source = graph.read(text)
    target = trimmed(graph.compute(source)["ids"])
    return {
        "text": graph.decode(target),
        "source_tokens": graph.tokenizers["source"].pieces(source),
        "target_tokens": graph.tokenizers["target"].pieces(target),
        "attention": tf.cast(graph.attentions(source, shifted(target))["cross"], tf.float32),
    }


def _expected_attentions(run: Seq2SeqRun, options: Seq2SeqExportOptions) -> Answers:
    return {"text": SHORT_TEXTS}, _expected_inside(run, _hypotheses(run, options, SHORT_TEXTS))


def _expected_inside(run: Seq2SeqRun, answers: list[Hypothesis]) -> dict[str, Any]:
    """Returns tokens, predictions and attention of one translation of each of `SHORT_TEXTS`."""
    sources = run.source_ids(SHORT_TEXTS)
    targets = [[START, *answer.ids[:-1]] for answer in answers]
    weights = [run.model.attentions(*map(_one_row, pair)) for pair in zip(sources, targets, strict=True)]
    outputs = {kind: stacked([kinds[kind][0] for kinds in weights], 0.0) for kind in run.model.attention_kinds}
    source_pieces, target_pieces = run.tokenizers.source.pieces, run.tokenizers.target.pieces
    return {
        **outputs,
        **expected_sizes(outputs),
        **expected_predictions(run.predictions(SHORT_TEXTS, answers)),
        "text": [answer.text for answer in answers],
        "source_tokens": stacked(map(source_pieces, sources), ""),
        "target_tokens": stacked([target_pieces(answer.ids) for answer in answers], ""),
        "decoder_tokens": stacked(map(target_pieces, targets), ""),
    }


def _one_row(ids: list[int]) -> np.ndarray:
    return np.array([ids], np.int32)


@register_signature(
    "seq2seq",
    "attention_all",
    inputs={"layer": NUMBERS, "head": NUMBERS},
    available=attends,
    expected=_expected_attentions,
)
def attention_all(
    graph: Seq2SeqGraph, text: tf.Tensor, layer: Any = DEFAULT, head: Any = DEFAULT
) -> Mapping[str, tf.Tensor]:
    """The translation of each text, the tokens of both, and each kind of attention, of all or some layers and heads.

    Row t of `decoder` and `cross` is the attention that predicts `target_tokens[t]`; the decoder attends to
    `decoder_tokens`, which begin with the start token.
    """
    source = graph.read(text)
    return graph.inside(source, graph.compute(source)["ids"], layer, head)


def _attends_to_several(model: Any, options: Seq2SeqExportOptions) -> bool:
    return attends(model, options) and (options.nbest or 1) > 1


def _expected_attentions_of_nbest(run: Seq2SeqRun, options: Seq2SeqExportOptions) -> Answers:
    rows = _nbest_hypotheses(run, options, SHORT_TEXTS, options.nbest or 1)
    numbers = [index % len(answers) for index, answers in enumerate(rows)]
    answers = [answers[number] for answers, number in zip(rows, numbers, strict=True)]
    return {"text": SHORT_TEXTS, "hypothesis": numbers}, _expected_inside(run, answers)


@register_signature(
    "seq2seq",
    "attention_nbest",
    inputs={"hypothesis": NUMBERS, "layer": NUMBERS, "head": NUMBERS},
    available=_attends_to_several,
    expected=_expected_attentions_of_nbest,
)
def attention_nbest(
    graph: Seq2SeqGraph, text: tf.Tensor, hypothesis: tf.Tensor, layer: Any = DEFAULT, head: Any = DEFAULT
) -> Mapping[str, tf.Tensor]:
    """The outputs of `attention_all` for one of the translations of `nbest`: `hypothesis`, counted from 0."""
    source = graph.read(text)
    ids = graph.hypotheses(source)["ids"]
    numbers = one_for_each_text("hypothesis", hypothesis, tf.shape(ids)[0], tf.shape(ids)[1])
    return graph.inside(source, tf.gather(ids, numbers, batch_dims=1), layer, head)
