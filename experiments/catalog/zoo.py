"""Compares all models that translate, and all variants of `transformer_tiny`, at one budget."""

import itertools
import math

from experiments.experiment import Claim, grid
from experiments.translation import LABELS, TranslatorExperiment, metrics

MODELS = (
    "transformer_tiny",
    "transformer_tiny_unscaled",
    "rnnsearch",
    "transformer_tiny_additive",
    "transformer_tiny_single_head",
    "rnn_encdec",
    "transformer_tiny_cosine",
    "transformer_tiny_concat_positions",
    "transformer_tiny_rotary",
    "transformer_tiny_alibi",
    "transformer_tiny_learned_positions",
    "transformer_tiny_relative",
    "luong_general",
    "transformer_tiny_linear",
    "transformer_tiny_local",
    "transformer_tiny_grouped_query",
    "transformer_modern",
    "convs2s_small",
    "dynamic_conv_nmt",
    "student_tiny",
    "luong_dot",
    "luong_concat",
    "luong_local_p",
    "luong_local_m",
    "luong_location",
    "pointer_generator",
)
QUICK = ("transformer_tiny", "rnnsearch", "rnn_encdec")


class Zoo(TranslatorExperiment):
    """One budget: steps, tokens in a batch, peak rate and, within a tenth, weights; see `experiments.translation`.

    `transformer_small`, `transformer_base` and `transformer_big` are left out: of this size they are the tiny one.
    """

    name = "zoo"
    question = "what does each model reach at one budget, and what does it cost?"
    source = "Bahdanau et al. 2015, table 1; Luong et al. 2015, table 4; Vaswani et al. 2017, table 3"
    refuted_by = "a model without attention that is as good as those with it; a variant that beats the original clearly"
    columns = {
        "bleu": ".2f",
        "cross_entropy": ".3f",
        "weights": ",.0f",
        "multiplications": ",.0f",
        "symbols_per_second": ",.0f",
        "megabytes": ",.0f",
        "test_seconds": ".0f",
        "exact_match": ".3f",
        "bleu_from_1": ".1f",
        "bleu_from_6": ".1f",
        "bleu_from_11": ".1f",
        "bleu_from_16": ".1f",
        "bleu_from_21": ".1f",
    }

    def cells(self, request):
        return grid(request.seeds, model=QUICK if request.quick else MODELS)

    def measure(self, cell, request):
        return metrics(cell.settings["model"], {}, cell, request)

    def claims(self):
        return [
            Claim(
                "without attention (`rnn_encdec`) BLEU is lower than with it, in `rnnsearch` and in `transformer_tiny`",
                lambda results: (
                    results.mean("bleu", model="rnn_encdec")
                    < min(results.mean("bleu", model=model) for model in ("rnnsearch", "transformer_tiny"))
                ),
            ),
            Claim(
                "no variant of `transformer_tiny` has 2 BLEU more than it",
                lambda results: (
                    max(results.mean("bleu", model=model) for model in MODELS if model.startswith("transformer_tiny_"))
                    < results.mean("bleu", model="transformer_tiny") + 2
                ),
                full_only=True,
            ),
            Claim(
                "a token costs recurrent models more time in training than `transformer_tiny`, though they multiply "
                "less",
                lambda results: all(
                    results.mean("symbols_per_second", model=model)
                    < results.mean("symbols_per_second", model="transformer_tiny")
                    and results.mean("multiplications", model=model)
                    < results.mean("multiplications", model="transformer_tiny")
                    for model in ("rnnsearch", "rnn_encdec")
                ),
                strong=False,
            ),
        ]

    def draw(self, results, figure):
        panel = figure.subplots()
        quality = "bleu" if max(results.values("bleu"), default=0) > 0 else "exact_match"
        points = {
            settings["model"]: (results.mean("symbols_per_second", **settings), results.mean(quality, **settings))
            for settings, _ in results.groups()
        }
        for model, point in points.items():
            panel.plot(*point, "o" if model.startswith("transformer") else "s", color="C0")
        best = [point for point in points.values() if not any(_beats(other, point) for other in points.values())]
        panel.plot(*zip(*sorted(best), strict=True), ":", color="C1", label="not beaten in both")
        panel.set(xlabel="tokens trained on in a second of processor time", ylabel=LABELS[quality])
        panel.set_title("…: transformer_tiny_", loc="left", size=9)
        panel.legend(loc="lower right")
        _write_names(panel, {model.replace("transformer_tiny_", "… "): point for model, point in points.items()})


def _write_names(panel, points):
    """Writes names beside points, at the nearest positions where they cover neither other names nor points."""
    panel.margins(0.12, 0.12)
    panel.figure.draw_without_rendering()  # fixes the positions of the points
    size, height, gap, scale = 7, 8, 5, 72 / panel.figure.dpi
    finite = {name: place for name, place in points.items() if not math.isnan(place[0])}
    positions = {name: panel.transData.transform(place) * scale for name, place in finite.items()}
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in positions.values()]
    ways = sorted(
        itertools.product((False, True), (height / 2 * step for step in range(-24, 25))),
        key=lambda way: (abs(way[1]), way[0]),
    )
    for name, (x, y) in sorted(positions.items(), key=lambda item: -item[1][1]):
        width = 0.6 * size * len(name)
        for is_left, shift in ways:
            left, low = x - gap - width if is_left else x + gap, y + shift - height / 2
            box = (left, low, left + width, low + height)
            if all(box[0] >= b[2] or b[0] >= box[2] or box[1] >= b[3] or b[1] >= box[3] for b in taken):
                break
        taken.append(box)
        panel.annotate(
            name,
            finite[name],
            xytext=(-gap if is_left else gap, shift),
            textcoords="offset points",
            ha="right" if is_left else "left",
            va="center",
            size=size,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "gray"} if abs(shift) > height / 2 else None,
        )


def _beats(other, point):
    return other != point and all(theirs >= own for theirs, own in zip(other, point, strict=True))


EXPERIMENT = Zoo()
