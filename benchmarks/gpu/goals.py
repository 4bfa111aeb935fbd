"""The goals of the measurements on a GPU, and which of them the measured values reach."""

from benchmarks.gpu.figure import OURS
from benchmarks.gpu.plan import FIRST_STEP, FLEX, SDPA, TORCH_COMPILED
from benchmarks.gpu.results import Results
from benchmarks.runner.report import Goal

LANGUAGE_MODEL = "causal_lm_modern, 124 M"
WINDOW, CAUSAL, ADDITIVE = "attention, window, T=4k", "attention, causal, T=4k", "attention, additive, T=1k"
RATIOS = (
    ("transformer_base", TORCH_COMPILED, 1.1),
    ("transformer_big", TORCH_COMPILED, 1.1),
    (LANGUAGE_MODEL, TORCH_COMPILED, 1.0),
    (CAUSAL, SDPA, 0.95),
    (WINDOW, FLEX, 0.9),
)
SHARES = (("transformer_base", 0.40), ("transformer_big", 0.50), (LANGUAGE_MODEL, 0.45))
FIRST_SECONDS = 30.0
NOT_YET = "not yet measured"


def goals(results: Results) -> list[Goal]:
    """Returns the goals with the measured values."""
    measured = []
    for figure, peer, bound in RATIOS:
        ours, theirs = best_of_ours(results, figure), results.rate(figure, peer)
        ratio = ours / theirs if ours and theirs else None
        measured.append(_goal(f"{figure}: speed against {peer}", ratio, bound, "{:.2f}×"))
    for figure, bound in SHARES:
        share = results.value(figure, OURS, "share_of_peak")
        measured.append(_goal(f"{figure}: share of the peak", share, bound, "{:.1%}"))
    additive = results.value(ADDITIVE, OURS, "peak_memory")
    text = NOT_YET if additive is None else f"{additive / 1e9:.1f} GB"
    measured.append(Goal(f"{ADDITIVE}: runs within memory", text, "runs", None if additive is None else True))
    first = results.value(FIRST_STEP, OURS, "ready")
    text = NOT_YET if first is None else f"{first:.0f} s"
    met = None if first is None else first <= FIRST_SECONDS
    return [*measured, Goal("first step from the start of the command", text, f"≤ {FIRST_SECONDS:.0f} s, cached", met)]


def best_of_ours(results: Results, figure: str) -> float | None:
    """Returns the best rate of our layers."""
    names = {str(row["contestant"]) for row in results.rows if row["figure"] == figure}
    rates = [results.rate(figure, name) for name in names if name.startswith(OURS)]
    return max((rate for rate in rates if rate is not None), default=None)


def _goal(what: str, value: float | None, bound: float, written: str) -> Goal:
    if value is None:
        return Goal(what, NOT_YET, f"≥ {written.format(bound)}")
    return Goal(what, written.format(value), f"≥ {written.format(bound)}", value >= bound)
