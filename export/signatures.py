"""The signatures of an exported model: raw strings in, strings out, tokenizer and decoding in the graph."""

import tensorflow as tf

from export.batching import batched
from export.weights import store_weights
from zoo import decoding
from zoo.errors import InputError
from zoo.generator import Generator
from zoo.run import (
    MAX_SOURCE_LENGTH,
    MAX_TARGET_LENGTH,
    MAX_TEXT_LENGTH,
    ClassifierRun,
    LanguageModelRun,
    Run,
    Seq2SeqRun,
)
from zoo.text import END, PAD
from zoo.translator import LEAST_LOG_PROB, SYMBOLS, Scorer, Translator, shifted

TEXT = tf.TensorSpec([None], tf.string, name="text")
EXAMPLES = tf.TensorSpec([None], tf.string, name="inputs")
CLASSIFY = "classify"
"""The signature of the Classify API, which takes `tf.Example`s."""
NBEST = 5


class ServedModel(tf.Module):
    """What a SavedModel of ours consists of: variables, tokenizers and functions.

    Holds `tf.Variable`s and not the Keras model: an object graph with Keras objects in it loads in Python and fails in
    the stock server. The functions are closures, because the module must not hold the Keras objects.

    Attributes:
        functions: The signatures by name.

    Args:
        run: The loaded work directory.
        weights: How weights are stored, see `export.weights`.
        dynamic_batching: Whether requests that arrive together are answered together, see `export.batching`.
    """

    functions: dict

    def __init__(self, run: Run, weights: str = "float32", dynamic_batching: bool = False):
        super().__init__()
        self.weights, self._reading = store_weights(run.model, weights)
        self.dynamic_batching = dynamic_batching
        self.tokenizers = {name: tokenizer.graph() for name, tokenizer in run.tokenizer_files().items()}

    def _function(self, function, *specs, together=False):
        """Returns a signature.

        Args:
            function: Function of tensors that returns a dict of tensors.
            *specs: Its inputs.
            together: Whether the sizes of its results do not depend on the texts, so that requests can share a batch.
        """
        reading = self._reading

        def read(*inputs):
            with reading():
                return function(*inputs)

        answer = batched(read, specs) if together and self.dynamic_batching else read
        return tf.function(answer, input_signature=specs)


def served_model(run: Run, **options) -> ServedModel:
    """Returns the served form of a run.

    Args:
        run: The loaded work directory.
        **options: Options of the class for its task.

    Raises:
        InputError: If the task has no such option.
    """
    cls, known = _CLASSES[run.spec.task]
    for name in options:
        if name not in (*known, "weights", "dynamic_batching"):
            raise InputError(f"--{name} is not for {run.spec.task} models such as {run.spec.name}.")
    return cls(run, **options)


def _dense(rows: tf.RaggedTensor) -> tf.Tensor:
    """Returns rows as [B, S], S ≥ 1, padded: an empty batch has no longest row."""
    ids = rows.to_tensor(PAD)
    return tf.pad(ids, [[0, 0], [0, tf.maximum(0, 1 - tf.shape(ids)[1])]], constant_values=PAD)


def _read(tokenizer, text: tf.Tensor, limit: int) -> tf.Tensor:
    """Returns ids [B, S], S ≥ 1, with the end symbol, cut at `limit` symbols."""
    rows = tokenizer.encode(text)[:, : limit - 1]
    return _dense(tf.concat([rows, tf.fill([tf.shape(text)[0], 1], END)], axis=1))


class ServedSeq2Seq(ServedModel):
    """A served sequence-to-sequence model.

    Args:
        run: The loaded work directory.
        nbest: How many translations the signature `nbest` returns. Default: the size of the beam, or 5.
        weights: See `ServedModel`.
        dynamic_batching: See `ServedModel`.
        **options: `beam_size`, `length_penalty`, `coverage_penalty`, `max_length` and `no_repeat_ngram`, see
            `Translator`. The signature `nbest` searches with `nbest` beams where `beam_size` is smaller.

    Raises:
        InputError: If an option is out of range.
    """

    def __init__(
        self,
        run: Seq2SeqRun,
        nbest: int | None = None,
        weights: str = "float32",
        dynamic_batching: bool = False,
        **options,
    ):
        super().__init__(run, weights, dynamic_batching)
        translator = Translator(run.model, **options)
        count = (translator.beam_size if translator.beam_size > 1 else NBEST) if nbest is None else nbest
        if count < 1:
            raise InputError(f"`nbest` must be at least 1. Received: nbest={count}.")
        wide = Translator(run.model, **{**options, "beam_size": max(count, translator.beam_size)})
        self.functions = self._make_functions(run.model, translator, wide, count)

    def _make_functions(self, model, translator, wide, count):
        source_tokenizer, target_tokenizer = self.tokenizers["source"], self.tokenizers["target"]
        scorer = Scorer(model)

        def best(text):
            source = _read(source_tokenizer, text, MAX_SOURCE_LENGTH)
            outputs = translator({"source": source})
            ids = outputs["ids"][:, 0]
            # The room for the longest possible answer is mostly padding.
            width = tf.reduce_max(tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1))
            return source, ids[:, : tf.maximum(width, 1)], outputs["log_prob"][:, 0]

        def translate(text):
            _, ids, log_prob = best(text)
            return {"text": target_tokenizer.decode(ids), "log_prob": log_prob}

        def nbest(text):
            outputs = wide({"source": _read(source_tokenizer, text, MAX_SOURCE_LENGTH)})
            ids, log_probs = outputs["ids"][:, :count], outputs["log_prob"][:, :count]
            # What is no sequence is an empty text.
            ids = tf.where(log_probs[:, :, None] > LEAST_LOG_PROB, ids, PAD)
            shape = tf.shape(ids)
            texts = target_tokenizer.decode(tf.reshape(ids, [shape[0] * count, shape[2]]))
            return {"texts": tf.reshape(texts, [-1, count]), "log_probs": log_probs}

        def attention(text):
            source, ids, _ = best(text)
            return {
                "text": target_tokenizer.decode(ids),
                "source_tokens": source_tokenizer.pieces(source),
                "target_tokens": target_tokenizer.pieces(ids),
                "attention": tf.cast(model.attention(source, shifted(ids)), tf.float32),
            }

        def score(source, target):
            source = _read(source_tokenizer, source, MAX_SOURCE_LENGTH)
            return {
                "log_prob": scorer({"source": source, "target": _read(target_tokenizer, target, MAX_TARGET_LENGTH)})
            }

        pair = [tf.TensorSpec([None], tf.string, name=name) for name in ("source", "target")]
        functions = {
            "serving_default": self._function(translate, TEXT, together=True),
            "nbest": self._function(nbest, TEXT, together=True),
            "score": self._function(score, *pair, together=True),
        }
        if model.attends:
            functions["attention"] = self._function(attention, TEXT)
        return functions


class ServedClassifier(ServedModel):
    """A served classifier.

    Args:
        run: The loaded work directory.
        **options: See `ServedModel`.
    """

    def __init__(self, run: ClassifierRun, **options):
        super().__init__(run, **options)
        self.functions = self._make_functions(run.model, run.classes)

    def _make_functions(self, model, labels):
        tokenizer = self.tokenizers["text"]

        def classify(text):
            logits = model({"tokens": _read(tokenizer, text, MAX_TEXT_LENGTH)}, training=False)
            classes = tf.constant(labels)
            return {
                "label": tf.gather(classes, tf.argmax(logits, axis=-1)),
                "probabilities": tf.nn.softmax(tf.cast(logits, tf.float32)),
                "classes": tf.tile(classes[None], [tf.shape(logits)[0], 1]),
            }

        def embed(text):
            tokens = _read(tokenizer, text, MAX_TEXT_LENGTH)
            return {
                "tokens": tokenizer.pieces(tokens),
                "embeddings": tf.cast(model.represent(tokens, training=False), tf.float32),
            }

        def attention(text):
            tokens = _read(tokenizer, text, MAX_TEXT_LENGTH)
            return {"tokens": tokenizer.pieces(tokens), "attention": tf.cast(model.attention(tokens), tf.float32)}

        def classify_examples(inputs):
            features = tf.io.parse_example(inputs, {"text": tf.io.FixedLenFeature([], tf.string)})
            found = classify(features["text"])
            return {"classes": found["classes"], "scores": found["probabilities"]}

        functions = {
            "serving_default": self._function(classify, TEXT, together=True),
            "embed": self._function(embed, TEXT),
            CLASSIFY: self._function(classify_examples, EXAMPLES, together=True),
        }
        if model.attends:
            functions["attention"] = self._function(attention, TEXT)
        return functions


class ServedLanguageModel(ServedModel):
    """A served language model.

    Args:
        run: The loaded work directory.
        weights: See `ServedModel`.
        dynamic_batching: See `ServedModel`.
        **options: `max_length` and `no_repeat_ngram`, see `Generator`.
    """

    def __init__(self, run: LanguageModelRun, weights: str = "float32", dynamic_batching: bool = False, **options):
        super().__init__(run, weights, dynamic_batching)
        self.functions = self._make_functions(run.model, Generator(run.model, **options))

    def _make_functions(self, model, generator):
        tokenizer, room = self.tokenizers["text"], generator.max_length

        def prompts(text):
            rows = tokenizer.encode(text)
            # As in `zoo.run`: of a text that leaves no room for an answer the end is read.
            lengths = rows.row_lengths()
            first = tf.where(lengths < room, tf.zeros_like(lengths), lengths - room // 2)
            places = tf.ragged.range(first, lengths)
            return _dense(tf.gather(rows, places, batch_dims=1))

        def answers(prompt, ids):
            before, whole = tokenizer.decode(prompt), tokenizer.decode(ids)
            size = tf.strings.length(before)
            return tf.strings.substr(whole, size, tf.strings.length(whole) - size)

        def generate(text):
            prompt = prompts(text)
            outputs = generator({"prompt": prompt})
            return {"text": answers(prompt, outputs["ids"]), "log_prob": outputs["log_prob"]}

        def sample(text, seed, temperature, top_p):
            prompt = prompts(text)
            batch = tf.shape(prompt)[0]
            ids, _ = decoding.sample(
                lambda last, state, memory: model.decode_step(last, state),
                model.initial_state(batch),
                decoding.Rules(SYMBOLS, tf.fill([batch], room), room, prompt, generator.no_repeat_ngram),
                seeds=tf.fill([batch], seed),
                rows=tf.range(batch),
                # What is nearly zero takes the most probable symbol, as zero does.
                temperature=tf.maximum(temperature, 1e-4),
                top_p=top_p,
            )
            return {"text": answers(prompt, ids)}

        def score(text):
            rows = tokenizer.encode(text)[:, : model.max_length]
            outputs = _dense(rows)
            logits = model({"tokens": shifted(outputs)}, training=False)
            return {
                "log_prob": decoding.score(logits, outputs, SYMBOLS),
                "num_tokens": tf.reduce_sum(tf.cast(outputs != PAD, tf.int32), axis=1),
            }

        draws = [
            tf.TensorSpec([], tf.int32, name="seed"),
            tf.TensorSpec([], tf.float32, name="temperature"),
            tf.TensorSpec([], tf.float32, name="top_p"),
        ]
        return {
            "serving_default": self._function(generate, TEXT, together=True),
            "sample": self._function(sample, TEXT, *draws),
            "score": self._function(score, TEXT, together=True),
        }


_CLASSES: dict[str, tuple[type, tuple[str, ...]]] = {
    "seq2seq": (
        ServedSeq2Seq,
        ("beam_size", "nbest", "length_penalty", "coverage_penalty", "max_length", "no_repeat_ngram"),
    ),
    "classifier": (ServedClassifier, ()),
    "language_model": (ServedLanguageModel, ("max_length", "no_repeat_ngram")),
}
