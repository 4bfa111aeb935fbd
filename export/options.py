"""The options of an export, declared once: flags, `--help`, checks, the record in a version and the README's table.

Reading and checking them takes neither Keras nor TensorFlow.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from zoo.decoding_options import GenerationOptions, TranslationOptions, check_ensemble, check_reranking, together
from zoo.errors import InputError
from zoo.options import Option, Options, choice, flag, size, text
from zoo.presets import workdir_path
from zoo.registry import get_spec
from zoo.workdir import WorkDir

DEFAULT_NBEST = 5


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """What every task can be exported with."""

    weights: str = choice("float32", ("float32", "bfloat16", "int8"), "How matrices are stored.")
    dynamic_batching: bool = flag(False, "Answer requests that arrive together as one batch, and large ones in parts.")
    num_batch_threads: int = size(2, "Batches that `--dynamic_batching` answers at a time.", maximum=1024)
    xla: bool = flag(
        False, "Add the signature `xla`, which XLA compiles, for servers with `--xla_cpu_compilation_enabled`."
    )
    signatures: str = text(
        "all", "Signatures besides `serving_default`: names separated by commas, `all` or `none`. Fewer are smaller."
    )
    warmup: str = text(
        "none",
        "Signatures besides `serving_default` and `xla` that servers warm up before they answer: names separated by "
        "commas, `all` or `none`. Others take seconds for their first request.",
    )

    def resolved(self, model: Any) -> Self:
        """Returns the options with what they leave to the Keras model or to each other filled in."""
        return self


@dataclass(frozen=True, kw_only=True)
class Seq2SeqExportOptions(ExportOptions, TranslationOptions):
    """What sequence-to-sequence models can be exported with."""

    nbest: int | None = size(
        None, f"Answers of the signature `nbest`: `beam_size`, or {DEFAULT_NBEST} if that is 1.", automatic=True
    )
    rerank: str = choice(
        "none",
        ("none", "mbr"),
        "Which translation of the beam is the answer: `none`, the one that ranks first, or `mbr`, the one that has "
        "most in common with the others, by chrF.",
    )

    def check(self) -> None:
        """Allows more answers than beams: the signature `nbest` searches with as many beams as it has answers."""
        if self.shortlist and self.xla:
            raise InputError("--shortlist and --xla do not go together: each batch has symbols of its own.")
        if self.rerank != "none" and self.xla:
            raise InputError("--rerank and --xla do not go together: XLA has no texts.")
        if self.rerank != "none":
            check_reranking(self.rerank, self.beam_size)

    def resolved(self, model: Any) -> Self:
        """See `ExportOptions`."""
        default = self.beam_size if self.beam_size > 1 else DEFAULT_NBEST
        shortlist = min(self.shortlist, model.target_vocab_size)
        return replace(self, nbest=self.nbest or default, length_penalty=self.exponent(), shortlist=shortlist)

    def decoding(self, nbest: int) -> TranslationOptions:
        """Returns the request for so many answers to each text."""
        options = {name: getattr(self, name) for name in TranslationOptions.declared()}
        return TranslationOptions(**{**options, "beam_size": max(nbest, self.beam_size), "nbest": nbest})


@dataclass(frozen=True, kw_only=True)
class LanguageModelExportOptions(ExportOptions):
    """What language models can be exported with."""

    max_length: int | None = GenerationOptions.with_default("max_length", None)
    no_repeat_ngram: int = GenerationOptions.with_default("no_repeat_ngram", 0)

    def resolved(self, model: Any) -> Self:
        """See `ExportOptions`."""
        return replace(self, max_length=self.decoding().resolved(model).max_length)

    def decoding(self) -> GenerationOptions:
        """Returns the request for the most probable continuation."""
        return GenerationOptions(max_length=self.max_length, no_repeat_ngram=self.no_repeat_ngram)


TASK_OPTIONS: dict[str, type[ExportOptions]] = {
    "seq2seq": Seq2SeqExportOptions,
    "classifier": ExportOptions,
    "language_model": LanguageModelExportOptions,
    "sentence_encoder": ExportOptions,
}


@dataclass(frozen=True)
class Export:
    """An export, resolved and checked as far as that needs no model."""

    workdir: Path
    base: Path
    version: int | None
    check: bool
    options: ExportOptions
    ensemble: tuple[Path, ...] = ()
    source_language: str | None = None
    target_language: str | None = None

    @classmethod
    def resolve(
        cls,
        workdir: str | os.PathLike[str],
        output: str | os.PathLike[str],
        version: int | None = None,
        check: bool = False,
        ensemble: Sequence[str | os.PathLike[str]] = (),
        source_language: str | None = None,
        target_language: str | None = None,
        **options: Any,
    ) -> Self:
        """Returns what the arguments of `export.saved_model.export_saved_model` ask for; options may be texts."""
        path, base = workdir_path(workdir), Path(output)
        if ensemble:
            check_ensemble(together(workdir, ensemble))
        spec = get_spec(WorkDir(path).read_config()["model"]["name"])
        declared = TASK_OPTIONS[spec.task].declared()
        requested = {name: value for name, value in options.items() if value is not None}
        for name in requested:
            if name not in declared:
                raise InputError(f"--{name} is not for {spec.task} models such as {spec.name}.")
        resolved = TASK_OPTIONS[spec.task](**{name: declared[name].read(name, requested[name]) for name in requested})
        if "num_batch_threads" in requested and not resolved.dynamic_batching:
            raise InputError("--num_batch_threads is of no use without --dynamic_batching.")
        if version is not None and version < 1:
            raise InputError(f"--version must be positive. Received: {version}.")
        if version is not None and (base / str(version)).exists():
            raise version_exists(base / str(version))
        languages = (source_language, target_language)
        return cls(path, base, version, check, resolved, tuple(map(workdir_path, ensemble)), *languages)


def version_exists(path: Path) -> InputError:
    """Returns the error for a version, in this folder, that exists already."""
    return InputError(f"{path} exists already; versions are never overwritten. Leave out --version for the next one.")


def option_rows() -> Iterator[tuple[str, Option, str]]:
    """Yields name, declaration and meaning of each option; the meaning names the tasks unless it is for all of them."""
    for name in dict.fromkeys(name for options in TASK_OPTIONS.values() for name in options.declared()):
        by_task = {task: cls.declared()[name] for task, cls in TASK_OPTIONS.items() if name in cls.declared()}
        option = next(iter(by_task.values()))
        if len(by_task) == len(TASK_OPTIONS):
            yield name, option, _meaning(option)
        else:
            yield name, option, " ".join(f"{task}: {_meaning(option)}" for task, option in by_task.items())


def _meaning(option: Option) -> str:
    has_default = option.kind is not bool and option.default is not None
    return f"{option.meaning} Default: {option.default}." if has_default else option.meaning


def options_table() -> str:
    """Returns the options as the table in Markdown that the README shows."""
    rows = [
        f"| `--{name}` | {'' if option.kind is bool else option.type_name} | {meaning} |\n"
        for name, option, meaning in option_rows()
    ]
    return f"| flag | value | meaning |\n|---|---|---|\n{''.join(rows)}"
