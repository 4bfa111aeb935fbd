"""Runs the comparison of families, and stores their results."""

import argparse
import dataclasses
import functools
import hashlib
import importlib.metadata
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.parity.families import FAMILIES, Family
from benchmarks.parity.inputs import arabic_words, beginnings, hostile_lines, read_lines, sentences
from benchmarks.parity.measure import Comparison, Result
from benchmarks.parity.report import markdown
from benchmarks.runner.command import write_page
from benchmarks.runner.process import ROOT
from benchmarks.runner.report import machine_and_commit
from benchmarks.runner.store import load_or_measure, stored
from training.importing.workdir import import_checkpoint

PAGE = ROOT / "docs" / "parity.md"
PACKAGES = ("transformers", "tokenizers", "sentencepiece", "torch", "ctranslate2", "tensorflow", "keras")
SERVED = "OPUS-MT en-mg"
"""The family that is also compared over gRPC."""
LOGIT_TEXTS = 21
TEXTS, WORDS, LINES = 200, 1000, 5000
SHOWN = 3
"""The number of differences of a kind on the page."""


def run(options: argparse.Namespace, chosen: Sequence[Family], command: str) -> int:
    """Runs the comparison and writes its tables; returns the exit status.

    The page includes the families that were measured before with the same settings.
    """
    families = [family for family in FAMILIES if family.vocabulary or not options.only]
    divisor = 10 if options.quick else 1
    read = read_lines(options.text)
    every = divisor if options.lines is None else max(1, round(len(read) / options.lines))
    lines = [*read[::every], *hostile_lines(LINES // divisor)]
    results: list[Result] = []
    missing: dict[str, str] = {}
    for family in families:
        name = f"parity/{re.sub(r'[^A-Za-z0-9]+', '_', family.name)}"
        settings = {"quick": options.quick, "lines": lines_checksum(lines), "versions": _versions()}
        settings |= {"only": options.only} if options.only else {}
        result = None if family in chosen and options.fresh else stored(name, settings)
        if result is None and family in chosen:
            print(f"{family.name} …", file=sys.stderr, flush=True)
            if absent := _absent(family, options.pretrained):
                missing[family.name] = f"{absent} is not there"
            else:
                measure = functools.partial(_measure, family, options.pretrained, lines, divisor, options.only)
                result = _try(name, settings, measure)
        if result is None:
            missing.setdefault(family.name, "it failed" if family in chosen else "not yet measured")
        else:
            results.append(Result.of(result))
    text = markdown(results, missing, command, SHOWN)
    write_page(text, options.output or (None if options.quick or options.only else PAGE))
    return 1 if "it failed" in missing.values() else 0


def lines_checksum(lines: Sequence[str]) -> str:
    """Returns a checksum of lines."""
    return hashlib.sha256("\0".join(lines).encode()).hexdigest()[:8]


def _try(name: str, settings: Mapping[str, Any], measure: Callable[[], dict[str, Any]]) -> Any:
    """Returns the result of a family as plain data; `None` if it fails, after printing the traceback."""
    try:
        return load_or_measure(name, settings, measure, fresh=True)
    except Exception:  # of any of the software
        traceback.print_exc()
        return None


def _measure(family: Family, pretrained: Path, lines: Sequence[str], divisor: int, only: str | None) -> dict[str, Any]:
    where = f"{machine_and_commit().partition(', load average')[0]}; {', '.join(_versions())}"
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        result = compare(family, pretrained, Path(folder), lines, divisor, only)
    return dataclasses.asdict(dataclasses.replace(result, where=where))


def compare(
    family: Family, pretrained: Path, folder: Path, lines: Sequence[str], divisor: int = 1, only: str | None = None
) -> Result:
    """Returns the comparison of a family, whose checkpoint is written into an empty folder.

    Args:
        family: The family.
        pretrained: The folder of tokenizers.
        folder: The empty folder.
        lines: The inputs of the tokenizer.
        divisor: Divides the usual number of texts.
        only: `"ids"` for the tokenizer alone.
    """
    checkpoint, workdir = folder / "checkpoint", folder / "imported"
    checkpoint.mkdir()
    reference = family.write(pretrained, checkpoint)
    import_checkpoint(f"{family.source}:{checkpoint}", workdir)
    comparison, result = Comparison(workdir, reference), Result(family.name)
    if not only:
        texts = _texts(family, comparison, divisor)
        result.logits = comparison.logits(texts[:LOGIT_TEXTS])
        if family.task == "sentence_encoder":
            result.logits["SavedModel"] = comparison.served_vectors(texts, folder)
        else:
            result.answers, result.distinct = comparison.answers(texts, folder, family.name == SERVED)
    if family.vocabulary:
        result.tokenizer = f"{family.vocabulary} | {reference.vocabulary.software}"
        result.ids, result.tokens = comparison.tokens(lines)
    return result


def _texts(family: Family, comparison: Comparison, divisor: int) -> list[str]:
    if family.words:
        letters = [piece for piece in comparison.run.tokenizers[0].piece_table() if len(piece) == 1]
        return arabic_words(WORDS // divisor, letters)
    texts = sentences(TEXTS // divisor)
    return beginnings(texts) if family.task == "language_model" else texts


def _absent(family: Family, pretrained: Path) -> str:
    """Returns a missing file of a family; empty if there is none."""
    return next((name for name in family.files if not (pretrained / name).is_file()), "")


def _versions() -> list[str]:
    return [f"{package} {importlib.metadata.version(package)}" for package in PACKAGES]
