"""The options of an export, declared once: flags, `--help`, checks, the record in a version and the README's table.

This module needs neither Keras nor TensorFlow.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from zoo.decoding_options import (
    GenerationOptions,
    TranslationOptions,
    check_draft_search,
    check_ensemble,
    check_reranking,
    together,
)
from zoo.errors import InputError
from zoo.options import Option, Options, choice, flag, size, text
from zoo.presets import workdir_path
from zoo.registry import get_spec
from zoo.workdir import WorkDir

DEFAULT_NBEST = 5
DRAFT_LENGTH = 4
"""The default of `draft_length` with a draft model."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """Options for models of every task."""

    weights: str = choice("float32", ("float32", "bfloat16", "int8"), "How matrices are stored.")
    dynamic_batching: bool = flag(False, "Run requests that arrive together as one batch, and split large ones.")
    num_batch_threads: int = size(2, "Batches that `--dynamic_batching` runs at the same time.", maximum=1024)
    xla: bool = flag(
        False, "Add the signature `xla`, which XLA compiles, for servers with `--xla_cpu_compilation_enabled`."
    )
    signatures: str = text(
        "all", "Signatures besides `serving_default`: names separated by commas, `all` or `none`. Fewer are smaller."
    )
    warmup: str = text(
        "none",
        "Signatures besides `serving_default` and `xla` that servers warm up before they accept requests: names "
        "separated by commas, `all` or `none`. The first request to any other signature takes seconds.",
    )

    def resolved(self, model: Any) -> Self:
        """Returns the options with the defaults filled in that depend on the Keras model or on other options."""
        return self


@dataclass(frozen=True, kw_only=True)
class Seq2SeqExportOptions(ExportOptions, TranslationOptions):
    """Options for sequence-to-sequence models."""

    nbest: int | None = size(
        None, f"Translations of the signature `nbest`: `beam_size`, or {DEFAULT_NBEST} if that is 1.", automatic=True
    )
    rerank: str = choice(
        "none",
        ("none", "mbr"),
        "Which translation of the beam is returned: `none`, the one that ranks first, or `mbr`, the one most similar "
        "to the others, by chrF.",
    )

    def check(self) -> None:
        """Allows `nbest` > `beam_size`: the signature `nbest` then searches with `nbest` beams."""
        if self.shortlist and self.xla:
            raise InputError("--shortlist and --xla cannot be combined: the shortlist differs between batches.")
        if self.rerank != "none" and self.xla:
            raise InputError("--rerank and --xla cannot be combined: XLA does not support strings.")
        check_draft_search(self.draft_length, self.beam_size)
        if self.rerank != "none":
            check_reranking(self.rerank, self.beam_size)

    def resolved(self, model: Any) -> Self:
        """See `ExportOptions`."""
        default = self.beam_size if self.beam_size > 1 else DEFAULT_NBEST
        shortlist = min(self.shortlist, model.target_vocab_size)
        return replace(self, nbest=self.nbest or default, length_penalty=self.exponent(), shortlist=shortlist)

    def decoding(self, nbest: int) -> TranslationOptions:
        """Returns the decoding options for `nbest` translations of each text."""
        options = {name: getattr(self, name) for name in TranslationOptions.declared()}
        beam_size = max(nbest, self.beam_size)
        draft_length = self.draft_length if beam_size == 1 else 0
        return TranslationOptions(**{**options, "beam_size": beam_size, "nbest": nbest, "draft_length": draft_length})


@dataclass(frozen=True, kw_only=True)
class LanguageModelExportOptions(ExportOptions):
    """Options for language models."""

    max_length: int | None = GenerationOptions.with_default("max_length", None)
    no_repeat_ngram: int = GenerationOptions.with_default("no_repeat_ngram", 0)
    draft_length: int = GenerationOptions.with_default("draft_length", 0)

    def resolved(self, model: Any) -> Self:
        """See `ExportOptions`."""
        return replace(self, max_length=self.decoding().resolved(model).max_length)

    def decoding(self) -> GenerationOptions:
        """Returns the decoding options for the most probable continuation."""
        return GenerationOptions(
            max_length=self.max_length, no_repeat_ngram=self.no_repeat_ngram, draft_length=self.draft_length
        )


TASK_OPTIONS: dict[str, type[ExportOptions]] = {
    "seq2seq": Seq2SeqExportOptions,
    "classifier": ExportOptions,
    "language_model": LanguageModelExportOptions,
    "sentence_encoder": ExportOptions,
}


@dataclass(frozen=True)
class Export:
    """A resolved export, checked as far as possible without loading the model."""

    workdir: Path
    base: Path
    version: int | None
    check: bool
    options: ExportOptions
    ensemble: tuple[Path, ...] = ()
    source_language: str | None = None
    target_language: str | None = None
    draft: Path | None = None
    draft_text: Path | None = None

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
        draft: str | os.PathLike[str] | None = None,
        draft_text: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """Returns the export for the arguments of `export.saved_model.export_saved_model`; options may be strings."""
        path, base = workdir_path(workdir), Path(output)
        if ensemble:
            check_ensemble(together(workdir, ensemble))
        spec = get_spec(WorkDir(path).read_config()["model"]["name"])
        declared = TASK_OPTIONS[spec.task].declared()
        requested = {name: value for name, value in options.items() if value is not None}
        for name in requested:
            if name not in declared:
                raise InputError(f"--{name} is not an option of {spec.task} models such as {spec.name}.")
        requested = {name: declared[name].read(name, value) for name, value in requested.items()}
        if draft is not None:
            if "draft_length" not in declared:
                raise InputError(f"--draft is not an option of {spec.task} models such as {spec.name}.")
            if not requested.setdefault("draft_length", DRAFT_LENGTH):
                raise InputError("--draft requires a --draft_length of 1 or more. Received: draft_length=0.")
            if requested.get("beam_size", 1) > 1:
                raise InputError(
                    "--draft is for greedy search and cannot be combined with beams. Received: "
                    f"beam_size={requested['beam_size']}."
                )
        resolved = TASK_OPTIONS[spec.task](**requested)
        if "num_batch_threads" in requested and not resolved.dynamic_batching:
            raise InputError("--num_batch_threads requires --dynamic_batching.")
        if version is not None and version < 1:
            raise InputError(f"--version must be positive. Received: {version}.")
        if version is not None and (base / str(version)).exists():
            raise version_exists(base / str(version))
        if draft_text is not None:
            if not getattr(resolved, "draft_length", 0):
                raise InputError("--draft_text requires --draft or --draft_length.")
            if not Path(draft_text).is_file():
                raise InputError(f"--draft_text: {draft_text} is not a file.")
        languages = (source_language, target_language)
        drafting = None if draft is None else workdir_path(draft)
        text = None if draft_text is None else Path(draft_text)
        return cls(path, base, version, check, resolved, tuple(map(workdir_path, ensemble)), *languages, drafting, text)


def version_exists(path: Path) -> InputError:
    """Returns the error for a version whose folder exists already."""
    return InputError(f"{path} exists already; versions are never overwritten. Omit --version to use the next number.")


def option_rows() -> Iterator[tuple[str, Option, str]]:
    """Yields name, declaration and meaning of each option; the meaning names the tasks unless all have the option."""
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
