"""Compares kinds of positions in a language model, also on longer texts than in training."""

import keras
import numpy as np

import zoo
from experiments.experiment import Claim, Experiment, grid

KINDS = ("none", "sinusoidal", "learned", "concat", "learned_concat", "rotary", "alibi", "relative", "t5")
TOKENS = 12
PERIODS = (5, 6, 7, 8, 9)
LENGTH = 32
TIMES = (1, 2, 4)
BATCH = 32


class Positions(Experiment):
    """Random rows of 5 to 9 tokens that repeat; a `causal_lm_tiny` of two layers of 64 features predicts the next one.

    Trained on 32 tokens; accuracy is that over the second half of texts of 32, 64 and 128 tokens.
    """

    name = "positions"
    question = "which positions teach a model order, and which of them generalise beyond the trained lengths?"
    source = "Vaswani et al. 2017, table 3 E; Press et al. 2022, figure 1; Shaw et al. 2018, table 1"
    refuted_by = (
        "no positions that teach as much as any others; absolute positions that lose nothing at four times the length"
    )
    columns = {"accuracy_1": ".3f", "accuracy_2": ".3f", "accuracy_4": ".3f", "weights": ",.0f"}
    default_seeds = 3

    def cells(self, request):
        return grid(request.seeds, positions=("none", "learned", "rotary", "relative") if request.quick else KINDS)

    def measure(self, cell, request):
        keras.utils.set_random_seed(cell.seed)
        draw, steps = np.random.default_rng(cell.seed), 400 if request.quick else 800
        model = zoo.create_model(
            "causal_lm_tiny",
            vocab_size=TOKENS,
            max_length=LENGTH * TIMES[-1],
            num_layers=2,
            model_dim=64,
            intermediate_dim=128,
            positions=cell.settings["positions"],
        )
        model.compile(
            keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(3e-3, steps)),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        texts = _texts(draw, BATCH * steps, LENGTH + 1)
        model.fit({"tokens": texts[:, :-1]}, texts[:, 1:], batch_size=BATCH, verbose=0)
        accuracies = {f"accuracy_{times}": _accuracy(model, draw, times * LENGTH) for times in TIMES}
        return {**accuracies, "weights": model.count_params()}

    def claims(self):
        def lost(results, kind):
            """Returns the share of accuracy that is lost at four times the length."""
            return 1 - results.mean("accuracy_4", positions=kind) / results.mean("accuracy_1", positions=kind)

        return [
            Claim(
                "Shaw's relative positions teach more than none, at the trained length",
                lambda results: (
                    results.mean("accuracy_1", positions="relative") > results.mean("accuracy_1", positions="none")
                ),
            ),
            Claim(
                "learned positions lose a larger share of their accuracy at four times the length than Shaw's",
                lambda results: lost(results, "learned") > lost(results, "relative"),
            ),
            Claim(
                "sinusoids, too, lose a larger share than ALiBi, Shaw and T5",
                lambda results: all(
                    lost(results, "sinusoidal") > lost(results, kind) for kind in ("alibi", "relative", "t5")
                ),
                full_only=True,
            ),
            Claim(
                "added sinusoids and learned positions are as good at the trained length, within 3 points",
                lambda results: (
                    abs(
                        results.mean("accuracy_1", positions="sinusoidal")
                        - results.mean("accuracy_1", positions="learned")
                    )
                    < 0.03
                ),
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        panel = figure.subplots()
        kinds = [settings["positions"] for settings, _ in results.groups()]
        for number, times in enumerate(TIMES):
            columns = [column + 0.27 * (number - 1) for column in range(len(kinds))]
            values = [results.mean(f"accuracy_{times}", positions=kind) for kind in kinds]
            label = f"{times * LENGTH} tokens" + (", as in training" if times == 1 else "")
            panel.bar(columns, values, width=0.25, label=label)
        panel.axhline(1 / TOKENS, color="gray", linestyle=":", label="chance")
        panel.set_xticks(range(len(kinds)), kinds)
        panel.set(ylabel="accuracy", ylim=(0, 1.05))
        panel.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _texts(draw, count, length):
    """Returns texts [count, length] that repeat, with a random period each; 0 is padding and does not occur."""
    period = draw.choice(PERIODS, (count, 1))
    row = draw.integers(1, TOKENS, (count, max(PERIODS)))
    return np.take_along_axis(row, np.arange(length)[None] % period, axis=1).astype("int32")


def _accuracy(model, draw, length):
    texts = _texts(draw, 128, length + 1)
    answers = np.argmax(model.predict({"tokens": texts[:, :-1]}, batch_size=32, verbose=0), axis=-1)
    return np.mean((answers == texts[:, 1:])[:, length // 2 :])


EXPERIMENT = Positions()
