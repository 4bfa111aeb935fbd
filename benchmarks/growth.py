"""How the cost of each attention layer grows with the length: slopes beside theory, and a plot.

`python -m benchmarks.growth [--layer NAME …] [--rounds N] [--plot FILE]`
"""

import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.arguments import MeasurementParser
from benchmarks.attention import Found, measure
from benchmarks.growth_cases import EXPONENTS, GROWTH, LENGTHS
from benchmarks.kept import kept
from benchmarks.timing import ROOT

TOLERANCE = 0.15
FROM_LENGTH = 1024
PLOT = ROOT / "benchmarks" / "growth.png"


def times(found: Found) -> dict[int, float]:
    """Returns the median time by length.

    Args:
        found: What was measured of a layer.
    """
    case = found.case
    return {case.contestant(name).sizes.length: spread.median for name, spread in found.time.items()}


def slope(medians: dict[int, float]) -> float:
    """Returns the slope of log time against log T by least squares.

    Below `FROM_LENGTH` lengths do not count: there the start of the operations, which costs the same at every length,
    is most of the time.

    Args:
        medians: Time by length.
    """
    lengths = [length for length in medians if length >= FROM_LENGTH]
    if len(lengths) < 2:
        return math.nan
    return float(np.polyfit(np.log(lengths), np.log([medians[length] for length in lengths]), 1)[0])


def row(found: Found) -> str:
    """Returns a layer's line of the table.

    Args:
        found: What was measured of it.
    """
    medians, expected = times(found), EXPONENTS[found.case.name]
    cells = [f"{1000 * medians[length]:,.1f}" if length in medians else "–" for length in LENGTHS]
    value = slope(medians)
    reason = next((f"not measured: {reason.replace('|', '/')}" for reason in found.failed.values()), "not yet measured")
    told = f"{reason} |" if math.isnan(value) else f"{value:.2f} |"
    met = "" if math.isnan(value) else "met" if abs(value - expected) <= TOLERANCE else "missed"
    return f"| {found.case.title} | {' | '.join(cells)} | {told} {expected} ± {TOLERANCE} | {met} |"


def plot(all_found: list[Found], file: Path) -> None:
    """Draws the time of each layer against the length, both logarithmic, with the two slopes of theory.

    Args:
        all_found: What was measured.
        file: File to write.
    """
    figure, axes = plt.subplots(figsize=(9, 6), layout="constrained")
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="T = S, positions", ylabel="forward and backward, ms")
    for number, found in enumerate(all_found):
        medians, linear = times(found), EXPONENTS[found.case.name] == 1
        if medians:
            milliseconds = [1000 * value for value in medians.values()]
            marker = "osv^<>Dp*hXd"[number % 12]
            axes.plot(list(medians), milliseconds, "--" if linear else "-", marker=marker, label=found.case.title)
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
    """Runs the command; returns its exit status.

    Args:
        arguments: Command line without the program. Default: that of the process.
    """
    parser = MeasurementParser("python -m benchmarks.growth", __doc__, rounds=5)
    parser.add_argument("--layer", action="append", choices=GROWTH, help="a layer, more than once for several (all)")
    parser.add_argument("--plot", type=Path, default=PLOT, help="file of the plot (benchmarks/growth.png)")
    parser.add_resuming()
    options = parser.parse_args(arguments)
    settings = {"rounds": options.rounds, "tiny": options.tiny}
    print(
        f"Forward and backward, ms: median of {options.rounds} turns. Slope of log time against log T from"
        f" T = {FROM_LENGTH} on.\n\n| layer | {' | '.join(f'T {length}' for length in LENGTHS)} | slope | theory | |"
        f"\n|{'---|' * (len(LENGTHS) + 4)}",
        flush=True,
    )
    all_found = []
    for name in options.layer or GROWTH:
        case = GROWTH[name]
        values = kept(
            f"growth/{name}",
            settings,
            lambda case=case: measure(case, options.rounds, memory_rounds=1, tiny=options.tiny).to_json(),
            options.fresh,
        )
        all_found.append(Found.from_json(case, values))
        print(row(all_found[-1]), flush=True)
    print(f"\n{', '.join(dict.fromkeys(found.where for found in all_found))}.")
    plot(all_found, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
