"""The Transformer of TensorFlow's Model Garden."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # the library is written for Keras 2

import tensorflow as tf  # noqa: E402, reads the environment
from official.nlp.modeling.models import seq2seq_transformer as garden  # noqa: E402

from benchmarks.peers.batches import (  # noqa: E402
    PAD,
    batches,
    number_of_weights,
    serve_search,
    serve_training,
    use_threads,
)

PACKAGES = ("tf-models-official", "tensorflow")
NO_TOKEN = -1  # an end that never occurs


def make_model(task, **decoding):
    """Returns a pre-norm Transformer with one matrix for all embeddings and the output."""
    options = {
        "num_layers": task["layers"],
        "num_attention_heads": task["heads"],
        "intermediate_size": task["hidden"],
        "dropout_rate": task["dropout"],
        "use_bias": True,
        "norm_first": True,
    }
    return garden.Seq2SeqTransformer(
        vocab_size=task["vocabulary"],
        embedding_width=task["dim"],
        dropout_rate=task["dropout"],
        encoder_layer=garden.TransformerEncoder(**options),
        decoder_layer=garden.TransformerDecoder(**options),
        **decoding,
    )


def make_step(task, model):
    """Returns a training step; the model shifts the target itself."""
    optimizer = tf.keras.optimizers.legacy.Adam(1e-3, beta_2=0.98, epsilon=1e-9)
    smoothing = task["label_smoothing"]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)] * 2)
    def train(source, outputs):
        with tf.GradientTape() as tape:
            logits = tf.cast(model({"inputs": source, "targets": outputs}, training=True), tf.float32)
            chosen = tf.nn.sparse_softmax_cross_entropy_with_logits(outputs, logits)
            right = tf.gather(logits, outputs, batch_dims=2)
            # (1 − ε) · (Z − z_y) + ε · (Z − mean z), with one pass for the normalizer Z.
            losses = chosen + smoothing * (right - tf.reduce_mean(logits, axis=-1))
            loss = tf.reduce_mean(tf.boolean_mask(losses, outputs != PAD))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return lambda source, _, outputs: float(train(tf.cast(source, tf.int64), tf.cast(outputs, tf.int64)))


def train(channel):
    use_threads(channel.task["threads"])
    tf.random.set_seed(0)
    policy = {"bfloat16": "mixed_bfloat16"}.get(channel.task["precision"], "float32")
    tf.keras.mixed_precision.set_global_policy(policy)
    model = make_model(channel.task)
    step = make_step(channel.task, model)
    step(*next(iter(batches(channel.task))))  # creates the weights
    serve_training(channel, step, number_of_weights(model), PACKAGES)


def search(channel):
    """Searches with a beam; by default the model takes as many steps as the source has tokens."""
    use_threads(channel.task["threads"])
    tf.random.set_seed(0)
    model = make_model(channel.task, beam_size=channel.task["beam"], alpha=0.0, eos_id=NO_TOKEN)
    model({"inputs": tf.ones([1, 1], tf.int32)}, training=False)  # creates the weights

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def decode(source):
        return model({"inputs": source}, training=False)["outputs"]

    parameters = number_of_weights(model)
    serve_search(channel, lambda source: decode(tf.constant(source)).numpy(), parameters, PACKAGES, end=NO_TOKEN)
