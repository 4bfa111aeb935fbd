"""Measures the growth of the cost of each attention layer with the length: slopes beside theory, and a plot.

`python -m benchmarks.growth [--layer NAME …] [--length T …] [--rounds N] [--processor] [--plot FILE]`

The number of features is small, so that the cost that grows with T dominates the cost of each position; the number of
rows is large enough for the work to dominate the start of the operations.
"""

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.attention import HEADS, keras_layer, sizes
from benchmarks.runner.case import Case
from benchmarks.runner.command import MeasurementParser, Report, load_or_measure_case
from benchmarks.runner.process import ROOT
from benchmarks.runner.report import median_of, table

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
TOLERANCE = 0.15
FROM_LENGTH = 1024
PLOT = ROOT / "benchmarks" / "growth.png"
IN_THEORY = ("multiplications", "steps in sequence", "longest path")


class Layer(NamedTuple):
    """A layer whose cost is measured; n is the length, d the number of features."""

    name: str  # its class in `zoo.layers`, or its path
    options: Mapping[str, Any]  # its options; see `benchmarks.peers.keras.make_layer`
    exponent: int  # the power of the length with which its cost grows in theory
    batch: int  # B
    multiplications: str  # those that grow fastest with the length, of one row
    steps: str = "1"  # the number of sequential steps
    longest_path: str = "1"  # steps between the two positions that are farthest apart
    note: str = ""  # distinguishes it from others of its class
    heads: int = 4


_UNITS = {"units": 16}  # the cost of additive scores for each pair
_LOCAL = {"window": "window"}
_BAND = ("n·w·d", "1", "n/w")  # w: the window, or the block
LAYERS = {
    "additive": Layer("AdditiveAttention", _UNITS, 2, 1, "n²·(u + d)"),  # u: units
    "concat": Layer("ConcatAttention", _UNITS, 2, 1, "n²·(u + d)"),
    "dot": Layer("DotAttention", {}, 2, 4, "n²·d"),
    "general": Layer("GeneralAttention", {}, 2, 4, "n²·d"),
    "cosine": Layer("CosineAttention", {}, 2, 4, "n²·d"),
    "scaled_dot": Layer("ScaledDotProductAttention", {}, 2, 4, "n²·d"),
    "multi_head": Layer("MultiHeadAttention", HEADS, 2, 1, "n²·d"),
    "grouped_query": Layer("GroupedQueryAttention", {**HEADS, "num_key_value_heads": 2}, 2, 1, "n²·d"),
    # The paper's cost is that of the window alone; here weights have the full length, which the contract requires.
    "local_m": Layer("LocalAttention", {**_LOCAL, "alignment": "monotonic"}, 2, 4, "n²·d", note="local_m"),
    "local_p": Layer("LocalAttention", {**_LOCAL, "alignment": "predictive"}, 2, 4, "n²·d", note="local_p"),
    "sliding_window": Layer("SlidingWindowAttention", {**HEADS, **_LOCAL}, 1, 16, *_BAND),
    "block_local": Layer("BlockLocalAttention", {**HEADS, "block_size": "window"}, 1, 16, *_BAND),
    "linear": Layer("LinearAttention", HEADS, 1, 16, "n·d²/h"),  # h: heads
    "performer": Layer("PerformerAttention", HEADS, 1, 16, "n·m·d"),  # m: random features of a head
    # n/c: products within chunks of c positions, one chunk after another.
    "gated_linear": Layer("GatedLinearAttention", HEADS, 1, 16, "n·d²/h", "n/c", "n/c"),
    "delta_rule": Layer("DeltaRuleAttention", HEADS, 1, 16, "n·d²/h", "n/c", "n/c"),
    "average": Layer("AverageAttention", {}, 1, 16, "n·d²"),
    "latent": Layer("MultiHeadLatentAttention", {**HEADS, "latent_dim": 32, "rope_dim": 4}, 2, 1, "n²·d"),
    "talking_heads": Layer("TalkingHeadsAttention", HEADS, 2, 1, "n²·(d + h²)"),
    "differential": Layer("DifferentialAttention", HEADS, 2, 1, "n²·d"),
    "pooling": Layer(
        "AttentionPooling", {"attention": {"class": "zoo.layers.AdditiveAttention", **_UNITS}}, 1, 64, "n·(u + d)"
    ),
    # Alternatives to attention (Vaswani et al. 2017, table 1); k: the width.
    "recurrence": Layer("keras.layers.GRU", {"units": "dim", "return_sequences": True}, 1, 1, "n·d²", "n", "n"),
    "convolution": Layer(
        "keras.layers.Conv1D", {"filters": "dim", "kernel_size": 3, "padding": "same"}, 1, 16, "k·n·d²", "1", "n/k"
    ),
    # Pairs of layers that are compared have the same batch and size.
    "additive_wide": Layer("AdditiveAttention", {"units": "dim"}, 2, 1, "n²·(u + d)", note="u = d"),
    "dot_wide": Layer("DotAttention", {}, 2, 1, "n²·d", note="d alone"),
    "one_head": Layer("MultiHeadAttention", HEADS, 2, 1, "n²·d", note="1 head", heads=1),
    "eight_heads": Layer("MultiHeadAttention", HEADS, 2, 1, "n²·d", note="8 heads, one matrix", heads=8),
    "eight_layers": Layer(
        "benchmarks.peers.keras.SeparateHeads", HEADS, 2, 1, "n²·d", note="8 layers of a head", heads=8
    ),
}


def _case(name: str, layer: Layer) -> Case:
    title = f"{layer.name} ({layer.note})" if layer.note else layer.name
    contestants = [
        keras_layer(
            layer.name if "." in layer.name else f"zoo.layers.{layer.name}",
            layer.options,
            sizes(layer.batch, length, dim=64, heads=layer.heads, window=64),
            name=f"{title}, T={length}",
        )
        for length in LENGTHS
    ]
    return Case(name, f"{title}, B{layer.batch}", tuple(contestants), tiny={"tiny": True})


CASES = {name: _case(name, layer) for name, layer in LAYERS.items()}


def _of_lengths(case: Case, lengths: Sequence[int]) -> Case:
    """Returns the case with some of its lengths alone."""
    chosen = (contestant for contestant in case.contestants if contestant.work["length"] in lengths)
    return dataclasses.replace(case, contestants=tuple(chosen))


def medians_by_length(case: Case, measurements: Mapping[str, Any], kind: str = "seconds") -> dict[int, float]:
    """Returns the median time of a layer by length, by the clock (`"seconds"`) or of the `"processor"`."""
    results = measurements["results"]
    medians = {who.work["length"]: median_of(results.get(who.label, {}), kind) for who in case.contestants}
    return {length: median for length, median in medians.items() if median is not None}


def slope(medians: Mapping[int, float]) -> float:
    """Returns the slope of log time against log T by least squares.

    Lengths below `FROM_LENGTH` are left out, since the start of the operations dominates their time.
    """
    lengths = [length for length in medians if length >= FROM_LENGTH]
    if len(lengths) < 2:
        return math.nan
    return float(np.polyfit(np.log(lengths), np.log([medians[length] for length in lengths]), 1)[0])


def row(case: Case, measurements: Mapping[str, Any], kind: str = "seconds") -> list[str]:
    """Returns a layer's row of the table."""
    medians, layer = medians_by_length(case, measurements, kind), LAYERS[case.name]
    times = [f"{1000 * medians[length]:,.1f}" if length in medians else "–" for length in LENGTHS]
    value = slope(medians)
    if math.isnan(value):
        reasons = [
            result["failed"].replace("|", "/") for result in measurements["results"].values() if "failed" in result
        ]
        text, verdict = f"not measured: {reasons[0]}" if reasons else "not yet measured", ""
    else:
        text, verdict = f"{value:.2f}", "met" if abs(value - layer.exponent) <= TOLERANCE else "missed"
    if len(case.contestants) < len(LENGTHS):  # too few for a verdict
        verdict = ""
    in_theory = [layer.multiplications, layer.steps, layer.longest_path]
    return [case.title, *in_theory, *times, text, f"{layer.exponent} ± {TOLERANCE}", verdict]


def plot(medians: Mapping[str, Mapping[int, float]], file: Path) -> None:
    """Draws the time of each layer against the length, both logarithmic, with the two slopes of theory."""
    figure, axes = plt.subplots(figsize=(9, 6), layout="constrained")
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="T = S, positions", ylabel="forward and backward, ms")
    for number, (name, by_length) in enumerate(medians.items()):
        if by_length:
            style = {"linestyle": "--" if LAYERS[name].exponent == 1 else "-", "marker": "osv^<>Dp*hXd"[number % 12]}
            milliseconds = [1000 * value for value in by_length.values()]
            axes.plot(list(by_length), milliseconds, **style, label=CASES[name].title)
    low, high = axes.get_ylim()
    for exponent, name in ((1, "∝ T"), (2, "∝ T²")):
        line = [2 * low * (length / LENGTHS[0]) ** exponent for length in LENGTHS]
        axes.plot(LENGTHS, line, ":", color="gray")
        axes.annotate(name, (LENGTHS[2], line[2]), color="gray")
    axes.set_ylim(low, high)
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("growth", __doc__, rounds=5)
    parser.add_argument("--plot", type=Path, default=PLOT, help="file of the plot (benchmarks/growth.png)")
    parser.add_argument(
        "--processor",
        action="store_true",
        help="time of all processor cores instead of the clock's, which includes other work on the machine",
    )
    parser.add_cases(CASES, "layer")
    parser.add_argument(
        "--length", type=int, action="append", choices=LENGTHS, help="a length, more than once for several (all)"
    )
    options = parser.parse_args(arguments)
    kind = "processor" if options.processor else "seconds"
    names, rows, medians, places = options.layer or list(CASES), [], {}, {}
    for name in names:
        case = _of_lengths(CASES[name], options.length or LENGTHS)
        measurements = load_or_measure_case("growth", case, options, rounds=options.rounds)
        rows.append(row(case, measurements, kind))
        medians[name] = medians_by_length(case, measurements, kind)
        places[measurements["where"]] = None
    report = Report(options)
    report.begin(
        f"Forward and backward, ms{' of processor time' * options.processor}: median of {options.rounds} turns. Slope"
        f" of log time against log T from T = {FROM_LENGTH} on. Multiplications: of one row, the part that grows"
        " fastest; n positions of d = 64 features, u units, w window or block, h heads, m random features, k width, c"
        " positions in a chunk."
    )
    titles = ["layer", *IN_THEORY, *(f"T {length}" for length in LENGTHS), "slope", "theory", ""]
    report.add("\n".join(table(titles, rows)))
    report.add(f"{', '.join(places)}.")
    plot(medians, options.plot)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
