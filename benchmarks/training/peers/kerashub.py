"""Worker: the Transformer layers of KerasHub, on TensorFlow: `python kerashub.py TASK`."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras  # noqa: E402, reads the environment
import keras_hub  # noqa: E402
import tensorflow as tf  # noqa: E402
from keras import ops  # noqa: E402
from keras_turns import KerasTurns, train_on_text  # noqa: E402
from worker import PAD, Turns, make_batch, text_batches, use_threads  # noqa: E402


def make_model(task):
    """Returns a pre-norm encoder and decoder with one matrix for all embeddings and the output.

    Args:
        task: The task.
    """
    dim, options = task["dim"], {"dropout": task["dropout"], "normalize_first": True, "layer_norm_epsilon": 1e-5}
    embedding = keras.layers.ReversibleEmbedding(
        task["vocabulary"],
        dim,
        mask_zero=True,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=dim**-0.5),
        # Without it the logits of mixed precision are computed in float32, the largest product of a step.
        reverse_dtype=keras.config.dtype_policy().compute_dtype,
        name="embedding",
    )
    positions, drop = keras_hub.layers.SinePositionEncoding(), keras.layers.Dropout(task["dropout"])

    def embed(ids):
        embedded = embedding(ids) * dim**0.5
        return drop(embedded + positions(embedded))

    lengths = {side: None if "text" in task else task[f"{side}_length"] for side in ("source", "target")}
    source, target = (keras.Input((length,), dtype="int32", name=side) for side, length in lengths.items())
    memory, hidden = embed(source), embed(target)
    for _ in range(task["layers"]):
        memory = keras_hub.layers.TransformerEncoder(task["hidden"], task["heads"], **options)(memory)
    memory = keras.layers.LayerNormalization(epsilon=1e-5, name="encoder_norm")(memory)
    for _ in range(task["layers"]):
        hidden = keras_hub.layers.TransformerDecoder(task["hidden"], task["heads"], **options)(hidden, memory)
    hidden = keras.layers.LayerNormalization(epsilon=1e-5, name="decoder_norm")(hidden)
    return keras.Model({"source": source, "target": target}, embedding(hidden, reverse=True))


def smoothed_cross_entropy(smoothing):
    """Returns the loss; Keras has one with smoothing for one-hot targets alone, which would cost more.

    Args:
        smoothing: Share of the target distribution that is spread over the vocabulary.
    """

    def loss(outputs, logits):
        logits = ops.cast(logits, "float32")
        chosen = keras.losses.sparse_categorical_crossentropy(outputs, logits, from_logits=True)
        right = ops.take_along_axis(logits, outputs[..., None], axis=-1)[..., 0]
        # (1 − ε) · (Z − z_y) + ε · (Z − mean z), with one pass for the normaliser Z.
        return chosen + smoothing * (right - ops.mean(logits, axis=-1))

    return loss


def read(task):
    """Returns an epoch of a text as `fit` takes it; padding has no weight.

    Args:
        task: The task.
    """

    def each():
        for source, target, outputs in text_batches(task):
            yield {"source": source, "target": target}, outputs, (outputs != PAD).astype("float32")

    ids, weights = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.float32)
    signature = {"source": ids, "target": ids}, ids, weights
    return tf.data.Dataset.from_generator(each, output_signature=signature).prefetch(2)


def main():
    """Takes part."""
    turns = Turns()
    use_threads(turns.task["threads"])
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_dtype_policy({"bfloat16": "mixed_bfloat16"}.get(turns.task["precision"], "float32"))
    model = make_model(turns.task)
    model.compile(
        keras.optimizers.Adam(1e-3, beta_2=0.98, epsilon=1e-9),
        smoothed_cross_entropy(turns.task["label_smoothing"]),
        jit_compile=turns.task["compile"],
    )
    packages = ["keras-hub", "keras", "tensorflow"]
    if "text" in turns.task:
        train_on_text(turns, model, lambda: read(turns.task), packages)
    else:
        source, target, outputs = make_batch(turns.task)
        data = tf.data.Dataset.from_tensors(({"source": source, "target": target}, outputs)).repeat()
        model.fit(data, steps_per_epoch=1_000_000, callbacks=[KerasTurns(turns, packages)], verbose=0, shuffle=False)


if __name__ == "__main__":
    main()
