"""Runs the client's command."""

import sys

from export.client.cli import command

if __name__ == "__main__":
    sys.exit(command())
