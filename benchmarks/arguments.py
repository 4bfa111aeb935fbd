"""The command line that the measurements share."""

import argparse
from collections.abc import Sequence

TURNS = "turns that each time is the median of"


class MeasurementParser(argparse.ArgumentParser):
    """A parser of a command that measures, which refuses to measure no times.

    Args:
        prog: The command.
        description: What it does.
        rounds: The default of `--rounds`.
        unit: What `--rounds` counts, for `--help`.
    """

    def __init__(self, prog: str, description: str | None, rounds: int, unit: str = TURNS):
        super().__init__(prog=prog, description=description)
        self._counts: list[str] = []
        self.add_count("rounds", rounds, unit)

    def add_count(self, name: str, default: int, text: str) -> None:
        """Adds an option that is a positive integer.

        Args:
            name: Its name.
            default: Its default, which `--help` says behind the text.
            text: What it counts.
        """
        self._counts.append(name)
        self.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default:,})")

    def add_resuming(self) -> None:
        """Adds the options of commands that keep what they have measured."""
        self.add_argument("--fresh", action="store_true", help="measure again what runs/bench holds")
        self.add_argument("--tiny", action="store_true", help="tiny sizes, to see that everything runs")

    def parse_args(self, args: Sequence[str] | None = None, namespace=None):  # type: ignore[override]
        """Returns the options; ends the process where one is out of range."""
        options = super().parse_args(args, namespace)
        for name in self._counts:
            if getattr(options, name) < 1:
                self.error(f"--{name} must be positive. Received: {getattr(options, name)}")
        return options
