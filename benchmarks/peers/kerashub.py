"""The Transformer layers of KerasHub, and its samplers, on TensorFlow."""

import keras
import keras_hub
import tensorflow as tf
from keras import ops

from benchmarks.peers.batches import PAD, START, make_batch, serve_search, text_batches, use_threads
from benchmarks.peers.keras import StepsOnRequest, fit_on_text

PACKAGES = ("keras-hub", "keras", "tensorflow")
STEPS = 1_000_000  # more than the number of requests


def make_model(task, lengths):
    """Returns a pre-norm encoder and decoder with one matrix for all embeddings and the output.

    `lengths` are those of source and target, `None` for any.
    """
    dim, options = task["dim"], {"dropout": task["dropout"], "normalize_first": True, "layer_norm_epsilon": 1e-5}
    embedding = keras.layers.ReversibleEmbedding(
        task["vocabulary"],
        dim,
        mask_zero=True,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=dim**-0.5),
        # By default the logits of mixed precision, the largest product of a step, are computed in float32.
        reverse_dtype=keras.config.dtype_policy().compute_dtype,
        name="embedding",
    )
    positions, drop = keras_hub.layers.SinePositionEncoding(), keras.layers.Dropout(task["dropout"])

    def embed(ids):
        embedded = embedding(ids) * dim**0.5
        return drop(embedded + positions(embedded))

    source, target = (
        keras.Input((length,), dtype="int32", name=side)
        for side, length in zip(("source", "target"), lengths, strict=True)
    )
    memory, hidden = embed(source), embed(target)
    for _ in range(task["layers"]):
        memory = keras_hub.layers.TransformerEncoder(task["hidden"], task["heads"], **options)(memory)
    memory = keras.layers.LayerNormalization(epsilon=1e-5, name="encoder_norm")(memory)
    for _ in range(task["layers"]):
        hidden = keras_hub.layers.TransformerDecoder(task["hidden"], task["heads"], **options)(hidden, memory)
    hidden = keras.layers.LayerNormalization(epsilon=1e-5, name="decoder_norm")(hidden)
    return keras.Model({"source": source, "target": target}, embedding(hidden, reverse=True))


def smoothed_cross_entropy(smoothing):
    """Returns the loss; Keras' own smoothing requires one-hot targets, which would be slower."""

    def loss(outputs, logits):
        logits = ops.cast(logits, "float32")
        chosen = keras.losses.sparse_categorical_crossentropy(outputs, logits, from_logits=True)
        right = ops.take_along_axis(logits, outputs[..., None], axis=-1)[..., 0]
        # (1 − ε) · (Z − z_y) + ε · (Z − mean z), with one pass for the normalizer Z.
        return chosen + smoothing * (right - ops.mean(logits, axis=-1))

    return loss


def read(task):
    """Returns an epoch of a text for `fit`; padding has no weight."""

    def weighted_batches():
        for source, target, outputs in text_batches(task):
            yield {"source": source, "target": target}, outputs, (outputs != PAD).astype("float32")

    ids, weights = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.float32)
    signature = {"source": ids, "target": ids}, ids, weights
    return tf.data.Dataset.from_generator(weighted_batches, output_signature=signature).prefetch(2)


def train(channel):
    """Trains the model with `fit`."""
    task = channel.task
    use_threads(task["threads"])
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_dtype_policy({"bfloat16": "mixed_bfloat16"}.get(task["precision"], "float32"))
    model = make_model(task, (None, None) if "text" in task else (task["source_length"], task["target_length"]))
    model.compile(
        keras.optimizers.Adam(1e-3, beta_2=0.98, epsilon=1e-9),
        smoothed_cross_entropy(task["label_smoothing"]),
        jit_compile=task["compile"],
    )
    if "text" in task:
        fit_on_text(channel, model, lambda: {"x": read(task)}, PACKAGES)
    else:
        source, target, outputs = make_batch(task)
        data = tf.data.Dataset.from_tensors(({"source": source, "target": target}, outputs)).repeat()
        callbacks = [StepsOnRequest(channel, PACKAGES)]
        model.fit(data, steps_per_epoch=STEPS, callbacks=callbacks, verbose=0, shuffle=False)


def make_search(model, task):
    """Returns a search with a graph for each width of the source, like the library's `generate`."""
    beam, heads = task["beam"], task["heads"]
    encoder = keras.Model(model.input["source"], model.get_layer("encoder_norm").output)
    embedding, norm = model.get_layer("embedding"), model.get_layer("decoder_norm")
    layers = [layer for layer in model.layers if isinstance(layer, keras_hub.layers.TransformerDecoder)]
    positions = keras_hub.layers.SinePositionEncoding()
    sampler = keras_hub.samplers.BeamSampler(beam) if beam > 1 else keras_hub.samplers.GreedySampler()

    def decode(ids, index, memory, own_cache, cross_cache, **options):
        embedded = embedding(ids) * task["dim"] ** 0.5
        hidden, new_caches = embedded + positions(embedded, start_index=index), []
        for number, layer in enumerate(layers):
            caches = {"self_attention_cache": own_cache[:, number], "cross_attention_cache": cross_cache[:, number]}
            hidden, *both = layer(hidden, **memory, **caches, self_attention_cache_update_index=index, **options)
            new_caches.append(both)
        logits = embedding(norm(hidden), reverse=True)[:, 0]
        return logits, *(ops.stack(caches, axis=1) for caches in zip(*new_caches, strict=True))

    @tf.function(jit_compile=task["compile"])
    def search(source):
        batch, width = source.shape
        memory = {"encoder_sequence": encoder(source, training=False), "encoder_padding_mask": source != PAD}
        prompt = ops.concatenate([ops.full((batch, 1), START, "int32"), ops.zeros((batch, width), "int32")], axis=1)
        empty = ops.zeros((batch, len(layers), 2, width, heads, task["dim"] // heads))
        _, own_cache, cross_cache = decode(prompt[:, :1], 0, memory, empty, empty, cross_attention_cache_update_index=0)
        # The beams of a sentence have the same memory, among which the sampler need not choose.
        memory = {name: ops.repeat(value, beam, axis=0) for name, value in memory.items()}
        cross_cache = ops.repeat(cross_cache, beam, axis=0)

        def step(prompt, own_cache, index):
            last = ops.slice(prompt, [0, index - 1], [batch * beam, 1])
            logits, own_cache, _ = decode(last, index - 1, memory, own_cache, cross_cache)
            return logits, None, own_cache

        return sampler(step, prompt, own_cache, index=1, mask=prompt == START)[:, 1:]

    return search


def search(channel):
    """Searches with the samplers, over the decoder's cached keys and values."""
    use_threads(channel.task["threads"])
    keras.utils.set_random_seed(0)
    model = make_model(channel.task, (None, None))
    search_graph = make_search(model, channel.task)
    serve_search(
        channel, lambda source: search_graph(tf.constant(source)).numpy(), model.count_params(), PACKAGES, end=None
    )
