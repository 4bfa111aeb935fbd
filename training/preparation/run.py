"""Runs a preparation; after an interruption, it keeps the complete shards and computes the others."""

import dataclasses
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.config.options import DataConfig
from training.config.recipes import data_recipe
from training.config.vocabularies import (
    VOCABULARY_SETTINGS,
    is_one_text,
    make_tokenizers,
    settle,
    suggested,
    with_files,
)
from training.data import SPLITS, Dataset, Labelled, LabelledData, Pairs, ParallelData, TextData, Texts, load_data
from training.data.shards.manifest import NAME, FileEntry, Manifest, SplitEntry
from training.preparation.by_length import write_order
from training.preparation.duplicates import digests_path, make_digests, mark_duplicates
from training.preparation.request import SAVED_NAMES, PreparationOptions, PreparationRequest
from training.preparation.runners import Runner, Work, WorkerLost
from training.preparation.sample import Sample
from training.preparation.shard_job import PLAN, WORK, Job, Plan, Report, duplicates_path, make_shard
from training.preparation.staging import StagedSplit, StagedTexts, stage
from zoo.errors import InputError
from zoo.runtime.locks import exclusive
from zoo.text import load_tokenizer
from zoo.workdir import replacing

_EXAMPLES_OF_A_SHARD = 250_000
_LABELS_AT_A_TIME = 1 << 16
_SECONDS_BETWEEN_LINES = 10.0


def prepare(request: PreparationRequest, folder: Path, runner: Runner) -> Manifest:
    """Writes the token shards of a request, unless they exist already, and returns their manifest.

    Args:
        request: The data, settings and options.
        folder: The output folder, which is created.
        runner: Runs the jobs that make the shards.

    Raises:
        InputError: For bad data, or a folder that has other contents or that another process writes into.
        WorkerLost: If a worker process ended unexpectedly.
    """
    try:
        (folder / WORK).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}).") from error
    busy = f"Another process is preparing data in {folder}. Wait until it ends, or end it."
    with exclusive(folder / ".lock", busy):
        if (folder / NAME).is_file():
            manifest = _read_finished(request, folder)
        else:
            _remove_leftovers(folder)
            manifest = _Preparation(request, folder, runner).finish()
        shutil.rmtree(folder / WORK, ignore_errors=True)
    return manifest


def _read_finished(request: PreparationRequest, folder: Path) -> Manifest:
    """Returns the manifest of a finished preparation; raises InputError if its request differs."""
    manifest = Manifest.read(folder)
    if manifest.request != request.to_dict():
        difference = _difference(manifest.request, request)
        raise InputError(f"{folder} contains other token shards: {difference}. Choose another --output.")
    _log(f"{folder} is already prepared")
    return manifest


def _difference(before: Any, request: PreparationRequest) -> str:
    """Returns a description of the differences between two requests."""
    now = request.to_dict()
    if before["spec"] != now["spec"]:
        return f"of {before['spec']}, not {now['spec']}"
    declared = DataConfig.declared()
    pairs = {
        f"data.{key}": tuple(values["settings"].get(key, declared[key].default) for values in (before, now))
        for key in VOCABULARY_SETTINGS
    }
    for name in PreparationOptions.declared():
        saved = SAVED_NAMES.get(name, name)
        pairs[f"--{name}"] = before["options"].get(saved), now["options"][saved]
    return ", ".join(f"{key} was {old} and is {new}" for key, (old, new) in pairs.items() if old != new) or "unknown"


def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files of processes that were killed; this process holds the lock."""
    for path in folder.glob(".tmp-*"):
        path.unlink(missing_ok=True)


@dataclass
class _Preparation:
    """The steps of a preparation, which reuse the results of an interrupted one with the same request."""

    request: PreparationRequest
    folder: Path
    runner: Runner

    def finish(self) -> Manifest:
        plan = self._plan()
        splits = {name: self._make_split(plan, name) for name in plan.splits}
        names = [name for name in plan.splits["train"].columns if name != "label"]
        tokenizers = {name: load_tokenizer(self.folder / "tokenizers" / name).identity() for name in names}
        manifest = Manifest(
            spec=plan.request["spec"],
            task=plan.task,
            request=plan.request,
            settings=plan.settings,
            dataset=plan.dataset,
            tokenizers=tokenizers,
            classes=plan.classes,
            splits=splits,
        )
        with replacing(self.folder / NAME) as temporary:
            temporary.write_text(manifest.to_json(), encoding="utf-8")
        return manifest

    def _plan(self) -> Plan:
        """Returns the plan: that of an earlier process, or a new one after the first pass over the data."""
        path = self.folder / WORK / PLAN
        if path.is_file():
            plan = Plan.read(self.folder)
            if plan.request != self.request.to_dict():
                difference = _difference(plan.request, self.request)
                raise InputError(
                    f"{self.folder} contains an unfinished preparation that differs: {difference}. Choose another "
                    "--output, or remove it."
                )
            _log(f"resuming the preparation in {self.folder}")
            return plan
        if any(entry.name not in (WORK, ".lock") for entry in self.folder.iterdir() if entry.name != "tokenizers"):
            raise InputError(f"{self.folder} is not empty, and contains no preparation. Choose another --output.")
        plan = self._new_plan()
        with replacing(path) as temporary:
            temporary.write_text(plan.to_json(), encoding="utf-8")
        return plan

    def _new_plan(self) -> Plan:
        requested, options = self.request.settings, self.request.options
        data = load_data(self.request.spec, max_examples=requested.get("max_examples", 0))
        _check(self.request, data)
        recipe = suggested(data_recipe(data.spec, data.task), requested)
        settings = with_files(DataConfig(**{**recipe, **requested, "spec": data.spec}), data.task)
        sample, staged = Sample(options.sample, options.seed), dict[str, StagedSplit]()
        for split in (name for name in SPLITS if name in data.splits):
            _log(f"reading {data.spec}, {split}")
            skipping = split == "train" and options.invalid == "skip"
            staged[split] = stage(
                data, split, self.folder / WORK / split, sample if split == "train" else None, skipping
            )
        classes = _labels(staged["train"]) if isinstance(data, LabelledData) else []
        sampled = _of_sample(data, sample)
        settings = settle(settings, sampled)
        if not settings.tokenizer_sha256:
            _log(f"learning the vocabulary from {len(sampled.split('train')):,} examples")
        for name, tokenizer in make_tokenizers(settings, sampled).items():
            tokenizer.save(self.folder / "tokenizers" / name)
        chosen = {key: getattr(settings, key) for key in VOCABULARY_SETTINGS}
        described, one_text = _described(data, staged), is_one_text(settings, data)
        return Plan(self.request.to_dict(), data.task, chosen, described, classes, one_text, staged)

    def _make_split(self, plan: Plan, split: str) -> SplitEntry:
        jobs = _jobs(plan, split, self.folder)
        if split == "train" and plan.options.duplicates == "drop" and not duplicates_path(self.folder, split).is_file():
            self._do(make_digests, jobs, "comparing", lambda job: digests_path(job).is_file())
            mark_duplicates(self.folder, jobs)
        self._do(make_shard, jobs, "encoding", lambda job: _is_made(job))
        reports = [_checked(job) for job in jobs]
        entries = [
            FileEntry(job.file, report.examples, report.bytes, report.sha256)
            for job, report in zip(jobs, reports, strict=True)
        ]
        examples = sum(entry.examples for entry in entries)
        if not examples:
            raise InputError(
                f"{plan.request['spec']}, {split}: all {jobs[-1].end:,} examples are left out by the options."
            )
        skipped = [line for report in reports for line in report.skipped or ()]
        if skipped:
            with replacing(self.folder / "skipped.txt") as temporary:
                temporary.write_text("".join(f"{line}\n" for line in skipped), encoding="utf-8")
        columns = [name for name in plan.splits[split].columns if name != "label"]
        order = None
        if split == "train" and not plan.dataset.get("joined"):
            _log(f"sorting {examples:,} examples by length")
            order = write_order(self.folder, f"{split}.order", entries, columns)
        dropped, tokens = _total(report.dropped for report in reports), _total(report.tokens for report in reports)
        return SplitEntry(examples, jobs[-1].end, dropped, tokens, plan.keeps_texts(split), entries, order)

    def _do(self, work: Work, jobs: Sequence[Job], doing: str, is_done: Callable[[Job], bool]) -> None:
        """Runs the jobs that are not done, and reports the progress."""
        remaining = [job for job in jobs if not is_done(job)]
        total, done = jobs[-1].end, jobs[-1].end - sum(job.end - job.first for job in remaining)
        last_report = start_time = time.monotonic()
        first = done
        for job in self.runner(work, remaining):
            done += job.end - job.first
            if (report := Report.read(job)) and report.error:
                raise InputError(report.error)
            now = time.monotonic()
            if now - last_report >= _SECONDS_BETWEEN_LINES or done == total:
                last_report = now
                rate = (done - first) / max(now - start_time, 1e-3)
                _log(f"{doing} {jobs[0].split}: {done:,} of {total:,} examples, {rate:,.0f}/s")


def _check(request: PreparationRequest, data: Dataset[Any]) -> None:
    """Raises InputError for options that do not apply to the data."""
    options = request.options
    if data.shards is not None:
        raise InputError(f"{request.spec} is already prepared; use the data that it was prepared from.")
    if options.invalid == "skip" and data.line_files is None:
        raise InputError(f"--invalid skip is for text: and lines:. Received: {request.spec}.")
    if options.empty == "drop" and not (isinstance(data, ParallelData) and data.line_files):
        raise InputError(f"--empty drop is for text:. Received: {request.spec}.")
    if options.max_ratio and not isinstance(data, ParallelData):
        raise InputError(f"--max_ratio compares the sides of pairs; {request.spec} has none.")
    lengths = options.min_tokens > 1 or options.max_tokens or options.duplicates == "drop"
    if isinstance(data, TextData) and data.joined and lengths:
        raise InputError(f"The lines of {request.spec} form one continuous text; none can be left out.")
    if isinstance(data, LabelledData) and data.parts and options.leaves_out:
        raise InputError(f"{request.spec} consists of parts; none of their examples can be left out.")


def _labels(staged: StagedSplit) -> list[str]:
    """Returns the labels of a split in alphabetical order."""
    column, labels = StagedTexts(staged.columns["label"]), set[str]()
    for first in range(0, staged.examples, _LABELS_AT_A_TIME):
        labels.update(text for text in column.texts(first, min(first + _LABELS_AT_A_TIME, staged.examples)) if text)
    return sorted(labels)


def _of_sample(data: Dataset[Any], sample: Sample) -> Dataset[Any]:
    """Returns a dataset with a sample of the training examples instead of all."""
    columns = list(zip(*sample.texts(), strict=True)) or [(), ()]
    kind = {ParallelData: Pairs, LabelledData: Labelled, TextData: Texts}[type(data)]
    examples = kind(*map(list, columns[: len(dataclasses.fields(kind))]))
    return dataclasses.replace(data, load_split=lambda name: examples)


def _described(data: Dataset[Any], staged: Mapping[str, StagedSplit]) -> dict[str, Any]:
    """Returns the attributes of a dataset besides its examples."""
    if isinstance(data, TextData):
        return {"joined": data.joined, "prompt_end": data.prompt_end}
    if isinstance(data, LabelledData):
        return {"parts": list(data.parts), "part_sizes": {name: data.part_sizes(name) for name in staged}}
    return {}


def _jobs(plan: Plan, split: str, folder: Path) -> list[Job]:
    examples = plan.splits[split].examples
    requested = plan.options.shards if split == "train" else 0
    count = min(requested or -(-examples // _EXAMPLES_OF_A_SHARD), examples)
    ends = [examples * number // count for number in range(count + 1)]
    return [Job(str(folder), split, number, *ends[number : number + 2]) for number in range(count)]


def _is_made(job: Job) -> bool:
    report = Report.read(job)
    return report is not None and not report.error


def _checked(job: Job) -> Report:
    """Returns the report of a finished job; raises its error."""
    report = Report.read(job)
    if report is None:
        raise WorkerLost(f"{job.file} was not made. Run the same command to resume.")
    if report.error:
        raise InputError(report.error)
    return report


def _total(counts: Iterable[Mapping[str, int] | None]) -> dict[str, int]:
    """Returns the sums of counts by their names."""
    total: Counter[str] = Counter()
    for part in counts:
        total.update(part or {})
    return dict(total)


def _log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
