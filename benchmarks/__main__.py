"""Runs all measurements and the conformance checks: `make bench`."""

import sys

from benchmarks import attention
from benchmarks.conformance.__main__ import main as conformance

if __name__ == "__main__":
    status = attention.main([])
    print("\n### Who keeps the attention contract\n", flush=True)
    sys.exit(status or conformance([]))
