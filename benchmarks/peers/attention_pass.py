"""One forward and backward pass of attention, compiled: sizes, random inputs, and the turns of a contestant.

The gradients of all inputs and all weights are computed from a random gradient of the output, since a compiler could
fold a constant one.
"""

import numpy as np

from benchmarks.runner.memory import extra_memory

PASSES = 2  # of which the memory is measured


def serve_attention(channel, make_pass):
    """Measures the memory of the pass, and runs it once for each request.

    `make_pass` is a function from sizes to a function that runs the pass once and waits for its end.
    """
    small, sizes = tiny_sizes(channel.task), with_head_dim(channel.task)
    make_pass(small)()  # initializes the libraries, whose memory is not that of the layer
    run = make_pass(small if channel.task.get("tiny") else sizes)
    channel.introduce(extra_memory=extra_memory(lambda: [run() for _ in range(PASSES)]))
    channel.serve(run, lambda gradients: {})


def with_head_dim(sizes):
    """Returns sizes with `head_dim`, the size of a head."""
    return {**sizes, "head_dim": sizes["dim"] // sizes["heads"]}


def tiny_sizes(sizes):
    """Returns tiny sizes, to test that everything runs."""
    heads, window = min(sizes["heads"], 2), min(sizes["window"], 2)
    small = {"batch": 1, "length": max(8, sizes["length"] // 1024), "dim": 8 * heads, "heads": heads, "window": window}
    return with_head_dim({**sizes, **small})


def shapes(sizes, axes):
    """Returns the shapes of the inputs.

    "BTD" is one sequence; "NTH" are query, key and value with the heads in the batch, "BTNH" and "BNTH" with an axis
    for the heads.
    """
    batch, length, heads, size = (sizes[name] for name in ("batch", "length", "heads", "head_dim"))
    return {
        "BTD": [(batch, length, sizes["dim"])],
        "NTH": [(batch * heads, length, size)] * 3,
        "BTNH": [(batch, length, heads, size)] * 3,
        "BNTH": [(batch, heads, length, size)] * 3,
    }[axes]


def random_arrays(shapes):
    """Returns random float32 arrays."""
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape).astype("float32") for shape in shapes]
