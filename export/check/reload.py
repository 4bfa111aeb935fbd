"""Answers requests with a SavedModel the way the stock server does, for `export.check.compare`.

Run as a script, with the model's folder as its argument and the requests as JSON on standard input. It imports nothing
of this project: TensorFlow and TensorFlow Text are all that there is on a server. With the further argument `xla` it is
a server that was started with `--xla_cpu_compilation_enabled`; others refuse what needs XLA.

Strings that are no UTF-8 stand in JSON as Python's `surrogateescape` has it.
"""

import ctypes
import json
import sys
from pathlib import Path


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
            feed = {signature.inputs[name].name: _raw(values) for name, values in request["inputs"].items()}
            names = {name: signature.outputs[name].name for name in request["outputs"]}
            found = session.run(names, feed)
            answers.append({name: _plain(values.tolist()) for name, values in found.items()})
    foreign = sorted({"zoo", "training", "export"} & set(sys.modules))
    json.dump({"answers": answers, "foreign": foreign}, sys.stdout)


def _refuse_xla(tensorflow):
    """Makes this process refuse to compile with XLA, with the function that the stock server calls for that."""
    name = "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"
    ctypes.CDLL(str(tensorflow / name))["_ZN10tensorflow21DisableXlaCompilationEv"]()


def _raw(values):
    if isinstance(values, list):
        return [_raw(value) for value in values]
    return values.encode("utf-8", "surrogateescape") if isinstance(values, str) else values


def _plain(values):
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return values.decode("utf-8", "surrogateescape") if isinstance(values, bytes) else values


if __name__ == "__main__":
    main()
