"""The signatures of language models."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from export.graph.model_graph import IDS, TEXT, ModelGraph, dense, first_bytes, last_bytes, shared
from export.graph.signatures import TEXTS, Answers, register_default, register_signature
from export.options import LanguageModelExportOptions
from zoo import decoding
from zoo.inference import LanguageModelRun
from zoo.inference.generator import Generator, TextScorer, constraints, drafts, read_prompts
from zoo.inference.predictions import TokenScorer
from zoo.vocabulary import END, PAD, START


class LanguageModelGraph(ModelGraph):
    """A language model."""

    options: LanguageModelExportOptions

    def __init__(self, run: LanguageModelRun, options: LanguageModelExportOptions):
        super().__init__(run, options)
        self._generator = Generator(run.model, self.options.decoding(), draft=run.draft_model)
        self._fixed_generator = Generator(run.model, self.options.decoding(), resizes=False)
        self.scorer = TextScorer(run.model)
        self.token_scorer = TokenScorer(self.scorer)
        self.max_length = self.options.max_length or 1
        self.max_ids = max(1, self.max_length - 1)

    @shared(TEXT)
    def read(self, text: tf.Tensor) -> tf.Tensor:
        """See `ModelGraph`; as in `zoo.inference`, only the end of a text is read if it is too long to be continued."""
        rows = self.tokenizers["text"].encode(last_bytes(text))
        lengths = rows.row_lengths()
        first = tf.where(lengths < self.max_length, tf.zeros_like(lengths), lengths - self.max_length // 2)
        return dense(tf.gather(rows, tf.ragged.range(first, lengths), batch_dims=1))

    @shared(TEXT)
    def ids(self, text: tf.Tensor) -> tf.Tensor:
        rows = self.tokenizers["text"].encode(first_bytes(text))
        if not self.model.start_symbol:
            ids = dense(rows[:, : self.model.max_length])
            return tf.concat([tf.where(ids[:, :1] == PAD, START, ids[:, :1]), ids[:, 1:]], axis=1)
        return dense(tf.concat([tf.fill([tf.shape(text)[0], 1], START), rows], axis=1)[:, : self.model.max_length])

    @shared(TEXT)
    def following_ids(self, text: tf.Tensor) -> tf.Tensor:
        """Returns the token that follows each of `ids`: the texts' own tokens and, unless they are cut, the end."""
        rows = self.tokenizers["text"].encode(first_bytes(text))
        rows = rows if self.model.start_symbol else rows[:, 1:]
        return dense(tf.concat([rows, tf.fill([tf.shape(text)[0], 1], END)], axis=1)[:, : self.model.max_length])

    @shared(IDS)
    def compute(self, ids: tf.Tensor) -> Any:
        return self._generator({"prompt": ids})

    def compute_fixed(self, ids: tf.Tensor) -> Any:
        return self._fixed_generator({"prompt": ids})

    def write(self, ids: tf.Tensor, results: Any) -> dict[str, tf.Tensor]:
        return {"text": self.continuation(ids, results["ids"]), "log_prob": results["log_prob"]}

    @shared(IDS, IDS)
    def continuation(self, prompt: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the texts of ids [B, L], without the texts of the prompts [B, P] with which they begin."""
        prompts, texts = self.tokenizers["text"].decode(prompt), self.tokenizers["text"].decode(ids)
        size = tf.strings.length(prompts)
        return tf.strings.substr(texts, size, tf.strings.length(texts) - size)


def _expected_continuations(run: LanguageModelRun, options: LanguageModelExportOptions) -> Answers:
    answers = run.continuations(TEXTS, **options.decoding().to_dict())
    outputs = {"text": [answer.text for answer in answers], "log_prob": [answer.log_prob for answer in answers]}
    return {"text": TEXTS}, outputs


register_default("language_model", _expected_continuations, alone="text")


def _expected_samples(run: LanguageModelRun, options: LanguageModelExportOptions) -> Answers:
    sampling = {"seed": 3, "temperature": 0.7, "top_p": 0.9}
    answers = run.generate(TEXTS, **{**options.decoding().to_dict(), **sampling})
    return {"text": TEXTS, **sampling}, {"text": answers}


def _checked(name: str, values: tf.Tensor, valid: tf.Tensor, expected: str) -> tf.Tensor:
    """Returns values [B] unchanged; the graph raises an error unless all are valid."""
    message = f"`{name}` must be {expected}. Received:"
    check = tf.debugging.Assert(tf.reduce_all(valid), [message, tf.boolean_mask(values, ~valid)])
    with tf.control_dependencies([check]):
        return tf.identity(values)


def _one_for_each_text(
    text: tf.Tensor, seed: tf.Tensor, temperature: tf.Tensor, top_p: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """Returns the inputs of `sample` as rows for a batch; a seed becomes a pair of seed and number, [B, 2].

    A scalar applies to all texts. A scalar seed is numbered by text, so that the samples of equal texts differ, as in
    `zoo.inference`. A seed for a single text has the number 0, regardless of the text's position in the batch.
    """
    shared = tf.equal(tf.rank(seed), 0)
    seeds, temperatures, top_ps = (
        tf.tile(tf.reshape(values, [-1]), [tf.where(tf.equal(tf.rank(values), 0), tf.size(text), 1)])
        for values in (seed, temperature, top_p)
    )
    numbers = tf.where(shared, tf.range(tf.size(seeds)), 0)
    finite = tf.math.is_finite(temperatures) & (temperatures >= 0)
    return (
        text,
        tf.stack([seeds, numbers], axis=1),
        _checked("temperature", temperatures, finite, "a finite number of 0 or more"),
        _checked("top_p", top_ps, (top_ps > 0) & (top_ps <= 1), "in (0, 1]"),
    )


@register_signature(
    "language_model",
    "sample",
    inputs={
        "seed": tf.TensorSpec(None, tf.int32),
        "temperature": tf.TensorSpec(None, tf.float32),
        "top_p": tf.TensorSpec(None, tf.float32),
    },
    batchable=True,
    prepare=_one_for_each_text,
    expected=_expected_samples,
)
def sample(
    graph: LanguageModelGraph, text: tf.Tensor, seed: tf.Tensor, temperature: tf.Tensor, top_p: tf.Tensor
) -> Mapping[str, tf.Tensor]:
    """A random continuation of each text."""
    prompt = graph.read(text)
    batch_size = tf.shape(prompt)[0]
    state, limited = read_prompts(
        graph.model,
        graph.model.initial_state(batch_size),
        constraints(graph.model, prompt, graph.max_length, graph.options.no_repeat_ngram),
    )
    ids, _ = decoding.sample(
        lambda last, state, memory: graph.model.decode_step(last, state),
        state,
        limited,
        seeds=seed[:, 0],
        row_numbers=seed[:, 1],
        # Values near zero select the most probable token.
        temperature=tf.maximum(temperature, 1e-4),
        top_p=tf.maximum(top_p, 1e-6),
        drafts=drafts(graph.model, batch_size, graph.options.draft_length, graph.draft),
    )
    return {"text": graph.continuation(prompt, ids)}


def _expected_scores(run: LanguageModelRun, options: LanguageModelExportOptions) -> Answers:
    scores = run.score(TEXTS)
    outputs = {"log_prob": [score.log_prob for score in scores], "num_tokens": [score.num_tokens for score in scores]}
    return {"text": TEXTS}, outputs


@register_signature("language_model", "score", batchable=True, expected=_expected_scores)
def score(graph: LanguageModelGraph, text: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """The log probability of each text and its number of tokens."""
    tokens = dense(graph.tokenizers["text"].encode(first_bytes(text))[:, : graph.model.max_length])
    return {
        "log_prob": graph.scorer({"tokens": tokens}),
        "num_tokens": tf.reduce_sum(tf.cast(tokens != PAD, tf.int32), axis=1),
    }
