"""Worker: OpenNMT-tf's Transformer or Luong model, on TensorFlow 2.13: `python opennmt_tf.py TASK`."""

import tempfile
from pathlib import Path

import opennmt
import tensorflow as tf
from worker import PAD, Turns, use_threads

BLANKS = ["<blank>", "<s>", "</s>"]


def transformer(task):
    """Returns a pre-norm Transformer with one matrix for all embeddings and the output.

    Args:
        task: The task.
    """
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
    """Returns a stack of LSTMs with Luong's attention, as the library's catalog has it, in the sizes of the task.

    Args:
        task: The task.
    """
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


def initialize(task, model):
    """Gives a model its vocabulary and its weights.

    Args:
        task: The task.
        model: The model.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocabulary.txt"
        # The library adds one symbol, for unknown words.
        words = [*BLANKS, *(f"w{number}" for number in range(task["vocabulary"] - len(BLANKS) - 1))]
        file.write_text("\n".join(words) + "\n", encoding="utf-8")
        sides = {f"{side}_vocabulary": str(file) for side in ("source", "target")}
        model.initialize(sides, {"label_smoothing": task["label_smoothing"], "average_loss_in_time": True})
        model.create_variables()


def make_step(task, model):
    """Returns a step of training.

    Args:
        task: The task.
        model: The model.
    """
    initialize(task, model)
    optimizer = tf.keras.optimizers.legacy.Adam(1e-3, beta_2=0.98, epsilon=1e-9)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3)
    def train(source, target, outputs):
        source, target, outputs = (tf.cast(ids, tf.int64) for ids in (source, target, outputs))
        lengths = [tf.math.count_nonzero(ids != PAD, axis=1, dtype=tf.int32) for ids in (source, outputs)]
        features = {"ids": source, "length": lengths[0]}
        return model.train(features, {"ids": target, "ids_out": outputs, "length": lengths[1]}, optimizer)

    return lambda *batch: float(train(*batch))


def main():
    """Takes part."""
    turns = Turns()
    use_threads(turns.task["threads"])
    tf.random.set_seed(0)
    model = MODELS[turns.task["network"]](turns.task)
    step = make_step(turns.task, model)
    parameters = sum(weight.shape.num_elements() for weight in model.trainable_variables)
    turns.serve(step, parameters, ["OpenNMT-tf", "tensorflow"])


if __name__ == "__main__":
    main()
