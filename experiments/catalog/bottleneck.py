"""Measures the loss by a vector of fixed length on long sentences, also on longer ones than in training."""

import random
from pathlib import Path

from experiments.experiment import Claim, grid
from experiments.translation import TranslatorExperiment, qualities, tested, trained
from training.data import load_data

MODELS = ("rnn_encdec", "rnnsearch", "transformer_tiny")
JOINED = (1, 2, 3)
FIRSTS = range(1, 60, 5)
"""Smallest lengths of the buckets of five words."""
LETTERS = "abcdefghijklmnopqrst"
SIZES = {"train": 8000, "val": 200, "test": 400}


class Bottleneck(TranslatorExperiment):
    """Single test sentences, and two and three of them joined into one, by the number of words in the source.

    Without `--data`, the task is to copy rows of 3 to 15 letters.
    """

    name = "bottleneck"
    question = "how does quality fall with the length of the source?"
    source = "Bahdanau et al. 2015, figure 2: RNNenc falls beyond 20 words, RNNsearch hardly"
    refuted_by = "a model without attention whose quality falls no faster with length than that of one with attention"
    columns = {
        "bleu": ".2f",
        **{f"bleu_from_{first}": ".1f" for first in (1, 6, 11, 16, 21, 26, 31)},
        "exact_match": ".3f",
    }

    def cells(self, request):
        return grid(request.seeds, model=MODELS, joined=JOINED[:2] if request.quick else JOINED)

    def measure(self, cell, request):
        if not request.data:
            request = request.on(letters(request.workdir / "letters"))
        path = trained(cell.settings["model"], {}, cell, request)
        times = cell.settings["joined"]
        spec = None if times == 1 else joined(request.data, times, request.workdir / f"joined_{times}")
        return qualities(tested(path, spec))

    def claims(self):
        def lost(results, model):
            """Returns the share of BLEU that is lost by joining two sentences."""
            return 1 - results.mean("bleu", model=model, joined=2) / results.mean("bleu", model=model, joined=1)

        return [
            Claim(
                "of all three the model without attention has the lowest BLEU, of sentences alone and of two joined",
                lambda results: all(
                    results.mean("bleu", model="rnn_encdec", joined=times)
                    < min(results.mean("bleu", model=model, joined=times) for model in MODELS[1:])
                    for times in (1, 2)
                ),
            ),
            Claim(
                "joining two sentences costs the model without attention a larger share of its BLEU than `rnnsearch`",
                lambda results: lost(results, "rnn_encdec") > lost(results, "rnnsearch"),
                full_only=True,  # a quick training of the former has nothing to lose
            ),
            Claim(
                "so does it cost `transformer_tiny`, which was not trained on positions beyond those lengths",
                lambda results: lost(results, "transformer_tiny") > lost(results, "rnnsearch"),
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        panels = figure.subplots(1, 2, sharey=True)
        for model in MODELS:
            for panel, times in zip(panels, (1, 2), strict=True):
                buckets = {first: results.values(f"bleu_from_{first}", model=model, joined=times) for first in FIRSTS}
                means = {first + 2: sum(values) / len(values) for first, values in buckets.items() if values}
                panel.plot(list(means), list(means.values()), "o-", label=model)
        panels[0].set(title="test sentences", ylabel="BLEU", ylim=(0, None))
        panels[1].set(title="two joined to one")
        for panel in panels:
            panel.set(xlabel="words of the source")
        panels[0].legend()


def letters(folder: Path) -> str:
    """Writes data with rows of letters to copy, and returns their SPEC."""
    for number, (split, size) in enumerate(SIZES.items()):
        draw = random.Random(number)
        rows = [" ".join(draw.choices(LETTERS, k=draw.randint(3, 15))) for _ in range(size)]
        _write(folder, split, rows, rows)
    return f"text:{folder}:from-to"


def joined(spec: str, times: int, folder: Path) -> str:
    """Writes data whose test sentences are each `times` consecutive ones, joined, and returns their SPEC."""
    pairs = load_data(spec).split("test")
    columns = [
        [" ".join(side[index : index + times]) for index in range(0, len(side) - times + 1, times)]
        for side in (pairs.source, pairs.target)
    ]
    for split in ("train", "val", "test"):
        _write(folder, split, *columns)
    return f"text:{folder}:from-to"


def _write(folder, split, source, target):
    folder.mkdir(parents=True, exist_ok=True)
    for side, rows in (("from", source), ("to", target)):
        (folder / f"{split}.{side}").write_text("\n".join(rows) + "\n", encoding="utf-8")


EXPERIMENT = Bottleneck()
