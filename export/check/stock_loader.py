"""Runs requests on a SavedModel the way the stock server does, for `export.check.compare`.

This is a script: its argument is the model's folder, and it reads the requests as JSON from standard input. It imports
nothing of this project, because a server has only TensorFlow and TensorFlow Text. With the second argument `xla`, it
behaves like a server with `--xla_cpu_compilation_enabled`; otherwise it rejects signatures that need XLA.

In JSON, strings that are not UTF-8 are escaped by Python's `surrogateescape`.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Prints the outputs of all requests as JSON, a list of dicts."""
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
    """Disables XLA compilation in this process by the function that the stock server calls."""
    name = "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"
    ctypes.CDLL(str(tensorflow / name))["_ZN10tensorflow21DisableXlaCompilationEv"]()


def _encoded(values: Any) -> Any:
    if isinstance(values, list):
        return [_encoded(value) for value in values]
    return values.encode("utf-8", "surrogateescape") if isinstance(values, str) else values


def decoded(values: Any) -> Any:
    """Returns nested lists with bytes decoded to text."""
    if isinstance(values, list):
        return [decoded(value) for value in values]
    return values.decode("utf-8", "surrogateescape") if isinstance(values, bytes) else values


if __name__ == "__main__":
    main()
