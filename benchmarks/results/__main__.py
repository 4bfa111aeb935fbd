"""Writes the pages of results and their pictures, and appends rows to the files of results.

`python -m benchmarks.results` writes `training/RESULTS.md`, `benchmarks/RESULTS.md` and their pictures from
`results/*.csv`; `python -m benchmarks.results add FILE COLUMN=VALUE...` first appends a row to a file.
"""

import sys
from collections.abc import Sequence

from benchmarks.results.pages import (
    QUALITY_PAGE,
    QUALITY_PICTURE,
    SPEED_PAGE,
    SPEED_PICTURE,
    quality_page,
    speed_page,
)
from benchmarks.results.pictures import draw_quality, draw_speed
from benchmarks.results.rows import COLUMNS, append
from zoo.runtime.cli import ArgumentParser, run_process


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = ArgumentParser(prog="python -m benchmarks.results", description=__doc__)
    commands = parser.add_subparsers(dest="command", help="without a command, only the pages are written")
    add = commands.add_parser("add", help="append a row to a file of results")
    add.add_argument("file", choices=COLUMNS, help="the file, without .csv")
    add.add_argument("cells", nargs="+", metavar="COLUMN=VALUE", help="the row; see results/README.md")
    options = parser.parse_args(arguments)
    if options.command == "add":
        if wrong := [cell for cell in options.cells if "=" not in cell]:
            parser.error(f"{wrong[0]} is not of the form COLUMN=VALUE")
        append(options.file, **dict(cell.split("=", 1) for cell in options.cells))
    QUALITY_PAGE.write_text(quality_page(), encoding="utf-8")
    SPEED_PAGE.write_text(speed_page(), encoding="utf-8")
    draw_quality(QUALITY_PICTURE)
    draw_speed(SPEED_PICTURE)


if __name__ == "__main__":
    sys.exit(run_process(main))
