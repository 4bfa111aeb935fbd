"""The options of an export, declared once: flags, `--help`, checks, the record in a version and the README's table.

Reading and checking them takes neither Keras nor TensorFlow.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from zoo.errors import InputError
from zoo.options import Option, Options, choice, count, flag, number, size
from zoo.presets import workdir_path
from zoo.registry import get_spec
from zoo.workdir import WorkDir

MAX_THREADS = 1024
DEFAULT_NBEST = 5


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """What every task can be exported with."""

    weights: str = choice("float32", ("float32", "bfloat16", "int8"), "How matrices are stored.")
    dynamic_batching: bool = flag(False, "Answer requests that arrive together as one batch, and large ones in parts.")
    num_batch_threads: int = size(2, "Batches that `dynamic_batching` answers at a time.", maximum=MAX_THREADS)
    xla: bool = flag(
        False, "Add the signature `xla`, which XLA compiles, for servers with `--xla_cpu_compilation_enabled`."
    )

    def completed(self, model: Any) -> Self:
        """Returns the options with what they leave to the model or to each other filled in.

        Args:
            model: The Keras model.
        """
        return self


@dataclass(frozen=True, kw_only=True)
class Seq2SeqExportOptions(ExportOptions):
    """What sequence-to-sequence models can be exported with."""

    beam_size: int = size(1, "Hypotheses of beam search; 1 is greedy search.")
    nbest: int | None = size(
        None, f"Answers of the signature `nbest`: `beam_size`, or {DEFAULT_NBEST} if that is 1.", automatic=True
    )
    length_penalty: float = number(0.6, "Exponent of beam search's length penalty.", minimum=0)
    coverage_penalty: float = number(0.0, "Factor of beam search's coverage penalty.", minimum=0)
    max_length: int = size(256, "Largest number of target symbols.")
    no_repeat_ngram: int = count(0, "No n symbols come twice in an answer; 0 allows it.")

    def completed(self, model: Any) -> Self:
        """See `ExportOptions`."""
        default = self.beam_size if self.beam_size > 1 else DEFAULT_NBEST
        return self if self.nbest else replace(self, nbest=default)


@dataclass(frozen=True, kw_only=True)
class LanguageModelExportOptions(ExportOptions):
    """What language models can be exported with."""

    max_length: int | None = size(
        None, "Largest number of symbols, those of the prompt included: what the model can hold.", automatic=True
    )
    no_repeat_ngram: int = count(0, "No n symbols come twice in a text; 0 allows it.")

    def completed(self, model: Any) -> Self:
        """See `ExportOptions`."""
        return self if self.max_length else replace(self, max_length=model.max_length)


TASK_OPTIONS: dict[str, type[ExportOptions]] = {
    "seq2seq": Seq2SeqExportOptions,
    "classifier": ExportOptions,
    "language_model": LanguageModelExportOptions,
}


@dataclass(frozen=True)
class Export:
    """An export that has been resolved and checked, as far as that needs no model.

    Attributes:
        workdir: The work directory.
        base: Base path of the versions.
        version: Number of the version; `None` for the next free one.
        check: Whether its answers are compared with those of the work directory before it becomes visible.
        options: The options of its task.
    """

    workdir: Path
    base: Path
    version: int | None
    check: bool
    options: ExportOptions

    @classmethod
    def resolve(
        cls,
        workdir: str | os.PathLike[str],
        output: str | os.PathLike[str],
        version: int | None = None,
        check: bool = False,
        **options: Any,
    ) -> Self:
        """Returns the export that is asked for.

        Args:
            workdir: The work directory, or `preset:NAME`.
            output: Base path of the versions.
            version: See `Export`.
            check: See `Export`.
            **options: Options by name, as values or as texts; `None` is the default.

        Raises:
            InputError: For a bad work directory, a version that exists, or an option that is unknown, of another task,
                out of range or of no use.
        """
        source, base = workdir_path(workdir), Path(output)
        spec = get_spec(WorkDir(source).read_config()["model"]["name"])
        given = {name: value for name, value in options.items() if value is not None}
        declared = TASK_OPTIONS[spec.task].declared()
        for name in given:
            if name not in declared:
                raise InputError(f"--{name} is not for {spec.task} models such as {spec.name}.")
        resolved = TASK_OPTIONS[spec.task](**{name: declared[name].read(name, given[name]) for name in given})
        if "num_batch_threads" in given and not resolved.dynamic_batching:
            raise InputError("--num_batch_threads is of no use without --dynamic_batching.")
        if version is not None and version < 1:
            raise InputError(f"--version must be positive. Received: {version}.")
        if version is not None and (base / str(version)).exists():
            raise version_exists(base / str(version))
        return cls(source, base, version, check, resolved)


def version_exists(path: Path) -> InputError:
    """Returns the error for a version that exists already.

    Args:
        path: Its folder.
    """
    return InputError(f"{path} exists already; versions are never overwritten. Leave out --version for the next one.")


def option_rows() -> Iterator[tuple[str, Option, str]]:
    """Yields name, declaration and meaning of each option; the meaning names the tasks unless it is for all of them."""
    names = dict.fromkeys(name for options in TASK_OPTIONS.values() for name in options.declared())
    for name in names:
        by_task = {task: cls.declared()[name] for task, cls in TASK_OPTIONS.items() if name in cls.declared()}
        first, *others = by_task.values()
        if len(by_task) == len(TASK_OPTIONS):
            yield name, first, _meaning(first)
        else:
            yield name, first, " ".join(f"{task}: {_meaning(option)}" for task, option in by_task.items())


def _meaning(option: Option) -> str:
    if option.kind is bool or option.default is None:
        return option.meaning
    return f"{option.meaning} Default: {option.default}."


def options_table() -> str:
    """Returns the options as a table in Markdown, which the README shows."""
    rows = "".join(f"| `--{name}` | {option.type_name} | {meaning} |\n" for name, option, meaning in option_rows())
    return f"| flag | value | meaning |\n|---|---|---|\n{rows}"
