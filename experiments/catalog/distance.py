"""What path length means: how far back a layer finds what it is asked for."""

import keras
import numpy as np
from keras import ops

import zoo
from experiments.experiment import Claim, Experiment, grid
from zoo import layers

PAIRS = 4
KEYS, VALUES, NOISE = 8, 8, 16
SIZE = 32
BATCH = 32
WIDTH = 7
DISTANCES = (8, 32, 128, 512)
MIXERS = {
    "attention": lambda: layers.MultiHeadAttention(num_heads=2, key_dim=SIZE // 2),
    "linear attention": lambda: layers.LinearAttention(num_heads=2, key_dim=SIZE // 2),
    "recurrence": lambda: keras.layers.GRU(SIZE, return_sequences=True),
    "convolution": lambda: keras.layers.Conv1D(SIZE, WIDTH, padding="causal", activation="relu"),
}


class Distance(Experiment):
    """Four pairs of a key and a value, then noise, then one of the keys: which value had it?

    Two layers of each kind with residual connections, of 32 features, that read from left to right; a model for each
    distance, which is the number of noise symbols. Chance is 1/8.
    """

    name = "distance"
    question = "how far back does each kind of layer find one item?"
    source = "Vaswani et al. 2017, section 4 and table 1 (path lengths); Arora et al. 2023, multi-query recall"
    refuted_by = (
        "attention that forgets with distance; convolutions that find what lies outside of the 13 positions they see; "
        "a recurrence that learns 512 steps as easily as 8"
    )
    columns = {"accuracy": ".3f", "path_length": ".0f"}
    default_seeds = 3

    def cells(self, request):
        if request.quick:
            return grid(request.seeds, kind=tuple(MIXERS), distance=(8, 64))
        return grid(request.seeds, kind=tuple(MIXERS), distance=DISTANCES)

    def measure(self, cell, request):
        keras.utils.set_random_seed(cell.seed)
        draw, distance = np.random.default_rng(cell.seed), cell.settings["distance"]
        mixer = MIXERS[cell.settings["kind"]]
        model = _model(mixer)
        steps = 300 if request.quick else 500
        texts, answers = _texts(draw, BATCH * steps, distance)
        model.compile(keras.optimizers.Adam(5e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
        model.fit(texts, answers, batch_size=BATCH, epochs=1, verbose=0)
        accuracy = model.evaluate(*_texts(draw, 512, distance), batch_size=64, verbose=0, return_dict=True)["accuracy"]
        return {"accuracy": accuracy, "path_length": _path_length(mixer(), distance)}

    def claims(self):
        return [
            Claim(
                "attention finds the item at every distance: 95 % and more",
                lambda results: min(results.values("accuracy", kind="attention")) > 0.95,
            ),
            Claim(
                "two convolutions of width 7 see 13 positions: at chance (below 25 %) from distance 32 on",
                lambda results: (
                    max(
                        metrics["accuracy"]
                        for settings, _, metrics in results.rows
                        if settings["kind"] == "convolution" and settings["distance"] >= 32
                    )
                    < 0.25
                ),
            ),
            Claim(
                "a recurrence falls with distance: at the largest it is 20 points below attention",
                lambda results: _furthest(results, "recurrence") < _furthest(results, "attention") - 0.2,
            ),
            Claim(
                "linear attention, whose path is as short, is as good as attention, within 5 points",
                lambda results: _furthest(results, "linear attention") > _furthest(results, "attention") - 0.05,
                strong=False,
            ),
        ]

    def draw(self, results, figure):
        panel = figure.subplots()
        for kind in MIXERS:
            panel.plot(*results.line("distance", "accuracy", kind=kind), "o-", label=kind)
        panel.axhline(1 / VALUES, color="gray", linestyle=":", label="chance")
        panel.set(xscale="log", xlabel="distance", ylabel="accuracy", ylim=(0, 1.05))
        distances = results.line("distance", "accuracy")[0]
        panel.set_xticks(distances, distances)
        panel.set_xticks((), minor=True)
        panel.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _furthest(results, kind):
    return results.mean("accuracy", kind=kind, distance=max(settings["distance"] for settings, _, _ in results.rows))


def _texts(draw, count, distance):
    """Returns texts [count, 4 + distance + 1, 2], of a key and a value at each place, and the values asked for."""
    keys = np.argsort(draw.random((count, KEYS)), axis=1)[:, :PAIRS]
    values = draw.integers(0, VALUES, (count, PAIRS))
    asked = draw.integers(0, PAIRS, count)
    noise = np.stack([KEYS + draw.integers(0, NOISE, (count, distance)), np.full((count, distance), VALUES)], axis=-1)
    rows = np.arange(count)
    question = np.stack([keys[rows, asked], np.full(count, VALUES)], axis=-1)[:, None]
    return np.concatenate([np.stack([keys, values], axis=-1), noise, question], axis=1), values[rows, asked]


def _model(mixer):
    texts = keras.Input(shape=(None, 2), dtype="int32")
    hidden = keras.layers.Embedding(KEYS + NOISE, SIZE)(texts[..., 0]) + keras.layers.Embedding(VALUES + 1, SIZE)(
        texts[..., 1]
    )
    for _ in range(2):
        layer = mixer()
        normal = keras.layers.LayerNormalization()(hidden)
        attends = isinstance(layer, layers.BaseAttention)
        hidden = hidden + (layer(normal, normal, use_causal_mask=True) if attends else layer(normal))
        inner = keras.layers.Dense(2 * SIZE, activation="relu")(keras.layers.LayerNormalization()(hidden))
        hidden = hidden + keras.layers.Dense(SIZE)(inner)
    last = keras.layers.LayerNormalization()(hidden[:, -1])
    return keras.Model(texts, keras.layers.Dense(VALUES, activation="softmax")(last))


def _path_length(layer, distance):
    inputs = ops.zeros((1, 3, SIZE))
    layer(inputs, inputs) if isinstance(layer, layers.BaseAttention) else layer(inputs)
    return zoo.cost(layer, query_length=PAIRS + distance + 1).path_length


EXPERIMENT = Distance()
