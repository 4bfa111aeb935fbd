"""Measures the gain of TensorFlow's int8 product for activations that are quantized on the fly.

`python -m benchmarks.int8_products [--rounds N] [--tiny]`

Activations [rows, D] are multiplied by weights [D, columns], in a graph, on one thread, in processor time. Weights are
quantized before, with a scale for each column, activations in the graph, with a scale for each row. Inputs and outputs
are float32, as in a layer that multiplies in int8.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.runner.command import MeasurementParser
from benchmarks.runner.report import table

SIZES = [(rows, *matrix) for matrix in ((256, 1024), (256, 8000)) for rows in (32, 64, 256, 1024)]
TINY = [(3, 5, 7)]
LEAST_SECONDS = 0.03  # of processor time for a turn
OFFSET = 128  # of the unsigned numbers that the operation requires on its left side


def products(weights: np.ndarray) -> dict[str, Callable[[Any], Any]]:
    """Returns functions that multiply activations [M, D] by weights [D, N], by name."""
    import tensorflow as tf

    scale = np.abs(weights).max(axis=0) / 127.0
    rounded = np.round(weights / scale).astype(np.int8)
    # With these ranges a unit is 1, so that the bias cancels the offset exactly.
    ranges = {"min_a": 0.0, "max_a": 255.0, "min_b": -127.0, "max_b": 127.0}
    operands = {
        "b": tf.bitcast(tf.constant(rounded), tf.qint8),
        "bias": tf.constant(-OFFSET * rounded.astype(np.float32).sum(axis=0)),
    }

    def int8(activations: Any) -> Any:
        row_scale = tf.reduce_max(tf.abs(activations), axis=1, keepdims=True) / 127.0
        unsigned = tf.cast(tf.round(activations / row_scale) + OFFSET, tf.uint8)
        products = tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
            a=tf.bitcast(unsigned, tf.quint8),
            **operands,
            **ranges,
            min_freezed_output=0.0,
            max_freezed_output=1.0,
            Toutput=tf.float32,
            input_quant_mode="SCALED",
        )
        return products * scale.astype(np.float32) * row_scale

    half = tf.constant(weights, tf.bfloat16)
    return {
        "float32": lambda activations: activations @ weights,
        "bfloat16": lambda activations: tf.cast(tf.cast(activations, tf.bfloat16) @ half, tf.float32),
        "int8": int8,
    }


def measure(rows: int, inner: int, columns: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Returns the seconds of a product and its largest error relative to the largest result, by name."""
    import tensorflow as tf

    chance = np.random.default_rng(0)
    activations = chance.standard_normal((rows, inner)).astype(np.float32)
    weights = (chance.standard_normal((inner, columns)) * inner**-0.5).astype(np.float32)
    exact, inputs = activations.astype(np.float64) @ weights, tf.constant(activations)
    graphs, errors = {}, {}
    for name, product in products(weights).items():
        graph = tf.function(product, input_signature=[tf.TensorSpec([None, inner])], autograph=False)
        try:
            errors[name] = float(np.abs(graph(inputs).numpy() - exact).max() / np.abs(exact).max())
        except tf.errors.OpError:  # TensorFlow runs without oneDNN
            continue
        graphs[name] = graph
    seconds: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            begun, count = time.process_time(), 0
            while (passed := time.process_time() - begun) < LEAST_SECONDS:
                graph(inputs)
                count += 1
            seconds[name].append(passed / count)
    return {name: (statistics.median(seconds[name]), errors[name]) for name in graphs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("int8_products", __doc__, rounds=9)
    parser.add_tiny()
    options = parser.parse_args(arguments)
    os.environ.update(TF_NUM_INTRAOP_THREADS="1", TF_NUM_INTEROP_THREADS="1")  # before TensorFlow is imported
    table_rows = []
    for rows, inner, columns in TINY if options.tiny else SIZES:
        results = measure(rows, inner, columns, options.rounds)
        base = results["float32"][0]
        cells = [
            f"{1e3 * results[name][0]:.2f} ms, {base / results[name][0]:.2f}×" if name in results else "no result"
            for name in ("float32", "bfloat16", "int8")
        ]
        error = f"{results['int8'][1]:.4f}" if "int8" in results else ""
        table_rows.append([f"{rows} × {inner} by {inner} × {columns:,}", *cells, error])
    print("\n".join(table(["product", "float32", "bfloat16", "int8", "error of int8"], table_rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
