"""The contestant's side of a measurement: what it is, and then the time of a step for each line it is sent.

Runs in the environment of every peer, and needs NumPy alone until it is asked for more.
"""

import contextlib
import importlib.metadata
import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

PAD, START, END, FIRST = 0, 1, 2, 4  # of the zoo's tokenizers: the first symbol that is a word is the fifth
POOL = 8192  # pairs that are sorted together


class Turns:
    """A contestant's turns, told on what was standard output when it began.

    Attributes:
        task: What is to be trained: sizes, precision and the like, from the command line.
        WARM_UP: Batches of a text before the first turn.
    """

    WARM_UP = 5

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
        self.tell(**self.taken(), loss=loss)

    def taken(self):
        """Returns what the turn took so far: time on the clock, and of processors, and the peak of memory."""
        seconds, processor = time.perf_counter() - self._begun[0], time.process_time() - self._begun[1]
        return {"seconds": seconds, "processor": processor, "peak": peak_memory()}

    def serve(self, step, parameters, packages):
        """Takes all turns, each a step, or as many as the text has batches.

        Args:
            step: Does a step on source, target and the symbols that follow it, and returns its loss, as a number.
            parameters: See `introduce`.
            packages: Likewise.
        """

        def train(most=None):
            for batch in itertools.islice(batches(self.task), most):
                loss = step(*batch)
            return loss

        self.introduce(parameters, packages, train(self.WARM_UP))
        while self.wait():
            self.begin()
            self.end(train())
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


def batches(task):
    """Returns the batches of a turn: source [B, S], target [B, T] and the symbols that follow it [B, T], int32.

    Args:
        task: The task. With a `text` these are all of its pairs, read again for each turn; else a batch without padding
            that is always the same.
    """
    return text_batches(task) if "text" in task else [make_batch(task)]


def text_batches(task):
    """Yields the batches of an epoch: pairs of about equal length, padded, in random order.

    A batch has at most `batch_tokens` symbols on its longer side, padding included.

    Args:
        task: The task: `text` is a folder with the symbols of a sentence in each line of `source` and of `target`.
    """
    source, target = (
        [[*map(int, line.split())] for line in (Path(task["text"]) / side).read_text(encoding="ascii").splitlines()]
        for side in ("source", "target")
    )
    generator, found = np.random.default_rng(0), []
    order = generator.permutation(len(source))
    for start in range(0, len(order), POOL):
        batch, longest = [], 0
        for pair in sorted(order[start : start + POOL], key=lambda pair: (len(target[pair]), len(source[pair]))):
            length = max(len(source[pair]), len(target[pair]) + 1)
            if batch and max(longest, length) * (len(batch) + 1) > task["batch_tokens"]:
                found.append(batch)
                batch, longest = [], 0
            batch.append(pair)
            longest = max(longest, length)
        found.append(batch)
    for index in generator.permutation(len(found)):
        sides = [source[pair] for pair in found[index]], [target[pair] for pair in found[index]]
        yield padded(sides[0]), padded([[START, *row] for row in sides[1]]), padded([[*row, END] for row in sides[1]])


def padded(rows):
    """Returns rows of ids as one array, int32, padded behind.

    Args:
        rows: The rows.
    """
    array = np.full((len(rows), max(map(len, rows))), PAD, "int32")
    for place, row in enumerate(rows):
        array[place, : len(row)] = row
    return array


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
