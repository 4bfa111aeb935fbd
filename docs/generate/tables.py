"""Tables and options in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING

from zoo.options import Option


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table in Markdown; cells may hold anything but blank lines."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|") or " "


def option_table(prefix: str, declared: Mapping[str, Option]) -> str:
    """Returns the options that a declaration of `zoo.options` has, one a row.

    Args:
        prefix: What stands before each name, such as `"training."`.
        declared: The options by name.
    """
    rows = [
        (f"`{prefix}{name}`", option.type_name, _range(option), _default(option), option.meaning)
        for name, option in declared.items()
        if not option.derived
    ]
    return table(("option", "type", "range", "default", "meaning"), rows)


def _range(option: Option) -> str:
    bounds = (
        ("≥", option.minimum),
        (">", option.above),
        ("≤", option.maximum),
        ("<", option.below),
    )
    return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


def _default(option: Option) -> str:
    if option.default is MISSING:
        return "required"
    if option.default is None:
        return "automatic"
    return f"`{str(option.default).lower() if option.kind is bool else option.default}`"
