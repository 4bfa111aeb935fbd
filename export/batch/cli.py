"""The batch command: `python -m export.batch --model_path BASE/VERSION --input 'in*.txt' --output OUT`.

The pipeline runs on this machine, or on Flink, Spark or Dataflow by Apache Beam's own flags (`--runner …`), which this
command passes on. It needs the extra `beam`. If the command is stopped, running it again resumes with the unfinished
parts.
"""

import contextlib
import dataclasses
import difflib
import json
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import InputError, unknown_name
from zoo.runtime.beam import check_beam, make_pipeline
from zoo.runtime.cli import ArgumentParser, disk_full, run_process

if TYPE_CHECKING:
    import apache_beam

    from export.batch.pipeline import BatchSettings

PLAN = "batch.json"
"""The file in the output folder that contains the settings and inputs of a run."""


class RunFailed(Exception):
    """Lines failed, or a file could not be read or written; finished outputs are kept."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Raises:
        InputError: Beam, the model or the input is missing, or the output exists.
        RunFailed: The model failed at some lines, or at all; or a file could not be read or written.
    """
    flags, beam_flags = _parse(argv)
    check_beam()
    from export.batch.pipeline import FAILED, KEPT, BatchSettings, translate_files

    output_name = None if flags.json else flags.output_name
    _check_model(flags.model_path, flags.signature, output_name)
    files = _named_inputs(flags.input)
    pipeline = make_pipeline(beam_flags)
    settings = BatchSettings(flags.model_path, flags.signature, output_name, flags.batch_size, flags.file_lines)
    finished = _begin(flags.output, _plan(files, settings))
    translate_files(pipeline, files, flags.output, settings, finished)
    result = _run(pipeline, flags.output)
    counts = _counts(result)
    print(json.dumps({"output": flags.output, **counts}), flush=True)
    failures = f"{flags.output.rstrip('/')}/{FAILED}-*.jsonl"
    if counts[FAILED] or _matches(
        failures
    ):  # Some runners have no counters, and lines may have failed in earlier runs.
        number = "Lines" if counts[FAILED] is None else f"{counts[FAILED]} of {counts['lines']} lines"
        before = f", in addition to {counts[KEPT]} lines of earlier runs" if counts[KEPT] else ""
        raise RunFailed(f"{number} failed{before}; see {failures}.")


def _counts(result: "apache_beam.runners.runner.PipelineResult") -> dict[str, int | None]:
    """Returns the numbers of lines that were translated, that failed, and that earlier runs translated.

    They are `None` if the runner has no counters.
    """
    from export.batch.pipeline import COUNTERS, FAILED, KEPT

    try:
        counters = result.metrics().query()["counters"]
    except NotImplementedError:  # Dask's
        return dict.fromkeys(("lines", FAILED, KEPT))
    named = {
        counter.key.metric.name: counter.result for counter in counters if counter.key.metric.namespace == COUNTERS
    }
    return {name: named.get(name, 0) for name in ("lines", FAILED, KEPT)}


def _parse(argv: Sequence[str] | None) -> tuple[Namespace, list[str]]:
    parser = ArgumentParser(
        prog="python -m export.batch",
        description="Translates the lines of files with an exported model, on one machine or many.",
        epilog="All other flags are Apache Beam's, such as --runner=FlinkRunner or --direct_num_workers=2.",
        allow_abbrev=False,
    )
    parser.add_argument("--model_path", required=True, metavar="BASE/VERSION", help="folder of one exported version")
    parser.add_argument("--input", required=True, nargs="+", metavar="PATTERN", help="files, such as 'in*.txt'")
    parser.add_argument("--output", required=True, metavar="OUT", help="folder; line n of OUT/in.txt.* is for line n")
    parser.add_argument("--signature", default="serving_default", help="signature to run (default serving_default)")
    outputs = parser.add_mutually_exclusive_group()
    outputs.add_argument("--output_name", default="text", metavar="NAME", help="the output to write (default text)")
    outputs.add_argument("--json", action="store_true", help="write all outputs, a line of JSON for each text")
    parser.add_argument("--batch_size", type=int, default=128, metavar="N", help="lines at once (default 128)")
    parser.add_argument(
        "--file_lines", type=int, default=5000, metavar="N", help="lines in an output file (default 5000)"
    )
    flags, beam_flags = parser.parse_known_args(argv)
    for name in ("batch_size", "file_lines"):
        if getattr(flags, name) < 1:
            parser.error(f"--{name} must be positive. Received: {getattr(flags, name)}")
    for word in beam_flags:
        # Beam ignores flags that it does not define, so a misspelled one would have no effect and no error.
        meant = difflib.get_close_matches(word.partition("=")[0], [f"--{name}" for name in vars(flags)], 1, 0.85)
        if meant:
            parser.error(f"unknown flag {word}; did you mean {meant[0]}?")
    return flags, beam_flags


def _run(pipeline: "apache_beam.Pipeline", output: str) -> "apache_beam.runners.runner.PipelineResult":
    """Runs a pipeline and waits for its end."""
    from export.batch.pipeline import FileError

    def reason(error: object) -> str | None:
        if isinstance(error, FileError):
            return str(error)
        # Errors of files that Beam itself writes, or of workers in other processes, of which only the text remains.
        full = disk_full(error) if isinstance(error, Exception) else None
        return full and f"{output}: {full}"

    # Beam logs exceptions with a traceback; a full disk is reported as one line instead.
    logging.getLogger("apache_beam.runners.common").addFilter(lambda record: not reason(record.msg))
    try:
        result = pipeline.run()
        result.wait_until_finish()
    except (FileError, OSError, RuntimeError) as error:
        if line := reason(error):
            raise RunFailed(line) from error
        raise
    return result


def _plan(files: Sequence[tuple[str, str]], settings: "BatchSettings") -> dict[str, Any]:
    """Returns the settings of a run and its inputs with their sizes; a run that resumes it must have the same."""
    from apache_beam.io.filesystems import FileSystems

    matched = FileSystems.match([path for path, _ in files])
    sizes = {file.path: file.size_in_bytes for result in matched for file in result.metadata_list}
    return {**dataclasses.asdict(settings), "inputs": {path: sizes.get(path) for path, _ in files}}


def _begin(path: str, plan: dict[str, Any]) -> list[str]:
    """Creates the folder for the outputs, or opens that of a run with the same plan; returns its finished files.

    Raises:
        InputError: The folder cannot be created, contains other files, or belongs to a run with another plan.
        RunFailed: The folder is not writable.
    """
    from apache_beam.io.filesystems import FileSystems

    from export.batch.pipeline import TEMPORARY, FileError, write_whole

    folder = path.rstrip("/")
    try:
        files = _matches(f"{folder}/**")
        if not FileSystems.exists(path):
            with contextlib.suppress(NotImplementedError):
                FileSystems.mkdirs(path)
    except (OSError, ValueError) as error:
        raise InputError(f"--output {path} cannot be created: {error}") from error
    if os.path.isfile(path):
        raise InputError(f"--output {path} is a file; a folder is expected.")
    if not files:
        try:
            write_whole(folder, PLAN, [json.dumps(plan).encode()])
        except FileError as error:
            raise RunFailed(str(error)) from error
        return []
    if f"{folder}/{PLAN}" not in files:
        raise InputError(f"{path} is not empty; nothing is overwritten. Use another --output.")
    with FileSystems.open(f"{folder}/{PLAN}") as stream:
        before = json.loads(stream.read())
    differing = [name for name in plan if before.get(name) != plan[name]]
    if differing:
        raise InputError(f"{path} belongs to a run with other {', '.join(differing)}. Use another --output.")
    unfinished = [file for file in files if file.endswith(TEMPORARY)]
    if unfinished:
        FileSystems.delete(unfinished)
    return [file.removeprefix(f"{folder}/") for file in files]


def _check_model(path: str, signature: str, output: str | None) -> None:
    """Raises an `InputError` for a missing model, signature or output, before any worker is started."""
    from apache_beam.io.filesystems import FileSystems

    from export.batch.pipeline import load_tensorflow

    load_tensorflow()
    from tensorflow.core.framework import types_pb2
    from tensorflow.core.protobuf import saved_model_pb2

    file = f"{path.rstrip('/')}/saved_model.pb"
    if not _matches(file):
        raise InputError(f"{path} is not a version of a SavedModel: {file} is missing.")
    model = saved_model_pb2.SavedModel()
    with FileSystems.open(file) as stream:
        model.ParseFromString(stream.read())
    signatures = {name: signature for graph in model.meta_graphs for name, signature in graph.signature_def.items()}
    if signature not in signatures:
        raise unknown_name("signature", signature, signatures)
    inputs, outputs = signatures[signature].inputs, signatures[signature].outputs
    if [info.dtype for info in inputs.values()] != [types_pb2.DT_STRING]:
        raise InputError(f"One input of strings is expected; the signature {signature} takes {sorted(inputs)}.")
    if output is not None and output not in outputs:
        raise unknown_name("output", output, outputs)
    if output is not None:
        info = outputs[output]
        if info.dtype != types_pb2.DT_STRING or len(info.tensor_shape.dim) != 1:
            raise InputError(f"The output {output} is not one string per text; use --json for such outputs.")


def _matches(pattern: str) -> list[str]:
    from apache_beam.io.filesystems import FileSystems

    return [file.path for result in FileSystems.match([pattern]) for file in result.metadata_list]


def _named_inputs(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Returns path and output name of each input; the name is the path relative to the inputs' common folder."""
    paths: set[str] = set()
    for pattern in patterns:
        matched = _matches(pattern)
        if not matched:
            raise InputError(f"--input {pattern} matches no file.")
        paths.update(matched)
    shared = os.path.commonprefix([path.rpartition("/")[0] + "/" for path in paths]).rpartition("/")[0] + "/"
    return [(path, path.removeprefix(shared)) for path in sorted(paths)]


def command() -> int:
    """Runs the command and returns its exit status."""
    try:
        return run_process(main)
    except RunFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
