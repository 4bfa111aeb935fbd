"""Exports a work directory: `python -m export.saved_model DIR --output BASE [--version N]`."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.cli import ArgumentParser, run_command
from zoo.errors import InputError
from zoo.quiet import without_greeting
from zoo.workdir import WorkDir


def next_version(base: Path) -> int:
    """Returns the next free version number under a base path.

    Args:
        base: The base path; it need not exist.
    """
    taken = [int(path.name) for path in base.iterdir() if path.name.isdigit()] if base.is_dir() else []
    return max(taken, default=0) + 1


def write_warmup(folder: Path, model_name: str, functions: Mapping[str, Any]) -> None:
    """Writes the requests that the server replays before a model is available.

    Args:
        folder: Folder of the SavedModel.
        model_name: Name the requests are made to; the stock server does not look at it.
        functions: The signatures.
    """
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, function in functions.items():
            request = predict_pb2.PredictRequest()
            request.model_spec.name = model_name
            request.model_spec.signature_name = signature
            for spec in function.input_signature:
                value = ["warm up"] if spec.dtype == tf.string else 1
                request.inputs[spec.name].CopyFrom(tf.make_tensor_proto(value, spec.dtype))
            log = prediction_log_pb2.PredictLog(request=request)
            writer.write(prediction_log_pb2.PredictionLog(predict_log=log).SerializeToString())


def export_saved_model(workdir: str | Path, output: str | Path, version: int | None = None, **decoding) -> Path:
    """Writes the SavedModel of a work directory and returns its folder, `output/version`.

    Args:
        workdir: The work directory.
        output: Base path of the versions.
        version: Number of the version. Default: the next free one.
        **decoding: Options of the model's task, such as `beam_size`; `None` is the default.

    Raises:
        InputError: For a bad work directory or base path, or a version that exists.
    """
    with without_greeting():
        import keras

    if keras.backend.backend() != "tensorflow":
        raise InputError(f"Export needs KERAS_BACKEND=tensorflow. Received: {keras.backend.backend()}.")
    with without_greeting():
        import tensorflow as tf

        import zoo
        from export.signatures import served_model

    base = Path(output)
    version = next_version(base) if version is None else version
    target = base / str(version)
    if target.exists():
        raise InputError(
            f"{target} exists already; versions are never overwritten. Leave out --version for the next one."
        )
    served = served_model(zoo.load(workdir), **decoding)
    try:
        base.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{base} cannot hold versions ({error.strerror}).") from error
    # Servers look at numbers only, so they never see this name.
    temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=base))
    try:
        tf.saved_model.save(served, str(temporary), signatures=served.functions)
        write_warmup(temporary, base.name, served.functions)
        temporary.chmod(0o755)
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = ArgumentParser(prog="export.saved_model", description="Exports a work directory as a SavedModel.")
    parser.add_argument("workdir", metavar="DIR", help="work directory of training.train")
    parser.add_argument("--output", required=True, metavar="BASE", help="BASE/<version>/ is written")
    parser.add_argument("--version", type=int, metavar="N", help="default: the next free number")
    parser.add_argument("--beam_size", type=int, metavar="N", help="seq2seq; default: 1, greedy search")
    parser.add_argument(
        "--length_penalty", type=float, metavar="ALPHA", help="seq2seq; exponent of beam search, default: 0.6"
    )
    parser.add_argument(
        "--max_length",
        type=int,
        metavar="N",
        help="seq2seq: largest number of target symbols, default: 256; language models: of symbols with the prompt, "
        "default: what the model can hold",
    )
    arguments = parser.parse_args(argv)
    if arguments.version is not None and arguments.version < 1:
        raise InputError(f"--version must be positive. Received: {arguments.version}.")
    decoding = {name: getattr(arguments, name) for name in ("beam_size", "length_penalty", "max_length")}
    WorkDir(arguments.workdir).read_config()  # A mistake is reported before the seconds that TensorFlow takes to start.
    # Traced on a GPU, recurrent layers could hold kernels that a server without one lacks.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    print(export_saved_model(arguments.workdir, arguments.output, arguments.version, **decoding))


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_command(main)


if __name__ == "__main__":
    sys.exit(command())
