"""Measures how far back different layers can retrieve an item, beside their path lengths."""

import keras
import numpy as np
from keras import ops

import zoo
from experiments.experiment import Claim, Experiment, grid
from zoo import layers

PAIRS = (1, 4)
KEYS, VALUES, NOISE = 8, 8, 16
SIZE = 32
BATCH = 32
WIDTH = 7
DISTANCES = (8, 32, 128, 512)
QUICK_DISTANCES = (8, 32)
STEPS = 1000
QUICK_STEPS = 300
MIXERS = {
    "attention": lambda: layers.MultiHeadAttention(num_heads=2, key_dim=SIZE // 2),
    "linear attention": lambda: layers.LinearAttention(num_heads=2, key_dim=SIZE // 2),
    "recurrence": lambda: keras.layers.GRU(SIZE, return_sequences=True),
    "convolution": lambda: keras.layers.Conv1D(SIZE, WIDTH, padding="causal", activation="relu"),
}


class Distance(Experiment):
    """One or four pairs of a key and a value, then noise, then one of the keys: which value belongs to it?

    Two layers of each kind with residual connections, of 32 features, that read from left to right. One model of each
    is trained on equal parts of all distances, the numbers of noise tokens, since near items help it to learn to
    find far ones. Chance is 1/8; a model that remembers the four values but not their keys reaches about 0.42.
    """

    name = "distance"
    question = "how far back does each kind of layer find one item?"
    source = "Vaswani et al. 2017, section 4 and table 1 (path lengths); Arora et al. 2023, multi-query recall"
    refuted_by = (
        "attention that forgets with distance; convolutions that find what is outside of the 13 positions that they "
        "cover; a recurrence that finds 512 steps back what it finds 8 steps back"
    )
    columns = {**{f"at_{distance}": ".3f" for distance in DISTANCES}, "path_length": ".0f"}
    default_seeds = 3

    def cells(self, request):
        return grid(request.seeds, pairs=PAIRS[-1:] if request.quick else PAIRS, kind=tuple(MIXERS))

    def measure(self, cell, request):
        keras.utils.set_random_seed(cell.seed)
        draw, pairs = np.random.default_rng(cell.seed), cell.settings["pairs"]
        distances = QUICK_DISTANCES if request.quick else DISTANCES
        steps = QUICK_STEPS if request.quick else STEPS
        mixer = MIXERS[cell.settings["kind"]]
        model = _model(mixer)
        rate = keras.optimizers.schedules.CosineDecay(5e-3, steps)
        model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
        for distance in draw.permutation(np.resize(distances, steps)):
            model.train_on_batch(*_texts(draw, BATCH, pairs, distance))
        accuracies = {
            f"at_{distance}": model.evaluate(
                *_texts(draw, 512, pairs, distance), batch_size=64, verbose=0, return_dict=True
            )["accuracy"]
            for distance in distances
        }
        return {**accuracies, "path_length": _path_length(mixer(), pairs + max(distances) + 1)}

    def claims(self):
        return [
            Claim(
                "attention finds the item at every distance: 95 % and more",
                lambda results: min(_accuracy(results, kind="attention")) > 0.95,
            ),
            Claim(
                "two convolutions of width 7 cover 13 positions: at chance (below 25 %) from distance 32 on",
                lambda results: max(_accuracy(results, beyond=13, kind="convolution")) < 0.25,
            ),
            Claim(
                "of four pairs, a recurrence finds at the largest distance 20 points less than attention",
                lambda results: (
                    _accuracy(results, pairs=4, kind="recurrence")[-1]
                    < _accuracy(results, pairs=4, kind="attention")[-1] - 0.2
                ),
            ),
            Claim(
                "a recurrence finds the only pair at the largest distance 20 points less often than at the smallest",
                lambda results: (
                    _accuracy(results, pairs=1, kind="recurrence")[-1]
                    < _accuracy(results, pairs=1, kind="recurrence")[0] - 0.2
                ),
                full_only=True,
            ),
            Claim(
                "linear attention, whose path is as short, is as good as attention, within 5 points",
                lambda results: (
                    min(_accuracy(results, kind="linear attention")) > min(_accuracy(results, kind="attention")) - 0.05
                ),
                strong=False,
            ),
        ]

    def draw(self, results, figure):
        measured_pairs = [pairs for pairs in PAIRS if results.known("path_length", pairs=pairs)]
        panels = figure.subplots(1, len(measured_pairs), sharey=True, squeeze=False)[0]
        for panel, pairs in zip(panels, measured_pairs, strict=True):
            for kind in MIXERS:
                measured = _distances(results, pairs=pairs, kind=kind)
                panel.plot(measured, _accuracy(results, pairs=pairs, kind=kind), "o-", label=kind)
            panel.axhline(1 / VALUES, color="gray", linestyle=":", label="chance")
            panel.set(title="one pair" if pairs == 1 else f"{pairs} pairs", xscale="log", xlabel="distance")
            panel.set(ylim=(0, 1.05))
            panel.set_xticks(DISTANCES, DISTANCES)
            panel.set_xticks((), minor=True)
        panels[0].set(ylabel="accuracy")
        panels[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))


def _distances(results, **settings):
    """Returns the distances at which cells with these settings were measured."""
    return [distance for distance in DISTANCES if results.known(f"at_{distance}", **settings)]


def _accuracy(results, beyond=0, **settings):
    """Returns the mean accuracy of the cells with these settings at each distance that is larger than `beyond`."""
    return [
        results.mean(f"at_{distance}", **settings) for distance in _distances(results, **settings) if distance > beyond
    ]


def _texts(draw, count, pairs, distance):
    """Returns texts [count, pairs + distance + 1, 2], of a key and a value at each position, and the correct values."""
    keys = np.argsort(draw.random((count, KEYS)), axis=1)[:, :pairs]
    values = draw.integers(0, VALUES, (count, pairs))
    target = draw.integers(0, pairs, count)
    noise = np.stack([KEYS + draw.integers(0, NOISE, (count, distance)), np.full((count, distance), VALUES)], axis=-1)
    rows = np.arange(count)
    question = np.stack([keys[rows, target], np.full(count, VALUES)], axis=-1)[:, None]
    return np.concatenate([np.stack([keys, values], axis=-1), noise, question], axis=1), values[rows, target]


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


def _path_length(layer, length):
    inputs = ops.zeros((1, 3, SIZE))
    layer(inputs, inputs) if isinstance(layer, layers.BaseAttention) else layer(inputs)
    return zoo.cost(layer, query_length=length).path_length


EXPERIMENT = Distance()
