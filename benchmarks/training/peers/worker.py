"""The contestant's side of a measurement: what it is, and then the time of a step for each line it is sent.

Runs in the environment of every peer, and needs NumPy alone until it is asked for more.
"""

import contextlib
import importlib.metadata
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

PAD, START, FIRST = 0, 1, 4  # of the zoo's tokenizers: the first symbol that is a word is the fifth


class Turns:
    """A contestant's turns, told on what was standard output when it began.

    Attributes:
        task: What is to be trained: sizes, precision and the like, from the command line.
    """

    def __init__(self):
        self.task = json.loads(sys.argv[1])
        # If the memory runs out, this process is the one to end, and not a neighbour's.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        # Libraries print what they like; the answers go where standard output went.
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def tell(self, **values):
        """Sends a line of JSON."""
        print(json.dumps(values), file=self._answers, flush=True)

    def introduce(self, parameters, packages, loss):
        """Says what takes part, behind its first step, which compiles.

        Args:
            parameters: How many numbers are trained.
            packages: Names of the distributions whose versions count.
            loss: Of the first step.
        """
        versions = {name: importlib.metadata.version(name) for name in packages}
        self.tell(parameters=parameters, versions=versions, loss=float(loss))

    def wait(self):
        """Waits for the next turn; returns whether there is one."""
        return bool(sys.stdin.readline())

    def begin(self):
        """Begins a turn."""
        self._begun = time.perf_counter(), time.process_time()

    def end(self, loss):
        """Ends a turn, and tells what it took: time on the clock, and of processors.

        Args:
            loss: Its loss.
        """
        loss = float(loss)
        seconds, processor = time.perf_counter() - self._begun[0], time.process_time() - self._begun[1]
        self.tell(seconds=seconds, processor=processor, loss=loss, peak=peak_memory())

    def serve(self, step, parameters, packages):
        """Takes all turns.

        Args:
            step: Does a step and returns its loss, as a number.
            parameters: See `introduce`.
            packages: Likewise.
        """
        self.introduce(parameters, packages, step())
        while self.wait():
            self.begin()
            self.end(step())
        self.leave()

    def leave(self):
        """Ends the process at once: libraries take up to a minute to put everything away."""
        os._exit(0)


def use_threads(count):
    """Sets how many threads TensorFlow has, before it does anything; it works on processors alone.

    Args:
        count: The number.
    """
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def peak_memory():
    """Returns the largest resident set that this process ever had, in bytes, as the operating system accounts it."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (
            line for line in status.read_text(encoding="ascii", errors="replace").splitlines() if "VmHWM" in line
        )
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def make_batch(task):
    """Returns source [B, S], target [B, T] and the symbols that follow it [B, T]: int32, none of them padding.

    Args:
        task: The task, of which the sizes count.
    """
    generator = np.random.default_rng(0)
    source, outputs = (
        generator.integers(FIRST, task["vocabulary"], (task["batch"], task[name])).astype("int32")
        for name in ("source_length", "target_length")
    )
    target = np.concatenate([np.full_like(outputs[:, :1], START), outputs[:, :-1]], axis=1)
    return source, target, outputs


def sinusoids(length, dim):
    """Returns a table of sinusoidal positions, float32 [length, dim] (Vaswani et al. 2017, section 3.5)."""
    rates = 10000.0 ** (-np.arange(0, dim, 2) / dim)
    angles = np.arange(length)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, dim).astype("float32")
