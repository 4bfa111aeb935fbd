"""Worker: OpenNMT-tf's own decoding of its Transformer: `python opennmt_tf_search.py TASK`."""

import tensorflow as tf
from opennmt_tf import initialize, transformer
from searching import serve
from worker import PAD, Turns, use_threads


def make_search(model, beam):
    """Returns a search in a graph, as the library's `infer` runs it.

    Args:
        model: The initialized model.
        beam: Size of the beam.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
    def search(source):
        steps = tf.shape(source)[1]
        limits = {"minimum_decoding_length": steps, "maximum_decoding_length": steps}
        model.params.update({"beam_width": beam, **limits})  # which is read while the graph is made
        lengths = tf.math.count_nonzero(source != PAD, axis=1, dtype=tf.int32)
        _, found = model({"ids": source, "length": lengths}, training=False)
        # The words, as `infer` has them, but as numbers: how they are written is no matter of decoding.
        return model.labels_inputter.tokens_to_ids.lookup(found["tokens"][:, 0])

    return search


def main():
    """Takes part."""
    turns = Turns()
    use_threads(turns.task["threads"])
    tf.random.set_seed(0)
    model = transformer(turns.task)
    initialize(turns.task, model)
    searches = {beam: make_search(model, beam) for beam in turns.task["beams"]}
    parameters = sum(weight.shape.num_elements() for weight in model.trainable_variables)
    serve(
        turns,
        lambda beam, source: searches[beam](tf.constant(source, tf.int64)).numpy(),
        parameters,
        ["OpenNMT-tf", "tensorflow"],
    )


if __name__ == "__main__":
    main()
