"""The memory of a function, as the operating system accounts it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.runner import memory

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
MEGABYTE = 2**20
ROOT = Path(__file__).parents[3]

PROGRAM = """
import numpy as np
from benchmarks.runner import memory

def function():
    for _ in range(3):
        np.ones(32 * 2**20, "uint8").sum()  # freed again: 32 MiB at any time

print(memory.extra_memory(function))
"""


def test_it_is_the_peak_that_counts():
    # In a process of its own: what threads and freed blocks of other tests do counts as well.
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 30 * MEGABYTE < int(done.stdout) < 45 * MEGABYTE


def test_what_was_held_before_does_not_count():
    before = np.ones(64 * MEGABYTE, "uint8")
    assert memory.extra_memory(lambda: before.sum()) < 16 * MEGABYTE


def test_a_former_peak_does_not_count():
    np.ones(96 * MEGABYTE, "uint8").sum()
    if memory.peak_memory() - memory.resident_memory() > 64 * MEGABYTE:
        memory.reset_peak()
    if memory.peak_memory() - memory.resident_memory() > 64 * MEGABYTE:
        pytest.skip("this system does not forget a peak")
    assert memory.extra_memory(lambda: None) < 16 * MEGABYTE


def test_peak_memory_is_that_of_the_process(monkeypatch):
    assert 20e6 < memory.peak_memory() < 100e9
    monkeypatch.setattr(memory, "_CLEAR", Path("/no/such/file"))
    assert memory.extra_memory(lambda: np.ones(8, "uint8")) >= 0
    monkeypatch.setattr(memory, "_STATUS", Path("/no/such/file"))
    assert memory.peak_memory() == memory.resident_memory() > 10 * MEGABYTE or sys.platform == "darwin"
