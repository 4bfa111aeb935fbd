"""What was found, as Markdown."""

from benchmarks.timing import Spread
from benchmarks.training.cases import OURS, Case, Target
from benchmarks.training.measure import Found, median_of

HEAD = [
    "| contestant | precision | {turn} | processor time | target tokens/s | peak memory | parameters | what it does |",
    "|---|---|---|---|---|---|---|---|",
]
SECONDS = 10  # from which on times are not told in milliseconds


def table(case: Case, found: Found) -> str:
    """Returns the measurements of a case: each contestant, each target, then the versions.

    Args:
        case: The case.
        found: From `benchmarks.training.measure`.
    """
    rows = [_row(case, contestant, found["contestants"].get(contestant.label)) for contestant in case.contestants]
    targets = ["| ratio to the fastest peer | found | target | |", "|---|---|---|---|"]
    targets += [_told(case, found, target) for target in case.targets]
    medians = {label: median_of(result) for label, result in found["fastest"].items()}
    together = [f"{label} {1000 * median:,.1f} ms" for label, median in medians.items() if median is not None]
    if together:
        targets += ["", f"In turns with one another, each at its fastest precision: {', '.join(together)}."]
    versions = {}
    for result in found["contestants"].values():
        versions |= {f"{name} {version}": None for name, version in result.get("versions", {}).items()}
    foot = f"{found['where']}. {', '.join(versions)}."
    return "\n".join([f"### {case.title}", "", HEAD[0].format(turn=case.turn), HEAD[1], *rows, "", *targets, "", foot])


def _row(case, contestant, result):
    cells = [contestant.name, contestant.precision]
    if result is None or "failed" in result:
        reason = "not yet measured" if result is None else f"not measured: {result['failed']}"
        return f"| {' | '.join([*cells, reason.replace('|', '/'), '', '', '', '', contestant.note])} |"
    spread, processor = (Spread.of(result[kind]) for kind in ("seconds", "processor"))
    unit, per = ("s", 1) if spread.median > SECONDS else ("ms", 1000)
    cells += [
        f"{per * spread.median:,.1f} {unit} ({per * spread.low:,.1f}–{per * spread.high:,.1f})",
        f"{per * processor.median:,.1f} {unit}",
        f"{case.symbols / spread.median:,.0f}",
        f"{result['peak'] / 1e6:,.0f} MB",
        f"{result['parameters']:,}",
        contestant.note,
    ]
    return f"| {' | '.join(cells)} |"


def ratio(case: Case, found: Found, target: Target) -> float | None:
    """Returns how many times faster the fastest of ours is than the fastest peer; `None` without either.

    Where a target is about several precisions, those count that took turns with one another.

    Args:
        case: The case.
        found: Its measurements.
        target: Whom to compare.
    """

    def fastest(results, ours, precisions):
        medians = [
            median
            for contestant in case.contestants
            if (contestant.name == OURS) == ours
            and contestant.precision in precisions
            and (ours or contestant.name.startswith(target.within))
            and (median := median_of(results.get(contestant.label, {}))) is not None
        ]
        return min(medians, default=None)

    several = len({*target.ours, *target.peers}) > 1
    for results in ([found["fastest"]] if several else []) + [found["contestants"]]:
        mine, theirs = fastest(results, True, target.ours), fastest(results, False, target.peers)
        if mine is not None and theirs is not None:
            return theirs / mine
    return None


def _told(case, found, target):
    value = ratio(case, found, target)
    if value is None:
        return f"| {target.what} | not yet measured | ≥ {target.bound:.1f}× | |"
    return f"| {target.what} | {value:.2f}× | ≥ {target.bound:.1f}× | {'met' if value >= target.bound else 'missed'} |"
