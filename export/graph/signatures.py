"""The signatures of an exported model: raw strings in, strings out, tokenizer and decoding in the graph."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from export.graph.batching import PART, THREADS, batched
from export.graph.compiled import BATCHES, Buckets
from export.graph.tokenizers import tokenizer_graph
from export.graph.weights import store_weights
from zoo import decoding
from zoo.errors import InputError
from zoo.inference import (
    MAX_SOURCE_LENGTH,
    MAX_TARGET_LENGTH,
    MAX_TEXT_BYTES,
    MAX_TEXT_LENGTH,
    ClassifierRun,
    LanguageModelRun,
    Run,
    Seq2SeqRun,
)
from zoo.inference.generator import Generator, TextScorer
from zoo.inference.translator import LEAST_LOG_PROB, SYMBOLS, Scorer, Translator, shifted
from zoo.text import END, PAD

TEXT = tf.TensorSpec([None], tf.string, name="text")
EXAMPLES = tf.TensorSpec([None], tf.string, name="inputs")
CLASSIFY = "classify"
"""The signature of the Classify API, which takes `tf.Example`s."""
XLA = "xla"
"""The signature that XLA compiles, otherwise like the default one."""
NBEST = 5
MAX_THREADS = 1024


@dataclass(frozen=True)
class Form:
    """What a served model is like, whatever its task.

    Attributes:
        weights: How weights are stored, see `export.graph.weights`.
        dynamic_batching: Whether requests that arrive together are answered together, see `export.graph.batching`.
        num_batch_threads: How many batches are then answered at the same time.
        xla: Whether there is the signature `xla`, see `export.graph.compiled`.

    Raises:
        InputError: If a number is out of range.
    """

    weights: str = "float32"
    dynamic_batching: bool = False
    num_batch_threads: int = THREADS
    xla: bool = False

    def __post_init__(self):
        if not 1 <= self.num_batch_threads <= MAX_THREADS:
            raise InputError(
                f"`num_batch_threads` must be from 1 to {MAX_THREADS}. Received: {self.num_batch_threads}."
            )


class ServedModel(tf.Module):
    """What a SavedModel of ours consists of: variables, tokenizers and functions.

    Holds `tf.Variable`s and not the Keras model: an object graph with Keras objects in it loads in Python and fails in
    the stock server. The functions are closures, because the module must not hold the Keras objects.

    Attributes:
        functions: The signatures by name.
        warm_up: Batches of texts by signature that are worth asking before anyone does.
        options: What the model was exported with, what was left to its default included.

    Args:
        run: The loaded work directory.
        form: What it is like.
    """

    functions: dict[str, tf.types.experimental.PolymorphicFunction]
    warm_up: dict[str, Iterable[list[str]]]
    options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, run: Run, form: Form):
        super().__init__()
        self.weights, self._reading = store_weights(run.model, form.weights)
        self.form, self.functions, self.warm_up = form, {}, {}
        self._note(**asdict(form))
        self.tokenizers = {name: tokenizer_graph(tokenizer) for name, tokenizer in run.tokenizer_files().items()}

    def _note(self, **options):
        # Not a dict: TensorFlow would save it as a part of the model.
        self.options = MappingProxyType({**self.options, **options})

    def _function(self, function, *specs, together=False):
        """Returns a signature.

        Args:
            function: Function of tensors that returns a dict of tensors.
            *specs: Its inputs.
            together: Whether the sizes of its results do not depend on the texts, so that requests can share a batch.
                All inputs are then batches of texts.
        """
        reading = self._reading

        def read(*inputs):
            with reading():
                return function(*inputs)

        share = together and self.form.dynamic_batching
        answer = batched(read, self.form.num_batch_threads) if share else read
        if together and len(specs) > 1:
            answer = _of_one_size(answer, [spec.name for spec in specs])
        return tf.function(answer, input_signature=specs, autograph=False)

    def _add_default(self, read, work, write, fixed, limit):
        """Adds the default signature, which is `write(ids, work(ids))` with `ids = read(text)`, and `xla` likewise.

        Args:
            read: Function of texts that returns ids [B, S].
            work: Function of ids that returns results, nested tensors.
            write: Function of ids and results that returns a dict of tensors.
            fixed: Does what `work` does in tensors that keep their sizes, which XLA needs.
            limit: Largest number of ids of a text.

        Returns:
            The function of texts that is the default signature.
        """

        def answering(work):
            def answer(text):
                ids = read(text)
                return write(ids, work(ids))

            return answer

        answer = answering(work)
        self.functions["serving_default"] = self._function(answer, TEXT, together=True)
        if self.form.xla:
            buckets = Buckets(limit, PART if self.form.dynamic_batching else BATCHES[-1])
            compiled = answering(buckets.compiled(fixed, otherwise=work))
            self.functions[XLA] = self._function(compiled, TEXT, together=True)
            self.warm_up[XLA] = buckets.warm_up(read)
        return answer


def served_model(run: Run, **options) -> ServedModel:
    """Returns the served form of a run.

    Args:
        run: The loaded work directory.
        **options: Fields of `Form`, and options of the class for its task.

    Raises:
        InputError: If the task has no such option, or one is out of range or of no use.
    """
    given = {field.name: options.pop(field.name) for field in fields(Form) if field.name in options}
    form = Form(**given)
    if "num_batch_threads" in given and not form.dynamic_batching:
        raise InputError("--num_batch_threads is of no use without --dynamic_batching.")
    cls, known = _CLASSES[run.spec.task]
    for name in options:
        if name not in known:
            raise InputError(f"--{name} is not for {run.spec.task} models such as {run.spec.name}.")
    return cls(run, form, **options)


def _dense(rows: tf.RaggedTensor) -> tf.Tensor:
    """Returns rows as [B, S], S ≥ 1, padded: an empty batch has no longest row."""
    ids = rows.to_tensor(PAD)
    return tf.pad(ids, [[0, 0], [0, tf.maximum(0, 1 - tf.shape(ids)[1])]], constant_values=PAD)


def _first_part(text: tf.Tensor) -> tf.Tensor:
    """Returns the beginnings of texts, as `zoo.inference` reads them."""
    return tf.strings.substr(text, 0, MAX_TEXT_BYTES)


def _last_part(text: tf.Tensor) -> tf.Tensor:
    """Returns the ends of texts."""
    first = tf.maximum(tf.strings.length(text) - MAX_TEXT_BYTES, 0)
    return tf.strings.substr(text, first, tf.fill(tf.shape(first), MAX_TEXT_BYTES))


def _read(tokenizer, text: tf.Tensor, limit: int) -> tf.Tensor:
    """Returns ids [B, S], S ≥ 1, with the end symbol, cut at `limit` symbols."""
    rows = tokenizer.encode(_first_part(text))[:, : limit - 1]
    return _dense(tf.concat([rows, tf.fill([tf.shape(text)[0], 1], END)], axis=1))


def _of_one_size(function, names):
    """Returns a function of texts that refuses inputs of unequal length, of which a model might repeat the shorter.

    Args:
        function: What answers the rest; it begins after the check, as requests that share a batch fail together.
        names: Names of the inputs.
    """
    message = f"{' and '.join(names)} must have equal numbers of texts. Received:"

    def answer(*inputs):
        sizes = tf.stack([tf.size(texts) for texts in inputs])
        equal = tf.debugging.Assert(tf.reduce_all(sizes == sizes[0]), [message, sizes])
        with tf.control_dependencies([equal]):
            return function(*map(tf.identity, inputs))

    return answer


def _best(translator):
    """Returns a translator as a function of source ids that has one answer for each."""
    return lambda ids: {name: found[:, 0] for name, found in translator({"source": ids}).items()}


def _cut(ids: tf.Tensor) -> tf.Tensor:
    """Returns ids [B, L] without the padding that all rows have, L ≥ 1: most of the room for the longest answer."""
    width = tf.reduce_max(tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1))
    return ids[:, : tf.maximum(width, 1)]


class ServedSeq2Seq(ServedModel):
    """A served sequence-to-sequence model.

    Args:
        run: The loaded work directory.
        form: See `ServedModel`.
        nbest: How many translations the signature `nbest` returns. Default: the size of the beam, or 5.
        **options: `beam_size`, `length_penalty`, `coverage_penalty`, `max_length` and `no_repeat_ngram`, see
            `Translator`. The signature `nbest` searches with `nbest` beams where `beam_size` is smaller.

    Raises:
        InputError: If an option is out of range.
    """

    def __init__(self, run: Seq2SeqRun, form: Form, nbest: int | None = None, **options):
        super().__init__(run, form)
        translator = Translator(run.model, **options, nbest=1)
        count = (translator.beam_size if translator.beam_size > 1 else NBEST) if nbest is None else nbest
        if count < 1:
            raise InputError(f"`nbest` must be at least 1. Received: nbest={count}.")
        wide = Translator(run.model, **{**options, "beam_size": max(count, translator.beam_size), "nbest": count})
        fixed = Translator(run.model, **options, nbest=1, resizes=False)
        # The penalties have no effect on greedy search, but on the signature `nbest`.
        shared = ("length_penalty", "coverage_penalty", "max_length", "no_repeat_ngram")
        self._note(beam_size=translator.beam_size, nbest=count, **{name: getattr(wide, name) for name in shared})
        self._add_default(self._sources, _best(translator), self._translations, _best(fixed), MAX_SOURCE_LENGTH)
        self._add_others(run.model, _best(translator), wide)

    def _sources(self, text):
        return _read(self.tokenizers["source"], text, MAX_SOURCE_LENGTH)

    def _translations(self, _, found):
        return {"text": self.tokenizers["target"].decode(_cut(found["ids"])), "log_prob": found["log_prob"]}

    def _add_others(self, model, best, wide):
        source_tokenizer, target_tokenizer = self.tokenizers["source"], self.tokenizers["target"]
        scorer = Scorer(model)

        def nbest(text):
            found = wide({"source": self._sources(text)})
            # What is no sequence is an empty text.
            ids = tf.where(found["log_prob"][:, :, None] > LEAST_LOG_PROB, found["ids"], PAD)
            shape = tf.shape(ids)
            texts = target_tokenizer.decode(tf.reshape(ids, [shape[0] * wide.nbest, shape[2]]))
            return {"texts": tf.reshape(texts, [-1, wide.nbest]), "log_probs": found["log_prob"]}

        def attention(text):
            source = self._sources(text)
            ids = _cut(best(source)["ids"])
            return {
                "text": target_tokenizer.decode(ids),
                "source_tokens": source_tokenizer.pieces(source),
                "target_tokens": target_tokenizer.pieces(ids),
                "attention": tf.cast(model.attention(source, shifted(ids)), tf.float32),
            }

        def score(source, target):
            target = _read(target_tokenizer, target, MAX_TARGET_LENGTH)
            return {"log_prob": scorer({"source": self._sources(source), "target": target})}

        pair = [tf.TensorSpec([None], tf.string, name=name) for name in ("source", "target")]
        self.functions["nbest"] = self._function(nbest, TEXT, together=True)
        self.functions["score"] = self._function(score, *pair, together=True)
        if model.attends:
            self.functions["attention"] = self._function(attention, TEXT)


class ServedClassifier(ServedModel):
    """A served classifier.

    Args:
        run: The loaded work directory.
        form: See `ServedModel`.
    """

    def __init__(self, run: ClassifierRun, form: Form):
        super().__init__(run, form)

        labels = run.classes

        def logits_of(ids):
            return run.model({"tokens": ids}, training=False)

        def classes_of(_, logits):
            classes = tf.constant(labels)
            return {
                "label": tf.gather(classes, tf.argmax(logits, axis=-1)),
                "probabilities": tf.nn.softmax(tf.cast(logits, tf.float32)),
                "classes": tf.tile(classes[None], [tf.shape(logits)[0], 1]),
            }

        classify = self._add_default(self._tokens, logits_of, classes_of, logits_of, MAX_TEXT_LENGTH)
        self._add_others(run.model, classify)

    def _tokens(self, text):
        return _read(self.tokenizers["text"], text, MAX_TEXT_LENGTH)

    def _add_others(self, model, classify):
        tokenizer = self.tokenizers["text"]

        def embed(text):
            tokens = self._tokens(text)
            return {
                "tokens": tokenizer.pieces(tokens),
                "embeddings": tf.cast(model.represent(tokens, training=False), tf.float32),
            }

        def attention(text):
            tokens = self._tokens(text)
            return {"tokens": tokenizer.pieces(tokens), "attention": tf.cast(model.attention(tokens), tf.float32)}

        def classify_examples(inputs):
            features = tf.io.parse_example(inputs, {"text": tf.io.FixedLenFeature([], tf.string)})
            found = classify(features["text"])
            return {"classes": found["classes"], "scores": found["probabilities"]}

        self.functions["embed"] = self._function(embed, TEXT)
        self.functions[CLASSIFY] = self._function(classify_examples, EXAMPLES, together=True)
        if model.attends:
            self.functions["attention"] = self._function(attention, TEXT)


def _going_on(generator):
    """Returns a generator as a function of ids."""
    return lambda ids: generator({"prompt": ids})


class ServedLanguageModel(ServedModel):
    """A served language model.

    Args:
        run: The loaded work directory.
        form: See `ServedModel`.
        **options: `max_length` and `no_repeat_ngram`, see `Generator`.
    """

    def __init__(self, run: LanguageModelRun, form: Form, **options):
        super().__init__(run, form)
        generator = Generator(run.model, **options)
        tokenizer, room = self.tokenizers["text"], generator.max_length

        def prompts(text):
            rows = tokenizer.encode(_last_part(text))
            # As in `zoo.inference`: of a text that leaves no room for an answer the end is read.
            lengths = rows.row_lengths()
            first = tf.where(lengths < room, tf.zeros_like(lengths), lengths - room // 2)
            places = tf.ragged.range(first, lengths)
            return _dense(tf.gather(rows, places, batch_dims=1))

        def answers(prompt, ids):
            before, whole = tokenizer.decode(prompt), tokenizer.decode(ids)
            size = tf.strings.length(before)
            return tf.strings.substr(whole, size, tf.strings.length(whole) - size)

        def texts(prompt, found):
            return {"text": answers(prompt, found["ids"]), "log_prob": found["log_prob"]}

        fixed = Generator(run.model, **options, resizes=False)
        self._note(max_length=room, no_repeat_ngram=generator.no_repeat_ngram)
        self._add_default(prompts, _going_on(generator), texts, _going_on(fixed), max(1, room - 1))
        self._add_others(run.model, generator, prompts, answers)

    def _add_others(self, model, generator, prompts, answers):
        tokenizer, room, scorer = self.tokenizers["text"], generator.max_length, TextScorer(model)

        def sample(text, seed, temperature, top_p):
            prompt = prompts(text)
            batch = tf.shape(prompt)[0]
            ids, _ = decoding.sample(
                lambda last, state, memory: model.decode_step(last, state),
                model.initial_state(batch),
                decoding.Rules(SYMBOLS, tf.fill([batch], room), room, prompt, generator.no_repeat_ngram),
                seeds=tf.fill([batch], seed),
                rows=tf.range(batch),
                # What is nearly zero takes the most probable symbol, as does what is no number above it.
                temperature=tf.where(temperature > 1e-4, temperature, 1e-4),
                top_p=tf.where(top_p > 1e-6, top_p, 1e-6),
            )
            return {"text": answers(prompt, ids)}

        def score(text):
            rows = tokenizer.encode(_first_part(text))[:, : model.max_length]
            outputs = _dense(rows)
            return {
                "log_prob": scorer({"tokens": outputs}),
                "num_tokens": tf.reduce_sum(tf.cast(outputs != PAD, tf.int32), axis=1),
            }

        draws = [
            tf.TensorSpec([], tf.int32, name="seed"),
            tf.TensorSpec([], tf.float32, name="temperature"),
            tf.TensorSpec([], tf.float32, name="top_p"),
        ]
        self.functions["sample"] = self._function(sample, TEXT, *draws)
        self.functions["score"] = self._function(score, TEXT, together=True)


_CLASSES: dict[str, tuple[type, tuple[str, ...]]] = {
    "seq2seq": (
        ServedSeq2Seq,
        ("beam_size", "nbest", "length_penalty", "coverage_penalty", "max_length", "no_repeat_ngram"),
    ),
    "classifier": (ServedClassifier, ()),
    "language_model": (ServedLanguageModel, ("max_length", "no_repeat_ngram")),
}
