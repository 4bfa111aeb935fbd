"""Corpora that models write: saved in parts, so that an interrupted command can be resumed."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.config.initial_run import spec_of
from training.data import SPLITS, Pairs, ParallelData, load_data
from zoo.errors import InputError
from zoo.runtime.locks import exclusive
from zoo.workdir import WorkDir, checksum, replacing

PART = 500
"""Texts per part."""

_LOCK = ".lock"

Report = Callable[[str], None]


def parallel_data(spec: str) -> ParallelData:
    """Returns parallel text.

    Raises:
        InputError: The data are not parallel.
    """
    data = load_data(spec)
    if not isinstance(data, ParallelData):
        raise InputError(f"Pairs of texts are needed. Received: --data {spec}, data for a {data.task}.")
    return data


def check_translator(path: str) -> None:
    """Raises InputError if a work directory, or `preset:NAME`, contains a model that does not translate."""
    task = spec_of(path).task
    if task != "seq2seq":
        raise InputError(f"{path} contains a {task} model; a translator is needed.")


def identity(path: str) -> str:
    """Returns the path of a model, and the checksum of its weights."""
    model = WorkDir(path).model
    return f"{path} {checksum(model)}" if model.is_file() else path


@contextlib.contextmanager
def writing(folder: Path, plan_name: str, plan: Mapping[str, Any]) -> Iterator[None]:
    """Opens the folder of a corpus for this process alone, to begin or resume it.

    Args:
        folder: The folder.
        plan_name: Name of the file in it that contains the plan.
        plan: Settings that must be equal when the corpus is resumed.

    Raises:
        InputError: The folder has other contents, was begun with another plan, or another process writes into it.
    """
    others = [path for path in folder.iterdir() if path.name != _LOCK] if folder.is_dir() else []
    file = folder / plan_name
    if others and not file.is_file():
        raise InputError(f"{folder} is not empty. Choose another --output.")
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder / _LOCK, f"Another process writes a corpus into {folder}. Wait until it ends, or end it."):
        if file.is_file():
            saved = json.loads(file.read_text(encoding="utf-8"))
            differing = [name for name in plan if saved.get(name) != plan[name]]
            if differing:
                raise InputError(f"{folder} was begun with other {', '.join(differing)}. Choose another --output.")
        else:
            with replacing(file) as temporary:
                temporary.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
        yield


def in_parts(
    folder: Path, count: int, open_maker: Callable[[], Callable[[range], list[Any]]], report: Report
) -> list[Any]:
    """Returns a row for each of `count` examples; those of finished parts are read from the folder.

    Args:
        folder: The folder, opened by `writing`.
        count: Number of examples.
        open_maker: Returns the function that makes the rows of a range of examples; called only if a part is missing.
        report: Called with a line for each finished part.
    """
    parts = [range(start, min(start + PART, count)) for start in range(0, count, PART)]
    files = [folder / f"part-{number:05d}.json" for number in range(len(parts))]
    missing = [number for number, file in enumerate(files) if not file.is_file()]
    if missing:
        make = open_maker()
        for number in missing:
            start_time, rows = time.monotonic(), make(parts[number])
            with replacing(files[number]) as temporary:
                temporary.write_text(json.dumps(rows), encoding="utf-8")
            report(f"part {number + 1} of {len(parts)}, {len(rows) / (time.monotonic() - start_time):,.0f} texts/s")
    return [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))]


def write_corpus(folder: Path, train: Pairs, data: ParallelData) -> str:
    """Writes a training split, beside the other splits of the data, and returns the SPEC of the corpus."""
    for split in SPLITS:
        pairs = train if split == "train" else data.split(split)
        sides: dict[str, Sequence[str]] = {"source": pairs.source, "target": pairs.target}
        for side, lines in sides.items():
            with replacing(folder / f"{split}.{side}") as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return f"text:{folder}:source-target"


def one_line(text: str) -> str:
    """Returns a text as a line of a file."""
    return " ".join(text.split())
