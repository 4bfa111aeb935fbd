"""Checks the attention contract of layers of Keras, KerasHub and this library, and prints Markdown."""

import os
import sys
import warnings

from benchmarks.runner.command import CommandParser, write_page


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("conformance", __doc__)
    parser.add_argument("--layer", default="*", help="pattern of names of layers, such as 'keras.layers.*'")
    parser.add_argument("--check", default="*", help="pattern of names of checks, such as '*causal*'")
    parser.add_output()
    options = parser.parse_args(arguments)
    parser.require("tensorflow", "keras")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    import tensorflow as tf

    from benchmarks.conformance import report

    if keras.backend.backend() != "tensorflow":
        parser.error(f"The checks run on TensorFlow. Received: KERAS_BACKEND={keras.backend.backend()}")
    tf.get_logger().setLevel("ERROR")  # it warns of the many graphs
    warnings.simplefilter("ignore")  # Keras warns of layers that drop masks
    results, missing = report.run(options.layer, options.check, lambda line: print(line, file=sys.stderr, flush=True))
    if not any(results.values()):
        problem = f"No check of a layer matches. Received: --layer {options.layer!r} --check {options.check!r}"
        parser.error("\n".join([problem, *missing]))
    write_page(report.markdown(results, missing), options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
