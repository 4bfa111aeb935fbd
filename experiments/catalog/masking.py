"""Trains a decoder without the causal mask, and measures the effect of padding without its mask."""

import keras
import numpy as np
from keras import ops

from experiments.experiment import Claim, Experiment, grid
from zoo import layers

BASE = 10
LENGTH = 12
TEXTS = 2048
SIZE = 32


class Masking(Experiment):
    """Counting modulo ten from a first number by a step: 3 5 7 9 1 …; the first two numbers determine all the others.

    A decoder of two blocks learns the next number with teacher forcing, with the causal mask and without it, and then
    continues two numbers by itself. Padding: the same text alone, and beside a longer one.
    """

    name = "masking"
    question = "what does a decoder learn without the causal mask, and what does padding change?"
    source = "Vaswani et al. 2017, section 3.1: masking, so that predictions depend on the known outputs alone"
    refuted_by = (
        "a decoder without the mask that generates as well as one with it; another text in the batch that changes an "
        "output"
    )
    columns = {"training_loss": ".4f", "generated_right": ".3f", "change": ".1e"}
    default_seeds = 5

    def cells(self, request):
        return [
            *grid(request.seeds, causal=("with the mask", "without")),
            *grid(request.seeds, padding=("with the mask", "without")),
        ]

    def measure(self, cell, request):
        keras.utils.set_random_seed(cell.seed)
        if "padding" in cell.settings:
            return {"change": _change_by_a_batch_mate(cell.settings["padding"] == "with the mask")}
        model = _decoder(cell.settings["causal"] == "with the mask")
        texts = _texts(np.random.default_rng(cell.seed), TEXTS)
        model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        history = model.fit(
            texts[:, :-1], texts[:, 1:], batch_size=64, epochs=14 if request.quick else 20, verbose=0, shuffle=True
        )
        target = _texts(np.random.default_rng(1000 + cell.seed), 200)
        rows = target.copy()
        rows[:, 2:] = 0  # unknown, as in generation
        for position in range(2, LENGTH):
            rows[:, position] = np.argmax(model.predict_on_batch(rows[:, :-1])[:, position - 1], axis=-1)
        return {"training_loss": history.history["loss"][-1], "generated_right": np.mean(rows[:, 2:] == target[:, 2:])}

    def claims(self):
        def mean(results, metric, kind, which):
            return results.mean(metric, **{kind: which})

        return [
            Claim(
                "without the causal mask the training loss is lower: every number to predict is in the input",
                lambda results: (
                    mean(results, "training_loss", "causal", "without")
                    < mean(results, "training_loss", "causal", "with the mask")
                ),
            ),
            Claim(
                "what it generates is useless: fewer than 40 % of the numbers are right, with the mask more than 90 %",
                lambda results: (
                    mean(results, "generated_right", "causal", "without")
                    < 0.4
                    < 0.9
                    < mean(results, "generated_right", "causal", "with the mask")
                ),
            ),
            Claim(
                "with the padding mask another text in the batch changes nothing (1e-6), without it the output (more "
                "than 1e-3)",
                lambda results: (
                    max(results.values("change", padding="with the mask"))
                    < 1e-6
                    < 1e-3
                    < min(results.values("change", padding="without"))
                ),
            ),
        ]

    def draw(self, results, figure):
        panels = figure.subplots(1, 3)
        names = ("with the mask", "without")
        for panel, (metric, kind, title) in zip(
            panels,
            (
                ("training_loss", "causal", "training loss"),
                ("generated_right", "causal", "generated numbers that are right"),
                ("change", "padding", "change by another text"),
            ),
            strict=True,
        ):
            panel.bar(names, [results.mean(metric, **{kind: name}) for name in names], color=["C0", "C1"], width=0.6)
            for column, name in enumerate(names):
                values = results.values(metric, **{kind: name})
                panel.plot([column] * len(values), values, "k.", alpha=0.5)
            panel.set(title=title)
        panels[2].set(yscale="symlog")
        panels[2].set_yscale("symlog", linthresh=1e-7)


def _texts(draw, count):
    first, step = draw.integers(0, BASE, (2, count, 1))
    return ((first + step * np.arange(LENGTH)) % BASE).astype("int32")


def _decoder(causal):
    tokens = keras.Input(shape=(None,), dtype="int32")
    hidden = layers.SinusoidalPositions()(keras.layers.Embedding(BASE, SIZE)(tokens))
    for _ in range(2):
        attention = layers.MultiHeadAttention(num_heads=2, key_dim=SIZE // 2)
        block = layers.TransformerEncoderBlock(attention, layers.FeedForward(2 * SIZE), normalize_first=True)
        hidden = block(hidden, use_causal_mask=causal)
    return keras.Model(tokens, keras.layers.Dense(BASE)(hidden))


def _change_by_a_batch_mate(masked):
    """Returns the largest change of a text's vectors when it is padded to the length of a longer one."""
    alone = np.random.normal(size=(1, 5, SIZE)).astype("float32")
    padded = np.concatenate([alone, np.random.normal(size=(1, 4, SIZE)).astype("float32")], axis=1)
    layer = layers.TransformerEncoderBlock(layers.MultiHeadAttention(2, SIZE // 2), layers.FeedForward(2 * SIZE))
    mask = np.arange(9)[None] < 5
    changed = layer(padded, mask=mask) if masked else layer(padded)
    return np.abs(ops.convert_to_numpy(changed)[:, :5] - ops.convert_to_numpy(layer(alone))).max()


EXPERIMENT = Masking()
