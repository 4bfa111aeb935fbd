"""Sequence-level distillation: what teachers write takes the place of the references."""

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zoo
from training.data import Pairs, ParallelData, load_data
from training.data.dataset import SPLITS
from zoo.errors import InputError
from zoo.inference.seq2seq_run import Seq2SeqRun
from zoo.locks import exclusive
from zoo.workdir import WorkDir, checksum, replacing

PLAN, LOCK = "distill.json", ".lock"
PART = 500
"""Pairs that are translated and kept at a time."""


@dataclass(frozen=True)
class Request:
    """What is distilled.

    Attributes:
        teachers: Work directories of translators, or `preset:NAME`.
        data: SPEC of parallel text.
        output: The folder that is written, for `--data text:OUTPUT:source-target`.
        beam_size: How many translations of each teacher there are to choose from.
    """

    teachers: tuple[str, ...]
    data: str
    output: Path
    beam_size: int = 5


def distill(
    request: Request, report: Callable[[str], None] = lambda line: print(line, file=sys.stderr)
) -> dict[str, Any]:
    """Writes the corpus, or goes on with one that was begun, and returns figures of it.

    Of the `beam_size` best translations of every teacher, the one that is most like the reference takes its place in
    the training split, by BLEU of a single sentence; of equal ones, that of the highest log probability. The reference
    stays where no teacher writes anything. The other splits are copied.

    Args:
        request: What is distilled.
        report: Called with a line for each part that is finished.

    Returns:
        `pairs`, mean sentence `bleu` of the best translation of the first teacher and `chosen_bleu` of those that were
        taken, against the references, in the training split; and the `data` that is to be trained on.

    Raises:
        InputError: For something that is no translator, other data than pairs, or a folder with something else, of
            another request, or into which another process writes.

    Reference:
        Kim and Rush 2016, "Sequence-Level Knowledge Distillation", section 3.3 (interpolation),
        https://arxiv.org/abs/1606.07947
    """
    data = load_data(request.data)
    if not isinstance(data, ParallelData):
        raise InputError(f"Pairs of texts can be distilled. Received: --data {request.data}, data for a {data.task}.")
    folder = request.output
    others = [path for path in folder.iterdir() if path.name != LOCK] if folder.is_dir() else []
    if others and not (folder / PLAN).is_file():
        raise InputError(f"{folder} is not empty. Give another --output.")
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"Another process distils into {folder}. Wait until it ends, or end it."
    with exclusive(folder / LOCK, busy):
        return _distill(request, data, folder, report)


def _distill(request: Request, data: ParallelData, folder: Path, report: Callable[[str], None]) -> dict[str, Any]:
    pairs = data.split("train")
    _check_plan(folder / PLAN, _plan(request, pairs))
    parts = [range(start, min(start + PART, len(pairs))) for start in range(0, len(pairs), PART)]
    files = [folder / f"part-{number:05d}.json" for number in range(len(parts))]
    missing = [number for number, file in enumerate(files) if not file.is_file()]
    runs = [_teacher(path) for path in request.teachers] if missing else []
    for number in missing:
        begun, examples = time.monotonic(), pairs.take(parts[number])
        chosen = best_of(runs, examples, request.beam_size)
        with replacing(files[number]) as temporary:
            temporary.write_text(json.dumps([dataclasses.asdict(each) for each in chosen]), encoding="utf-8")
        rate = len(examples) / (time.monotonic() - begun)
        report(f"part {number + 1} of {len(parts)}, {rate:,.0f} pairs/s")
    rows = [Choice(**row) for file in files for row in json.loads(file.read_text(encoding="utf-8"))]
    for split in SPLITS:
        examples = data.split(split)
        target = [row.text for row in rows] if split == "train" else examples.target
        for side, lines in (("source", examples.source), ("target", target)):
            with replacing(folder / f"{split}.{side}") as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    count = max(len(rows), 1)
    return {
        "pairs": len(rows),
        "bleu": round(sum(row.bleu for row in rows) / count, 2),
        "chosen_bleu": round(sum(row.chosen_bleu for row in rows) / count, 2),
        "data": f"text:{folder}:source-target",
    }


@dataclass(frozen=True)
class Choice:
    """The translation that takes the place of a reference.

    Attributes:
        text: The translation.
        bleu: BLEU of the first teacher's best translation against the reference.
        chosen_bleu: BLEU of the one that was taken.
    """

    text: str
    bleu: float
    chosen_bleu: float


def best_of(runs: Sequence[Seq2SeqRun], pairs: Pairs, beam_size: int) -> list[Choice]:
    """Returns the translation of each source that is most like its reference; see `distill`."""
    from sacrebleu.metrics.bleu import BLEU

    lowercase = any(run.config["data"]["lowercase"] for run in runs)  # such a teacher writes no capitals
    metric = BLEU(effective_order=True, lowercase=lowercase)
    lists = [run.nbest(pairs.source, beam_size=beam_size) for run in runs]
    choices = []
    for reference, *of_teachers in zip(pairs.target, *lists, strict=True):
        # One line each, as the files have them.
        found = [(" ".join(each.text.split()), each.log_prob) for hypotheses in of_teachers for each in hypotheses]
        measured = [(metric.sentence_score(text, [reference]).score, log_prob, text) for text, log_prob in found]
        score, _, text = max((each for each in measured if each[2]), default=(100.0, 0.0, reference))
        choices.append(Choice(text, measured[0][0], score))
    return choices


def _teacher(path: str) -> Seq2SeqRun:
    run: Seq2SeqRun = zoo.load(path)
    if run.spec.task != "seq2seq":
        raise InputError(f"{path} holds a {run.spec.task} model; a teacher translates.")
    return run


def _plan(request: Request, pairs: Pairs) -> dict[str, Any]:
    """Returns what a command that goes on must have in common with the one before."""
    return {
        "teachers": [_identity(path) for path in request.teachers],
        "data": request.data,
        "pairs": len(pairs),
        "beam_size": request.beam_size,
    }


def _identity(path: str) -> str:
    """Returns a teacher's path, and the checksum of its weights."""
    model = WorkDir(path).model
    return f"{path} {checksum(model)}" if model.is_file() else path


def _check_plan(file: Path, plan: dict[str, Any]) -> None:
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8"))
        differing = [name for name in plan if before.get(name) != plan[name]]
        if differing:
            raise InputError(f"{file.parent} was begun with other {', '.join(differing)}. Give another --output.")
    else:
        with replacing(file) as temporary:
            temporary.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
