"""Compares the vectors of a word in two senses, before and after one layer of self-attention."""

import numpy as np

import zoo
from experiments.experiment import Claim, Experiment, grid
from experiments.runs import final_metrics, train_run

PRESET = "preset:senses_self_attention_classifier"
TEXTS = {
    "fruit": (
        "I ate a juicy apple after lunch.",
        "She peeled the ripe apple with a knife.",
        "He baked a cake with a sweet apple.",
        "The apple fell from the tree in the garden.",
        "My grandmother picked a red apple in the orchard.",
        "They drank fresh apple juice at breakfast.",
    ),
    "company": (
        "I updated my Apple phone to the latest version.",
        "Apple released a new laptop this week.",
        "She bought shares of Apple on the stock market.",
        "The engineer works for Apple as a programmer.",
        "Apple sold more phones than last year.",
        "He installed the software on his Apple computer.",
    ),
}


class Context(Experiment):
    """The vectors of "apple" in sentences written by hand; the model is the preset, which was not trained on them.

    Accuracy with and without order: `senses:twins`, pairs of sentences of the same words in two orders.
    """

    name = "context"
    question = "does a word's vector reveal its sense after one layer of self-attention?"
    source = "probing of contextual vectors, such as Ethayarajh 2019, and the two apples of every course"
    refuted_by = "vectors of one sense that are no more alike than those of two; order that changes no answer"
    columns = {"same_sense": ".2f", "other_sense": ".2f", "right_neighbours": ".2f", "accuracy": ".3f"}

    def cells(self, request):
        probes = grid(1, vectors=("static", "contextual"))
        return probes if request.quick else [*probes, *grid(request.seeds, positions=("none", "relative"))]

    def measure(self, cell, request):
        if "positions" in cell.settings:
            settings = {"model.positions": cell.settings["positions"], "training.max_steps": 2000}
            path = train_run("self_attention_classifier", "senses:twins", settings, cell, request, self.name)
            return {"accuracy": final_metrics(path)["accuracy"]}
        vectors = _apples(cell.settings["vectors"] == "contextual")
        cosines = vectors @ vectors.T
        senses = np.repeat(list(TEXTS), [len(texts) for texts in TEXTS.values()])
        same = senses[:, None] == senses[None]
        np.fill_diagonal(cosines, -2)
        nearest = senses[cosines.argmax(axis=1)] == senses
        pairs = ~np.eye(len(senses), dtype=bool)
        return {
            "same_sense": np.median(cosines[same & pairs]),
            "other_sense": np.median(cosines[~same]),
            "right_neighbours": np.mean(nearest),
        }

    def claims(self):
        return [
            Claim(
                "before the layer all vectors of the word are one and the same: every cosine is 1",
                lambda results: results.mean("other_sense", vectors="static") > 0.9999,
            ),
            Claim(
                "after it the median cosine of one sense is higher than that of two senses, by 0.2 at least",
                lambda results: (
                    results.mean("same_sense", vectors="contextual")
                    > 0.2 + results.mean("other_sense", vectors="contextual")
                ),
            ),
            Claim(
                "the nearest vector of the word is one of the same sense in 80 % of the sentences or more",
                lambda results: results.mean("right_neighbours", vectors="contextual") >= 0.8,
                strong=False,
            ),
            Claim(
                "without positions half of the twins are answered right (0.5 ± 0.03), with Shaw's 95 % and more",
                lambda results: (
                    abs(results.mean("accuracy", positions="none") - 0.5) < 0.03
                    and results.mean("accuracy", positions="relative") > 0.95
                ),
                full_only=True,
            ),
        ]

    def draw(self, results, figure):
        left, right = figure.subplots(1, 2)
        vectors = _apples(True)
        centred = vectors - vectors.mean(axis=0)
        points = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
        begin = 0
        for sense, texts in TEXTS.items():
            left.scatter(*points[begin : begin + len(texts)].T, label=f"apple, the {sense}")
            begin += len(texts)
        left.set(title='"apple" in twelve sentences (two principal components)')
        left.legend()
        text = TEXTS["fruit"][0]
        ((tokens, weights),) = zoo.load(PRESET).attention([text])
        row = weights[0, 0, tokens.index("▁apple")]
        right.barh(range(len(tokens)), row)
        right.set_yticks(range(len(tokens)), [token.replace("▁", "") for token in tokens])
        right.invert_yaxis()
        right.set(title='what "apple" looks at', xlabel="weight")


def _apples(contextual):
    """Returns the unit vectors of "apple" in all texts, [12, D]; those of the embedding table if not `contextual`."""
    texts = [text for texts_of_sense in TEXTS.values() for text in texts_of_sense]
    run = zoo.load(PRESET)
    if contextual:
        vectors = run.compare("apple", texts).vectors
    else:
        vectors = np.stack([rows[tokens.index("▁apple")] for tokens, rows in run.embed(texts, contextual=False)])
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


EXPERIMENT = Context()
