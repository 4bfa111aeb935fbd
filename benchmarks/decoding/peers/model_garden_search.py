"""Worker: beam search of the Transformer of TensorFlow's Model Garden: `python model_garden_search.py TASK`."""

import math
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # the library is written for Keras 2

import tensorflow as tf  # noqa: E402, reads the environment
from model_garden import make_model  # noqa: E402
from searching import serve  # noqa: E402
from worker import Turns, use_threads  # noqa: E402

NOTHING = -1  # no symbol, so that none ends a row


def make_search(model):
    """Returns a search in a graph; without a longest length the model takes as many steps as the source has symbols.

    Args:
        model: The model, which has a size of the beam.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def search(source):
        return model({"inputs": source}, training=False)["outputs"]

    return search


def main():
    """Takes part."""
    turns = Turns()
    use_threads(turns.task["threads"])
    tf.random.set_seed(0)
    beams = turns.task["beams"]
    models = {beam: make_model(turns.task, beam_size=beam, alpha=0.0, eos_id=NOTHING) for beam in beams}
    searches = {beam: make_search(model) for beam, model in models.items()}
    model = models[beams[0]]
    model({"inputs": tf.ones([1, 1], tf.int32)}, training=False)  # which makes the weights
    parameters = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    serve(
        turns,
        lambda beam, source: searches[beam](tf.constant(source)).numpy(),
        parameters,
        ["tf-models-official", "tensorflow"],
        end=NOTHING,
    )


if __name__ == "__main__":
    main()
