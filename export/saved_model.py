"""Exports a work directory: `python -m export.saved_model DIR --output BASE [--version N]`."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.cli import ArgumentParser, run_command
from zoo.errors import InputError
from zoo.startup import without_greeting
from zoo.workdir import WorkDir


def next_version(base: Path) -> int:
    """Returns the next free version number under a base path.

    Args:
        base: The base path; it need not exist.
    """
    taken = [int(path.name) for path in base.iterdir() if path.name.isdigit()] if base.is_dir() else []
    return max(taken, default=0) + 1


OPTIONS: dict[str, tuple[type, str, str]] = {
    "beam_size": (int, "N", "seq2seq; default: 1, greedy search"),
    "nbest": (int, "N", "seq2seq; translations of the signature `nbest`, default: the size of the beam, or 5"),
    "length_penalty": (float, "ALPHA", "seq2seq; exponent of beam search, default: 0.6"),
    "coverage_penalty": (float, "BETA", "seq2seq; factor of beam search, default: 0"),
    "max_length": (
        int,
        "N",
        "seq2seq: largest number of target symbols, default: 256; language models: of symbols with the prompt, "
        "default: what the model can hold",
    ),
    "weights": (str, "KIND", "float32, bfloat16 or int8: how matrices are stored; default: float32"),
    "num_batch_threads": (int, "N", "batches that --dynamic_batching answers at the same time; default: 2"),
    "no_repeat_ngram": (int, "N", "no N symbols come twice in an answer; default: 0, they may"),
}
FLAGS = {
    "dynamic_batching": "answer requests that arrive together at once, and large ones in parts",
    "xla": "add the signature `xla`, which XLA compiles, for servers with --xla_cpu_compilation_enabled",
}
CLASSIFY_METHOD = "tensorflow/serving/classify"


def export_saved_model(
    workdir: str | Path, output: str | Path, version: int | None = None, check: bool = False, **options: Any
) -> Path:
    """Writes the SavedModel of a work directory and returns its folder, `output/version`.

    Args:
        workdir: The work directory.
        output: Base path of the versions.
        version: Number of the version. Default: the next free one.
        check: Whether to load it in a fresh process as a server does, and to compare its answers with the work
            directory's, before it becomes visible.
        **options: Options of the model's task, such as `beam_size`; `None` is the default.

    Raises:
        InputError: For a bad work directory, base path or option, a version that exists, or answers that differ.
    """
    with without_greeting():
        import keras

    if keras.backend.backend() != "tensorflow":
        raise InputError(f"Export needs KERAS_BACKEND=tensorflow. Received: {keras.backend.backend()}.")
    with without_greeting():
        import tensorflow as tf

        import zoo
        from export.check.compare import check_export
        from export.graph.provenance import write_facts
        from export.graph.signatures import CLASSIFY, served_model
        from export.graph.warmup import write_warmup

    base = Path(output)
    if version is not None and (base / str(version)).exists():
        raise _taken(base / str(version))
    options = {name: value for name, value in options.items() if value is not None}
    run = zoo.load(workdir)
    served = served_model(run, **options)
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{base} cannot hold versions ({error.strerror}).") from error
    # Servers look at numbers only, so they never see this name.
    temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=base))
    try:
        tf.saved_model.save(served, str(temporary), signatures=served.functions)
        if CLASSIFY in served.functions:
            _declare_classification(temporary, CLASSIFY)
        write_warmup(temporary, base.name, served.functions, CLASSIFY, served.warm_up)
        write_facts(temporary, run, served.options)
        if check:
            check_export(run, temporary)
        temporary.chmod(0o755)
        return _publish(temporary, base, version)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(folder: Path, base: Path, version: int | None) -> Path:
    """Gives a complete version its number, which another export may have taken since, and returns its new folder."""
    while True:
        target = base / str(next_version(base) if version is None else version)
        try:
            return folder.rename(target)
        except OSError as error:
            if not target.exists():
                raise
            if version is not None:
                raise _taken(target) from error


def _taken(target: Path) -> InputError:
    return InputError(f"{target} exists already; versions are never overwritten. Leave out --version for the next one.")


def _declare_classification(folder: Path, signature: str) -> None:
    """Marks a signature as one of the Classify API; `tf.saved_model.save` marks all as those of Predict."""
    from tensorflow.core.protobuf import saved_model_pb2

    path = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in model.meta_graphs:
        graph.signature_def[signature].method_name = CLASSIFY_METHOD
    path.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)  # it is that of the file before


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = ArgumentParser(prog="export.saved_model", description="Exports a work directory as a SavedModel.")
    parser.add_argument("workdir", metavar="DIR", help="work directory of training.train")
    parser.add_argument("--output", required=True, metavar="BASE", help="BASE/<version>/ is written")
    parser.add_argument("--version", type=int, metavar="N", help="default: the next free number")
    parser.add_argument(
        "--check", action="store_true", help="load it as a server does and compare its answers, before it is visible"
    )
    for name, text in FLAGS.items():
        parser.add_argument(f"--{name}", action="store_true", default=None, help=text)
    for name, (kind, metavar, text) in OPTIONS.items():
        parser.add_argument(f"--{name}", type=kind, metavar=metavar, help=text)
    arguments = parser.parse_args(argv)
    if arguments.version is not None and arguments.version < 1:
        raise InputError(f"--version must be positive. Received: {arguments.version}.")
    options = {name: getattr(arguments, name) for name in (*OPTIONS, *FLAGS)}
    WorkDir(arguments.workdir).read_config()  # A mistake is reported before the seconds that TensorFlow takes to start.
    # Traced on a GPU, recurrent layers could hold kernels that a server without one lacks.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    print(export_saved_model(arguments.workdir, arguments.output, arguments.version, arguments.check, **options))


def command() -> int:
    """Runs the command and returns its exit status."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that nothing half-written is left
    return run_command(main)


if __name__ == "__main__":
    sys.exit(command())
