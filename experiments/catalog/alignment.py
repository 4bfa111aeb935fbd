"""Measures the share of attention on the aligned tokens, on dates, whose alignment is known."""

import re

import keras
import numpy as np

import zoo
from experiments.dates import trained
from experiments.experiment import Cell, Claim, Experiment, grid
from training.data import load_data
from zoo.vocabulary import START, pad

SCORES = ("additive", "dot", "general", "scaled_dot", "cosine")
TEXTS = 200
YEAR, DAY = slice(0, 4), slice(8, 10)
"""Positions in a date in ISO 8601."""


class Alignment(Experiment):
    """Test dates with the month in letters, so that their only numbers are the year, of four digits, and the day.

    A digit of the year is aligned to the same digit of the source, one of the day to the digits of the day. Attention
    is that of the row that predicts the token of the reference. A Transformer has two layers of four heads.
    """

    name = "alignment"
    question = "does attention look at what a token is translated from?"
    source = "Bahdanau et al. 2015, figure 3; Luong et al. 2015, section 5.4 (alignment quality)"
    refuted_by = "attention that is spread as evenly as chance in a model whose outputs are right"
    columns = {"year": ".2f", "day": ".2f", "best_head_year": ".2f", "chance": ".2f", "right": ".3f"}
    default_seeds = 3

    def cells(self, request):
        return [
            *grid(request.seeds, model=("rnnsearch",), score=SCORES[:1] if request.quick else SCORES),
            *grid(request.seeds, model=() if request.quick else ("luong_general", "luong_dot", "luong_local_p")),
            *grid(request.seeds, model=("transformer_tiny",), layer=(1, 2)),
        ]

    def measure(self, cell, request):
        options = {"score": cell.settings["score"]} if "score" in cell.settings else {}
        words = {name: value for name, value in cell.settings.items() if name != "layer"}  # layers share a training
        run = zoo.load(trained(cell.settings["model"], options, Cell(words, cell.seed), request, self.name))
        return _shares(run, cell.settings.get("layer", 1) - 1)

    def claims(self):
        return [
            Claim(
                "`rnnsearch` with the additive score gives the digits of the year five times what chance gives them",
                lambda results: (
                    results.mean("year", model="rnnsearch", score="additive")
                    > 5 * results.mean("chance", model="rnnsearch", score="additive")
                ),
                strong=False,
            ),
            Claim(
                "the heads of a Transformer, on average, look less at the right digit than `rnnsearch` does",
                lambda results: (
                    max(results.mean("year", model="transformer_tiny", layer=layer) for layer in (1, 2))
                    < results.mean("year", model="rnnsearch", score="additive")
                ),
                strong=False,
            ),
            Claim(
                "but its best head does so more than its mean head, by 10 points",
                lambda results: (
                    max(
                        results.mean("best_head_year", model="transformer_tiny", layer=layer)
                        - results.mean("year", model="transformer_tiny", layer=layer)
                        for layer in (1, 2)
                    )
                    > 0.1
                ),
                strong=False,
            ),
        ]

    def draw(self, results, figure):
        panel = figure.subplots()
        groups = results.groups()
        labels = [" ".join(str(value) for value in settings.values()) for settings, _ in groups]
        for row, (settings, _) in enumerate(groups):
            for shift, metric, color in ((-0.2, "year", "C0"), (0.2, "day", "C1")):
                panel.barh(row + shift, results.mean(metric, **settings), height=0.38, color=color)
            panel.plot(results.mean("best_head_year", **settings), row - 0.2, "k|", markersize=10)
        panel.barh(0, 0, color="C0", label="year: the same digit")
        panel.barh(0, 0, color="C1", label="day: its digits")
        panel.plot([], [], "k|", label="best head, year")
        panel.axvline(results.mean("chance"), color="gray", linestyle=":", label="chance, a digit of the year")
        panel.set_yticks(range(len(groups)), [f"{label} (layer)" if label[-1].isdigit() else label for label in labels])
        panel.invert_yaxis()
        panel.set(xlabel="share of attention", xlim=(0, 1))
        panel.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)


def _shares(run, layer):
    """Returns the mean share of attention on the aligned tokens in one layer; of all heads, and of the best one."""
    pairs = load_data("dates").split("test")
    examples = [
        (text, iso, spans)
        for text, iso in zip(pairs.source, pairs.target, strict=True)
        if (spans := _places(text, iso)) is not None
    ][:TEXTS]
    texts, answers = [text for text, _, _ in examples], [iso for _, iso, _ in examples]
    sources = run.source_ids(texts)
    inputs = pad([[START, *row] for row in run.tokenizers.target.encode(answers)])
    attention = keras.ops.convert_to_numpy(run.model.attention(pad(sources), inputs))[:, layer]  # [B, heads, T, S]
    year, day = [], []
    for weights, (_, _, (first, days)) in zip(attention, examples, strict=True):
        year.append(np.mean([weights[:, digit, first + digit] for digit in range(4)], axis=0))
        day.append(weights[:, DAY, days].sum(axis=-1).mean(axis=-1))
    return {
        "year": np.mean(year),
        "day": np.mean(day),
        "best_head_year": np.mean(year, axis=0).max(),
        "chance": np.mean([1 / len(source) for source in sources]),
        "right": np.mean([answer == iso for answer, iso in zip(run.translate(texts), answers, strict=True)]),
    }


def _places(text, iso):
    """Returns the start of the year in a text, and the slice of the day; `None` if they are ambiguous."""
    numbers = list(re.finditer(r"[0-9]+", text))
    years = [number for number in numbers if number.group() == iso[YEAR]]
    days = [number for number in numbers if len(number.group()) < 3 and int(number.group()) == int(iso[DAY])]
    if len(numbers) != 2 or len(years) != 1 or len(days) != 1:
        return None
    return years[0].start(), slice(*days[0].span())


EXPERIMENT = Alignment()
