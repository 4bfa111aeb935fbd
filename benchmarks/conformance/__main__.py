"""Checks the attention contract of layers of Keras, KerasHub and this library, and prints Markdown."""

import argparse
import importlib.util
import os
import sys
import warnings
from pathlib import Path


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument("--layer", default="*", help="pattern of names of layers, such as 'keras.layers.*'")
    parser.add_argument("--check", default="*", help="pattern of names of checks, such as '*causal*'")
    parser.add_argument("--output", type=Path, help="file to write the table into as well")
    options = parser.parse_args(arguments)
    for package in ("tensorflow", "keras"):
        if importlib.util.find_spec(package) is None:
            return _fail(f"{package} is not installed; the checks need it: pip install {package}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return _report(options)


def _fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 2


def _report(options: argparse.Namespace) -> int:
    """Runs the checks and prints the tables."""
    import keras
    import tensorflow as tf

    from benchmarks.conformance import report

    if keras.backend.backend() != "tensorflow":
        return _fail(f"The checks run on TensorFlow. Received: KERAS_BACKEND={keras.backend.backend()}")
    tf.get_logger().setLevel("ERROR")  # it warns of the many graphs
    warnings.simplefilter("ignore")  # Keras warns of layers that drop masks
    results, missing = report.run(options.layer, options.check, lambda line: print(line, file=sys.stderr, flush=True))
    if not any(results.values()):
        problem = f"No check of a layer matches. Received: --layer {options.layer!r} --check {options.check!r}"
        return _fail("\n".join([problem, *missing]))
    text = report.markdown(results, missing)
    print(text, end="")
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
