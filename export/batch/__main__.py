"""Runs the command of the batch pipeline."""

import sys

from export.batch.cli import command

if __name__ == "__main__":
    sys.exit(command())
