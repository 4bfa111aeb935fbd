"""The signatures of an exported model: raw strings in, strings out, tokenizer and decoding in the graph."""

import tensorflow as tf

from zoo import decoding
from zoo.errors import InputError
from zoo.generator import Generator
from zoo.run import MAX_SOURCE_LENGTH, MAX_TEXT_LENGTH, ClassifierRun, LanguageModelRun, Run, Seq2SeqRun
from zoo.text import END, PAD, START
from zoo.translator import SYMBOLS, Translator

TEXT = tf.TensorSpec([None], tf.string, name="text")


class ServedModel(tf.Module):
    """What a SavedModel of ours consists of: variables, tokenizers and functions.

    Holds `tf.Variable`s and not the Keras model: an object graph with Keras objects in it loads in Python and fails in
    the stock server. The functions are closures, because the module must not hold the Keras objects.

    Attributes:
        functions: The signatures by name.

    Args:
        run: The loaded work directory.
    """

    functions: dict

    def __init__(self, run: Run):
        super().__init__()
        self.weights = [variable.value for variable in run.model.variables]
        self.tokenizers = {name: tokenizer.graph() for name, tokenizer in run.tokenizer_files().items()}


def served_model(run: Run, **options) -> ServedModel:
    """Returns the served form of a run.

    Args:
        run: The loaded work directory.
        **options: Options of the class for its task that are not `None`.

    Raises:
        InputError: If the task has no such option.
    """
    cls, known = _CLASSES[run.spec.task]
    options = {name: value for name, value in options.items() if value is not None}
    for name in options:
        if name not in known:
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
        beam_size: See `Translator`.
        length_penalty: See `Translator`.
        max_length: See `Translator`.
    """

    def __init__(self, run: Seq2SeqRun, beam_size: int = 1, length_penalty: float = 0.6, max_length: int = 256):
        super().__init__(run)
        self.functions = self._make_functions(run.model, Translator(run.model, beam_size, length_penalty, max_length))

    def _make_functions(self, model, translator):
        source_tokenizer, target_tokenizer = self.tokenizers["source"], self.tokenizers["target"]

        def best(text):
            source = _read(source_tokenizer, text, MAX_SOURCE_LENGTH)
            outputs = translator(source)
            ids = outputs["ids"][:, 0]
            # The room for the longest possible answer is mostly padding.
            width = tf.reduce_max(tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1))
            return source, ids[:, : tf.maximum(width, 1)], outputs["log_prob"][:, 0]

        def translate(text):
            _, ids, log_prob = best(text)
            return {"text": target_tokenizer.decode(ids), "log_prob": log_prob}

        def attention(text):
            source, ids, _ = best(text)
            inputs = tf.concat([tf.fill([tf.shape(ids)[0], 1], START), ids[:, :-1]], axis=1)
            inputs = tf.where(ids == PAD, PAD, inputs)  # nothing is predicted behind the end
            return {
                "text": target_tokenizer.decode(ids),
                "source_tokens": source_tokenizer.pieces(source),
                "target_tokens": target_tokenizer.pieces(ids),
                "attention": tf.cast(model.attention(source, inputs), tf.float32),
            }

        functions = {"serving_default": tf.function(translate, input_signature=[TEXT])}
        if model.attends:
            functions["attention"] = tf.function(attention, input_signature=[TEXT])
        return functions


class ServedClassifier(ServedModel):
    """A served classifier.

    Args:
        run: The loaded work directory.
    """

    def __init__(self, run: ClassifierRun):
        super().__init__(run)
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

        functions = {"serving_default": classify, "embed": embed}
        if model.attends:
            functions["attention"] = attention
        return {name: tf.function(function, input_signature=[TEXT]) for name, function in functions.items()}


class ServedLanguageModel(ServedModel):
    """A served language model.

    Args:
        run: The loaded work directory.
        max_length: See `Generator`.
    """

    def __init__(self, run: LanguageModelRun, max_length: int | None = None):
        super().__init__(run)
        self.functions = self._make_functions(run.model, Generator(run.model, max_length=max_length))

    def _make_functions(self, model, generator):
        tokenizer, room = self.tokenizers["text"], generator.max_length

        def prompts(text):
            rows = tokenizer.encode(text)
            # As in `zoo.run`: of a text that leaves no room for an answer the end is read.
            lengths = rows.row_lengths()
            first = tf.where(lengths < room, tf.zeros_like(lengths), lengths - room // 2)
            places = tf.ragged.range(first, lengths)
            return _dense(tf.gather(rows, places, batch_dims=1))

        def answers(prompt, outputs):
            before, whole = tokenizer.decode(prompt), tokenizer.decode(outputs["ids"])
            size = tf.strings.length(before)
            return {
                "text": tf.strings.substr(whole, size, tf.strings.length(whole) - size),
                "log_prob": outputs["log_prob"],
            }

        def generate(text):
            prompt = prompts(text)
            return answers(prompt, generator({"prompt": prompt}))

        def sample(text, seed, temperature, top_p):
            prompt = prompts(text)
            batch = tf.shape(prompt)[0]
            ids, log_prob = decoding.sample(
                model.decode_step,
                model.initial_state(batch, room),
                tf.fill([batch], room),
                room,
                SYMBOLS,
                seeds=tf.fill([batch], seed),
                rows=tf.range(batch),
                # What is nearly zero takes the most probable symbol, as zero does.
                temperature=tf.maximum(temperature, 1e-4),
                top_p=top_p,
                prompt=prompt,
            )
            return {"text": answers(prompt, {"ids": ids, "log_prob": log_prob})["text"]}

        def score(text):
            rows = tokenizer.encode(text)[:, : model.max_length]
            outputs = _dense(rows)
            inputs = tf.concat([tf.fill([tf.shape(outputs)[0], 1], START), outputs[:, :-1]], axis=1)
            logits = tf.cast(model({"tokens": inputs}, training=False), tf.float32)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(outputs, logits)
            real = outputs != PAD
            return {
                "log_prob": -tf.reduce_sum(tf.where(real, losses, 0.0), axis=1),
                "num_tokens": tf.reduce_sum(tf.cast(real, tf.int32), axis=1),
            }

        draws = [
            tf.TensorSpec([], tf.int32, name="seed"),
            tf.TensorSpec([], tf.float32, name="temperature"),
            tf.TensorSpec([], tf.float32, name="top_p"),
        ]
        return {
            "serving_default": tf.function(generate, input_signature=[TEXT]),
            "sample": tf.function(sample, input_signature=[TEXT, *draws]),
            "score": tf.function(score, input_signature=[TEXT]),
        }


_CLASSES: dict[str, tuple[type, tuple[str, ...]]] = {
    "seq2seq": (ServedSeq2Seq, ("beam_size", "length_penalty", "max_length")),
    "classifier": (ServedClassifier, ()),
    "language_model": (ServedLanguageModel, ("max_length",)),
}
