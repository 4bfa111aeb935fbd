"""New versions under load: none of the answers may fail, and each must be wholly that of one version."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.serving.clients import Clients, Tally
from benchmarks.serving.exports import Exports
from benchmarks.serving.questions import Answer
from benchmarks.serving.report import Goal, none_of, table
from benchmarks.serving.server import Server, publish, serving, until

CLIENTS, SECONDS, EVERY = 8, 120, 5
SENTENCES = 4  # in a request, so that an answer could be put together from two versions
KEPT = 6  # versions on disk; the server has the newest
# Versions with odd numbers, and those with even ones; what the latter say is short, so every answer shows its version.
KINDS: tuple[dict, ...] = ({}, {"max_length": 3})


def measure(exports: Exports, options) -> str:
    """Returns the case as Markdown.

    Args:
        exports: What to serve.
        options: Those of the command; `seconds` is used.
    """
    texts = [text for question in exports.questions for text in question]
    questions = [texts[start : start + SENTENCES] for start in range(0, len(texts), SENTENCES)]
    expected = [exports.answers(questions, **kind) for kind in KINDS]
    folders = [exports.base(**kind) / "1" for kind in KINDS]
    with tempfile.TemporaryDirectory(dir=exports.folder) as folder:  # where files can be shared
        base = Path(folder)
        publish(folders[0], base, 1)
        with serving(base) as server, Clients(server.address, questions) as clients:
            clients.start(CLIENTS)
            published = _replace(server, base, folders, options.seconds or SECONDS)
            tally = clients.stop()
    return judge(tally, expected, published)


def judge(tally: Tally, expected: Sequence[Sequence[Answer]], published: int) -> str:
    """Returns what clients got as Markdown.

    Args:
        tally: What they got.
        expected: The answers of the versions with odd numbers, and those of the others.
        published: How many versions there were.
    """
    seen = len({each.version for each in tally.got})
    median, most, longest = tally.milliseconds
    mixed = tally.wrong(lambda version: expected[(version - 1) % len(expected)])
    asked = tally.answers + tally.failed
    goals = [
        Goal("versions that answered", f"{seen} of {published}", "≥ 2", seen >= 2),
        none_of("failed", tally.failed, asked),
        none_of("mixed or wrong", mixed, tally.answers),
        Goal("waited", f"{median:.1f} ms in the median, 99 % at most {most:.1f} ms, at most {longest:.0f} ms"),
    ]
    return table(
        f"A version every {EVERY} s, {tally.seconds:.0f} s, {CLIENTS} clients of {SENTENCES} sentences each",
        goals,
        [f"- {count} × {failure}" for failure, count in tally.failures.items()],
    )


def _replace(server: Server, base: Path, folders: Sequence[Path], seconds: float) -> int:
    """Has versions appear one after the other, and the oldest vanish; returns the last, once it has answered."""
    last = max(2, int(seconds / EVERY))
    for version in range(2, last + 1):
        time.sleep(EVERY)
        publish(folders[(version - 1) % len(folders)], base, version)
        shutil.rmtree(base / str(version - KEPT), ignore_errors=True)
    until(lambda: last in server.versions())
    time.sleep(EVERY)
    return last
