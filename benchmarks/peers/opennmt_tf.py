"""OpenNMT-tf's Transformer and Luong model, on TensorFlow 2.13."""

import tempfile
from pathlib import Path

import opennmt
import tensorflow as tf

from benchmarks.peers.batches import PAD, number_of_weights, serve_search, serve_training, use_threads

PACKAGES = ("OpenNMT-tf", "tensorflow")
BLANKS = ["<blank>", "<s>", "</s>"]


def transformer(task):
    """Returns a pre-norm Transformer with one matrix for all embeddings and the output."""
    return opennmt.models.Transformer(
        opennmt.inputters.WordEmbedder(embedding_size=task["dim"]),
        opennmt.inputters.WordEmbedder(embedding_size=task["dim"]),
        num_layers=task["layers"],
        num_units=task["dim"],
        num_heads=task["heads"],
        ffn_inner_dim=task["hidden"],
        dropout=task["dropout"],
        attention_dropout=0.0,
        ffn_dropout=0.0,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )


def luong(task):
    """Returns the LSTMs with Luong's attention of the library's catalog, in the sizes of the task."""
    import tensorflow_addons as tfa

    options = {"num_layers": task["layers"], "num_units": task["units"], "dropout": task["dropout"]}
    options["cell_class"] = tf.keras.layers.LSTMCell
    return opennmt.models.SequenceToSequence(
        opennmt.inputters.WordEmbedder(embedding_size=task["units"]),
        opennmt.inputters.WordEmbedder(embedding_size=task["units"]),
        opennmt.encoders.RNNEncoder(**options),
        opennmt.decoders.AttentionalRNNDecoder(
            bridge_class=opennmt.layers.CopyBridge, attention_mechanism_class=tfa.seq2seq.LuongAttention, **options
        ),
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.TARGET,
    )


MODELS = {"transformer": transformer, "luong": luong}


def make_model(task):
    """Returns the model of the task with its vocabulary and weights, and the number of parameters."""
    use_threads(task["threads"])
    tf.random.set_seed(0)
    model = MODELS[task["network"]](task)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocabulary.txt"
        # The library adds one token, for unknown words.
        words = [*BLANKS, *(f"w{number}" for number in range(task["vocabulary"] - len(BLANKS) - 1))]
        file.write_text("\n".join(words) + "\n", encoding="utf-8")
        sides = {f"{side}_vocabulary": str(file) for side in ("source", "target")}
        model.initialize(sides, {"label_smoothing": task["label_smoothing"], "average_loss_in_time": True})
        model.create_variables()
    return model, number_of_weights(model)


def train(channel):
    model, parameters = make_model(channel.task)
    optimizer = tf.keras.optimizers.legacy.Adam(1e-3, beta_2=0.98, epsilon=1e-9)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3)
    def train_on(source, target, outputs):
        source, target, outputs = (tf.cast(ids, tf.int64) for ids in (source, target, outputs))
        lengths = [tf.math.count_nonzero(ids != PAD, axis=1, dtype=tf.int32) for ids in (source, outputs)]
        features = {"ids": source, "length": lengths[0]}
        return model.train(features, {"ids": target, "ids_out": outputs, "length": lengths[1]}, optimizer)

    serve_training(channel, lambda *batch: float(train_on(*batch)), parameters, PACKAGES)


def search(channel):
    """Searches in a graph, like the library's `infer`."""
    model, parameters = make_model(channel.task)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
    def infer(source):
        steps = tf.shape(source)[1]
        limits = {"minimum_decoding_length": steps, "maximum_decoding_length": steps}
        model.params.update({"beam_width": channel.task["beam"], **limits})  # which is read while the graph is traced
        lengths = tf.math.count_nonzero(source != PAD, axis=1, dtype=tf.int32)
        _, predictions = model({"ids": source, "length": lengths}, training=False)
        # `infer` returns words; their ids suffice here.
        return model.labels_inputter.tokens_to_ids.lookup(predictions["tokens"][:, 0])

    serve_search(channel, lambda source: infer(tf.constant(source, tf.int64)).numpy(), parameters, PACKAGES)
