"""What a case found, and what it should have found."""

from collections.abc import Sequence

from benchmarks.report import Goal, goal_table


def none_of(what: str, count: int, answers: int) -> Goal:
    """Returns the goal that something never happened; of no answers at all nothing can be said."""
    return Goal(what, f"{count:,} of {answers:,}", "0", answers > 0 and count == 0)


def section(title: str, goals: Sequence[Goal], details: Sequence[str] = ()) -> str:
    """Returns a case as Markdown: its goals, and then lines that tell more."""
    return "\n".join([f"### {title}", "", *goal_table("measured", goals), *([""] if details else []), *details])
