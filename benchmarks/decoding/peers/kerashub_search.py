"""Worker: KerasHub's samplers over its decoder with kept keys and values: `python kerashub_search.py TASK`."""

import keras
import keras_hub
import kerashub  # the worker of training, which sets the backend
import tensorflow as tf
from keras import ops
from searching import serve
from worker import PAD, START, Turns, use_threads


def make_search(model, task, beam):
    """Returns a search in a graph for each width of the source, as the library's `generate` makes one.

    Args:
        model: From `kerashub.make_model`.
        task: The task.
        beam: Size of the beam.
    """
    encoder = keras.Model(model.input["source"], model.get_layer("encoder_norm").output)
    embedding, norm = model.get_layer("embedding"), model.get_layer("decoder_norm")
    layers = [layer for layer in model.layers if isinstance(layer, keras_hub.layers.TransformerDecoder)]
    positions, heads = keras_hub.layers.SinePositionEncoding(), task["heads"]
    sampler = keras_hub.samplers.BeamSampler(beam) if beam > 1 else keras_hub.samplers.GreedySampler()

    def decode(ids, index, memory, kept, crossed, **new):
        embedded = embedding(ids) * task["dim"] ** 0.5
        hidden, found = embedded + positions(embedded, start_index=index), []
        for number, layer in enumerate(layers):
            caches = {"self_attention_cache": kept[:, number], "cross_attention_cache": crossed[:, number]}
            hidden, *both = layer(hidden, **memory, **caches, self_attention_cache_update_index=index, **new)
            found.append(both)
        logits = embedding(norm(hidden), reverse=True)[:, 0]
        return logits, *(ops.stack(each, axis=1) for each in zip(*found, strict=True))

    @tf.function(jit_compile=task["compile"])
    def search(source):
        batch, width = source.shape
        memory = {"encoder_sequence": encoder(source, training=False), "encoder_padding_mask": source != PAD}
        prompt = ops.concatenate([ops.full((batch, 1), START, "int32"), ops.zeros((batch, width), "int32")], axis=1)
        empty = (batch, len(layers), 2, width, heads, task["dim"] // heads)
        _, kept, crossed = decode(
            prompt[:, :1], 0, memory, ops.zeros(empty), ops.zeros(empty), cross_attention_cache_update_index=0
        )
        # The beams of a sentence share what is known of its source: the sampler need not choose among them.
        memory = {name: ops.repeat(value, beam, axis=0) for name, value in memory.items()}
        crossed = ops.repeat(crossed, beam, axis=0)

        def step(prompt, kept, index):
            last = ops.slice(prompt, [0, index - 1], [batch * beam, 1])
            logits, kept, _ = decode(last, index - 1, memory, kept, crossed)
            return logits, None, kept

        return sampler(step, prompt, kept, index=1, mask=prompt == START)[:, 1:]

    return search


def main():
    """Takes part."""
    turns = Turns()
    use_threads(turns.task["threads"])
    keras.utils.set_random_seed(0)
    model = kerashub.make_model({**turns.task, "text": None})
    searches = {beam: make_search(model, turns.task, beam) for beam in turns.task["beams"]}
    serve(
        turns,
        lambda beam, source: searches[beam](tf.constant(source)).numpy(),
        model.count_params(),
        ["keras-hub", "keras", "tensorflow"],
        end=None,
    )


if __name__ == "__main__":
    main()
