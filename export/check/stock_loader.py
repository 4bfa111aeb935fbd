"""Answers requests with a SavedModel the way the stock server does, for `export.check.compare`.

Run as a script, with the model's folder as its argument and the requests as JSON on standard input. It imports nothing
of this project: a server has TensorFlow and TensorFlow Text and no more. With the further argument `xla` it behaves as
a server that was started with `--xla_cpu_compilation_enabled`; others refuse what needs XLA.

Strings that are not UTF-8 are in JSON as Python's `surrogateescape` represents them.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Prints the answers as JSON, a list of dicts."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401, its ops are in the graph

    folder, *flags = sys.argv[1:]
    if "xla" not in flags:
        _refuse_xla(Path(tf.__file__).parent)
    requests, answers = json.load(sys.stdin), []
    config = tf.compat.v1.ConfigProto()
    config.graph_options.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.OFF
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        signatures = tf.compat.v1.saved_model.loader.load(session, ["serve"], folder).signature_def
        for request in requests:
            signature = signatures[request["signature"]]
            feed = {signature.inputs[name].name: _encoded(values) for name, values in request["inputs"].items()}
            outputs = session.run({name: signature.outputs[name].name for name in request["outputs"]}, feed)
            answers.append({name: decoded(values.tolist()) for name, values in outputs.items()})
    foreign = sorted({"zoo", "training", "export"} & set(sys.modules))
    json.dump({"answers": answers, "foreign": foreign}, sys.stdout)


def _refuse_xla(tensorflow: Path) -> None:
    """Makes this process refuse to compile with XLA, with the function that the stock server calls for that."""
    name = "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"
    ctypes.CDLL(str(tensorflow / name))["_ZN10tensorflow21DisableXlaCompilationEv"]()


def _encoded(values: Any) -> Any:
    if isinstance(values, list):
        return [_encoded(value) for value in values]
    return values.encode("utf-8", "surrogateescape") if isinstance(values, str) else values


def decoded(values: Any) -> Any:
    """Returns nested lists with text for bytes."""
    if isinstance(values, list):
        return [decoded(value) for value in values]
    return values.decode("utf-8", "surrogateescape") if isinstance(values, bytes) else values


if __name__ == "__main__":
    main()
