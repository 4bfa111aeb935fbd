"""Runs the explorer's command."""

import sys

from export.explore.cli import command

if __name__ == "__main__":
    sys.exit(command())
