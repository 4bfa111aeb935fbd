"""The signatures of an exported model: raw strings in, strings out, tokenizer and decoding in the graph."""

import tensorflow as tf

from zoo.run import MAX_SOURCE_LENGTH, Run
from zoo.text import END, PAD, START
from zoo.translator import Translator


class ServedModel(tf.Module):
    """What a SavedModel of ours consists of: variables, tokenizers and functions.

    Holds `tf.Variable`s and not the Keras model: an object graph with Keras objects in it loads in Python and fails in
    the stock server.

    Args:
        run: The loaded work directory.
        beam_size: See `Translator`.
        length_penalty: See `Translator`.
        max_length: See `Translator`.
    """

    def __init__(self, run: Run, beam_size: int = 1, length_penalty: float = 0.6, max_length: int = 256):
        super().__init__()
        self.weights = [variable.value for variable in run.model.variables]
        self.source_tokenizer = run.tokenizers.source.graph()
        self.target_tokenizer = run.tokenizers.target.graph()
        self.functions = self._make_functions(run.model, Translator(run.model, beam_size, length_penalty, max_length))

    def source_ids(self, text):
        """Returns ids [B, S], S ≥ 1, with the end symbol, cut at `MAX_SOURCE_LENGTH`.

        Args:
            text: string [B].
        """
        rows = self.source_tokenizer.encode(text)[:, : MAX_SOURCE_LENGTH - 1]
        ends = tf.fill([tf.shape(text)[0], 1], END)
        ids = tf.concat([rows, ends], axis=1).to_tensor(PAD)
        # An empty batch has no longest row.
        return tf.pad(ids, [[0, 0], [0, tf.maximum(0, 1 - tf.shape(ids)[1])]], constant_values=PAD)

    def _make_functions(self, model, translator):
        # Closures, because the module must not hold the Keras objects.
        def best(text):
            source = self.source_ids(text)
            outputs = translator(source)
            ids = outputs["ids"][:, 0]
            # The room for the longest possible answer is mostly padding.
            width = tf.reduce_max(tf.reduce_sum(tf.cast(ids != PAD, tf.int32), axis=1))
            return source, ids[:, : tf.maximum(width, 1)], outputs["log_prob"][:, 0]

        def translate(text):
            _, ids, log_prob = best(text)
            return {"text": self.target_tokenizer.decode(ids), "log_prob": log_prob}

        def attention(text):
            source, ids, _ = best(text)
            inputs = tf.concat([tf.fill([tf.shape(ids)[0], 1], START), ids[:, :-1]], axis=1)
            inputs = tf.where(ids == PAD, PAD, inputs)  # nothing is predicted behind the end
            return {
                "text": self.target_tokenizer.decode(ids),
                "source_tokens": self.source_tokenizer.pieces(source),
                "target_tokens": self.target_tokenizer.pieces(ids),
                "attention": tf.cast(model.attention(source, inputs), tf.float32),
            }

        text = [tf.TensorSpec([None], tf.string, name="text")]
        return {
            "serving_default": tf.function(translate, input_signature=text),
            "attention": tf.function(attention, input_signature=text),
        }
