"""Exports a work directory: `python -m export.saved_model DIR --output BASE [--version N]`."""

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from export.options import Export, option_rows, version_exists
from zoo.decoding_options import add_ensemble, add_languages, together
from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, disk_full, run_process
from zoo.runtime.startup import without_greeting


def next_version(base: Path) -> int:
    """Returns the next free version number under a base path, which may be missing."""
    taken = [int(path.name) for path in base.iterdir() if path.name.isdigit()] if base.is_dir() else []
    return max(taken, default=0) + 1


def export_saved_model(
    workdir: str | os.PathLike[str],
    output: str | os.PathLike[str],
    version: int | None = None,
    check: bool = False,
    ensemble: Sequence[str | os.PathLike[str]] = (),
    source_language: str | None = None,
    target_language: str | None = None,
    draft: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Path:
    """Writes the SavedModel of a work directory and returns its folder, `output/version`.

    Args:
        workdir: The work directory, or `preset:NAME`.
        output: Base path of the versions.
        version: Number of the version. Default: the next free one.
        check: Whether to load the version in a fresh process as a server does, and to compare its outputs with the work
            directory's, before it is published.
        ensemble: Work directories of translators that choose every token together with this one, see `zoo.load`.
        source_language: For a multilingual translator, the code of the language of sources, which is fixed in the
            version. Default: that of the work directory.
        target_language: The code of the language of translations, likewise.
        draft: The work directory of a smaller model that drafts tokens for this one, see `zoo.load`; the option
            `draft_length` is then 4 by default.
        **options: Options of the model's task, see `export.options`; `None` is the default.

    Raises:
        InputError: For a bad work directory, base path or option, a version that exists, or outputs that differ.
    """
    languages = (source_language, target_language)
    return write_export(Export.resolve(workdir, output, version, check, ensemble, *languages, draft, **options))


def write_export(export: Export, report: Callable[[str], None] = lambda line: None) -> Path:
    """Writes a SavedModel and returns its folder; raises as `export_saved_model` does.

    Args:
        export: The export.
        report: Called with a line of text at the beginning of each stage.
    """
    with without_greeting():
        import keras

    if keras.backend.backend() != "tensorflow":
        raise InputError(f"Export needs KERAS_BACKEND=tensorflow. Received: {keras.backend.backend()}.")
    with without_greeting():
        import tensorflow as tf

        from export.check.compare import check_export
        from export.check.drafts import confirmed_drafts
        from export.graph.provenance import shortlist_notes, write_provenance
        from export.graph.served_model import ServedModel, model_graph, optimized_once
        from export.graph.signatures import PREDICT, signatures_of, warmed_up
        from export.graph.warmup import write_warmup
        from zoo.inference import load_run

    models = together(export.workdir, export.ensemble)
    run = load_run(models, export.source_language, export.target_language, export.draft)
    if export.draft_text is not None:
        report(confirmed_drafts(run, export.options, export.draft_text))
    graph = model_graph(run, export.options)
    for line in shortlist_notes(run, graph.options):
        print(line, file=sys.stderr)
    signatures = signatures_of(run, graph.options)
    at_start = warmed_up(signatures, graph.options)
    served = ServedModel(graph, signatures, report)
    try:
        export.base.mkdir(parents=True, exist_ok=True)
        # Servers ignore this name, because it is not a number.
        temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=export.base))
    except OSError as error:
        if disk_full(error):
            raise
        raise InputError(f"{export.base} is not writable ({error.strerror}).") from error
    try:
        # With dynamic batching, the batched function is not inlined into its caller and must be optimized by itself.
        with contextlib.nullcontext() if graph.options.dynamic_batching else optimized_once():
            tf.saved_model.save(served, str(temporary), signatures=served.functions)
        if apis := {signature.name: signature.api for signature in signatures if signature.api != PREDICT}:
            _declare_apis(temporary, apis)
        write_warmup(temporary, export.base.name, graph, at_start)
        write_provenance(temporary, run, graph.options)
        if export.check:
            report("comparing the answers")
            check_export(run, temporary)
        temporary.chmod(0o755)
        return _publish(temporary, export)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(folder: Path, export: Export) -> Path:
    """Renames a complete version to a free number, even if other exports run, and returns its new folder."""
    while True:
        target = export.base / str(export.version or next_version(export.base))
        try:
            return folder.rename(target)
        except OSError as error:
            if not target.exists():
                raise
            if export.version is not None:
                raise version_exists(target) from error


def _declare_apis(folder: Path, apis: Mapping[str, str]) -> None:
    """Sets the API of signatures by name; `tf.saved_model.save` declares all of them for Predict."""
    from tensorflow.core.protobuf import saved_model_pb2

    path = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    (graph,) = model.meta_graphs
    for name, api in apis.items():
        graph.signature_def[name].method_name = api
    path.write_bytes(model.SerializeToString(deterministic=True))
    (folder / "fingerprint.pb").unlink(missing_ok=True)  # It is outdated now.


def _parse(argv: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(prog="export.saved_model", description="Exports a work directory as a SavedModel.")
    parser.add_argument("workdir", metavar="DIR", help="work directory of training.train, or preset:NAME")
    parser.add_argument("--output", required=True, metavar="BASE", help="BASE/<version>/ is written")
    parser.add_argument("--version", type=int, metavar="N", help="default: the next free number")
    parser.add_argument(
        "--check", action="store_true", help="load it as a server does and compare its outputs, before publishing it"
    )
    add_ensemble(parser)
    add_languages(parser)
    parser.add_argument(
        "--draft",
        metavar="DIR",
        help="work directory of a smaller Transformer with the same tokenizers, which drafts --draft_length tokens (4) "
        "for this one to confirm by one call; answers of greedy search and samples stay the same",
    )
    parser.add_argument(
        "--draft_text",
        metavar="FILE",
        help="text such as the validation text; writes to standard error how many drafted tokens of the answers to its "
        "lines are confirmed",
    )
    for name, option, meaning in option_rows():
        shown = meaning.replace("%", "%%")
        if option.kind is bool:
            parser.add_argument(f"--{name}", action="store_true", default=None, help=shown)
        else:
            metavar = "|".join(option.choices) or {int: "N", float: "X", str: "NAMES"}[option.kind]
            parser.add_argument(f"--{name}", metavar=metavar, help=shown)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises as `export_saved_model` does."""
    export = Export.resolve(**vars(_parse(argv)))
    # Recurrent layers that are traced on a GPU could contain kernels that a server without a GPU lacks.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    # AutoGraph warns if it cannot write its own temporary files; it works without them.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    print(write_export(export, lambda line: print(line, file=sys.stderr, flush=True)))


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
