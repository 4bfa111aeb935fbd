"""Outcomes of changed checkpoints: what is counted, and where versions of the reference itself differ."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
"""The files that are changed."""
AGREE, REFUSED, UNNAMED, FAILS, DIFFER, WRONG = (
    "agree",
    "refused by name",
    "refused without the key",
    "reference fails",
    "versions of the reference differ",
    "WRONG",
)
_SHOWN = (WRONG, DIFFER, UNNAMED)


@dataclass(frozen=True)
class VersionsDiffer:
    """A change after which versions of the reference differ, and ours agrees with one of them.

    Attributes:
        family: The name of the family.
        file: The name of the changed file.
        key: The changed key.
        value: Its other value as JSON, or `left out`.
        reason: What the versions do.
    """

    family: str
    file: str
    key: str
    value: str
    reason: str


_SPACES = (
    "before a text that begins with a space, 4.57 with `tokenizer.model` puts one more space, as here, and 5.24 none"
)
DECLARED = (
    VersionsDiffer(
        "Llama",
        "tokenizer_config.json",
        "add_bos_token",
        "left out",
        "4.57 adds the start token before texts, as here, and 5.24 does not",
    ),
    VersionsDiffer("Llama", "tokenizer_config.json", "legacy", "false", _SPACES),
    VersionsDiffer("Llama", "tokenizer_config.json", "tokenizer_class", '"LlamaTokenizer"', _SPACES),
)
"""All such changes. One after which ours agrees with the measured version is an error."""


def settled(
    family: str, file: str, outcomes: Sequence[tuple[str, str, str]], declared: Collection[VersionsDiffer] = DECLARED
) -> list[tuple[str, str, str]]:
    """Returns outcomes (key, value, outcome) in which wrong ones that are declared are `DIFFER`.

    A declared change that is not measured, or whose outcome is not wrong, becomes a wrong outcome.

    Args:
        family: The name of the family.
        file: The name of the changed file.
        outcomes: The measured outcomes.
        declared: The changes after which versions of the reference differ.
    """
    reasons = {
        (entry.key, entry.value): entry.reason for entry in declared if (entry.family, entry.file) == (family, file)
    }
    rows = []
    for key, value, outcome in outcomes:
        reason = reasons.pop((key, value), "")
        if reason and outcome.startswith(WRONG):
            outcome = f"{DIFFER}: {reason}"
        elif reason:
            outcome = f"{WRONG}: declared as `{DIFFER}`, but: {outcome}"
        rows.append((key, value, outcome))
    return [*rows, *((key, value, f"{WRONG}: declared as `{DIFFER}`, but not measured") for key, value in reasons)]


def table(family: str, outcomes: Sequence[tuple[str, str, str]]) -> str:
    """Returns the outcomes as Markdown: their numbers, and those that do not agree and are not refused by name."""
    counts = Counter(outcome.partition(":")[0] for *_, outcome in outcomes)
    parts = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    shown = [row for row in outcomes if row[2].startswith(_SHOWN)]
    lines = [f"**{family}**: {len(outcomes)} changes: {parts}.", ""]
    if shown:
        lines += ["| key | changed to | outcome |", "|---|---|---|"]
        lines += [f"| `{key}` | `{value}` | {outcome} |" for key, value, outcome in shown] + [""]
    return "\n".join(lines)
