"""What a case found, and what it was to find."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """Something measured against its target.

    Attributes:
        what: What was measured.
        found: What came out, in words.
        target: What should, in words; "reported" where nothing is asked.
        met: Whether it did; `None` where nothing is asked.
    """

    what: str
    found: str
    target: str = "reported"
    met: bool | None = None

    def __str__(self) -> str:
        """Returns the row of a table."""
        verdict = {None: "", True: "met", False: "missed"}[self.met]
        return f"| {self.what} | {self.found} | {self.target} | {verdict} |"


def none_of(what: str, count: int, answers: int) -> Goal:
    """Returns the goal that something never happened; of no answers at all nothing can be said.

    Args:
        what: What should not happen.
        count: How often it did.
        answers: How many answers there were.
    """
    return Goal(what, f"{count:,} of {answers:,}", "0", answers > 0 and count == 0)


def table(title: str, goals: Sequence[Goal], details: Sequence[str] = ()) -> str:
    """Returns a case as Markdown: its goals, and then lines that tell more."""
    head = ["| measured | found | target | |", "|---|---|---|---|"]
    return "\n".join([f"### {title}", "", *head, *map(str, goals), *([""] if details else []), *details])
