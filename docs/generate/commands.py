"""Pages of the commands: every option, from the parsers themselves."""

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from generate.order import PACKAGES, by_use
from generate.problems import Problems
from generate.tables import option_table, table

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 78  # of a usage
# Parts of other commands, and a script that the page on serving shows.
INTERNAL = {
    "benchmarks.peers.ctranslate2_server",
    "benchmarks.runner.worker",
    "export.check.stock_loader",
    "export.deploy.ssl_config",
}
# Each model's own options stand on its page.
WITH_SETTINGS = "training.train"


class _Parsed(BaseException):
    """Stops a command once its parser is complete; carries the parser."""


def names() -> list[str]:
    """Returns the modules that run with `python -m`, found by what they do when they are the main one."""
    modules = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if '__name__ == "__main__"' in path.read_text("utf-8") or path.name == "__main__.py":
                modules.append(name.removesuffix(".__main__"))
    return sorted(set(modules) - INTERNAL, key=by_use)


def parser_of(name: str) -> argparse.ArgumentParser | None:
    """Returns the parser of a command, or `None` if it takes no arguments."""
    module = importlib.import_module(name)
    main = getattr(module, "main", None) or importlib.import_module(f"{name}.__main__").main

    def stop(self: argparse.ArgumentParser, *arguments: object, **keywords: object) -> None:
        raise _Parsed(self)

    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", stop), mock.patch.object(sys, "argv", [name]):
        try:
            main()
        except _Parsed as parsed:
            return parsed.args[0]
    return None


def pages(problems: Problems) -> Iterator[tuple[str, str]]:
    """Yields name and content of a page for each command, and of their list.

    Args:
        problems: Gets what has no description.
    """
    rows = []
    for name in names():
        parser = parser_of(name)
        if parser is None:
            continue
        about = " ".join((parser.description or "").partition("`python -m")[0].split())
        problems.require(about, f"python -m {name} has no description: give its ArgumentParser one.")
        rows.append((f"[`python -m {name}`]({name}.md)", about))
        yield f"commands/{name}.md", _page(name, parser, about, problems)
    text = "Every command prints its options with `--help`. Exit status 0 is success, 2 is bad usage or input with one "
    text += "line that names the fix, and 1 is a failure.\n\n"
    yield "commands/index.md", f"# Commands\n\n{text}{table(('command', 'what it does'), rows)}"


def _page(name: str, parser: argparse.ArgumentParser, about: str, problems: Problems) -> str:
    arguments = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    for action in arguments:
        problems.require(action.help, f"{_spelled(action)} of python -m {name} has no help: give add_argument one.")
    parts = [f"# `{name}`\n\n{about}\n\n```\n{_usage(parser)}\n```\n"]
    rows = [(f"`{_spelled(action)}`", _takes(action), _help(parser, action)) for action in arguments]
    parts.append(table(("argument", "takes", "meaning"), rows))
    if parser.epilog:
        parts.append(f"{parser.epilog}\n")
    if name == WITH_SETTINGS:
        parts.append(_settings())
    return "\n".join(parts)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Returns the usage in lines that fit on a page, none of which ends within an option."""
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    lines = ["python -m" if not usage.startswith("python") else ""]
    for word in re.findall(r"\[[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*\]|\S+", usage):
        if len(lines[-1]) + len(word) >= WIDTH:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {word}"
    return "\n".join(lines).strip()


def _settings() -> str:
    from training.config.options import DataConfig, TrainingConfig

    text = "## Settings\n\nSet them by `--set`, or in a file by `--config`. The recipe for a model and data changes "
    text += (
        "some of these defaults; `config.json` in the work directory contains the values of a run. The settings of a "
    )
    text += "model, `model.…`, are on [its page](../models/index.md).\n"
    data, training = (
        option_table(f"{section}.", options.declared())
        for section, options in (("data", DataConfig), ("training", TrainingConfig))
    )
    return f"{text}\n### Of the data\n\n{data}\n### Of training\n\n{training}"


def _spelled(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    return ", ".join(action.option_strings)


def _takes(action: argparse.Action) -> str:
    if not action.option_strings or action.nargs == 0:
        return ""
    if action.choices:
        return ", ".join(f"`{choice}`" for choice in action.choices)
    value = action.metavar or action.dest.upper()
    return f"`{value}`" + (" …" if action.nargs in ("+", "*") else "")


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    values = {**vars(action), "prog": parser.prog}
    return ("required. " if action.required and action.option_strings else "") + (action.help or "") % values
