"""What a tired operator and a bad disk do to training.

Each scenario takes a folder for its files and a number of tries, and returns how often it was tried and how often what
`docs/reliability.md` promises held; standard error names what did not.
"""

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT

Outcome = tuple[int, int]
"""How often something was tried, and how often it held."""

RUN = ("--model", "cnn_classifier", "--data", "senses")
SETTINGS = (
    "model.embedding_dim=3 model.num_filters=2 training.max_steps=60 training.eval_every=20 training.batch_tokens=1024 "
    "training.precision=float32 training.learning_rate=0.01 training.average_checkpoints=2"
).split()
LOST_LOSS = ("training.learning_rate=1e30", "training.warmup_steps=1", "training.clip_norm=0")
TIMEOUT = 300.0


def begin(workdir: Path, *settings: str) -> list[str]:
    """Returns the arguments that begin a tiny run."""
    return [*RUN, "--workdir", str(workdir), "--set", *SETTINGS, *settings]


def start(arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Starts `training.train` in a process of its own."""
    command = [sys.executable, "-m", "training.train", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)


def ended(process: subprocess.Popen[str]) -> tuple[int | None, str]:
    """Returns exit status and standard error of a process; no status if it did not end."""
    try:
        error = process.communicate(timeout=TIMEOUT)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return None, process.communicate()[1]
    return process.returncode, error


def train(arguments: Sequence[str], **options: Any) -> tuple[int | None, str]:
    """Runs `training.train` to its end."""
    return ended(start(arguments, **options))


def count(outcomes: Iterator[tuple[bool, str]]) -> Outcome:
    """Returns how many there are, and how many are true; the others are described on standard error."""
    tried = held = 0
    for has_held, description in outcomes:
        tried, held = tried + 1, held + has_held
        if not has_held:
            print(f"did not hold: {description}", file=sys.stderr)
    return tried, held


def is_one_line(status: int | None, error: str, statuses: Sequence[int]) -> bool:
    """Returns whether a command ended as one that knows why: with such a status, and no traceback."""
    return status in statuses and bool(error.strip()) and "Traceback" not in error and "Exception ignored" not in error


def log_of(workdir: Path) -> list[dict[str, Any]]:
    """Returns what a run measured, without what depends on the clock."""
    lines = (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    clock = ("seconds", "symbols_per_second")
    return [{key: value for key, value in json.loads(line).items() if key not in clock} for line in lines]


def stops(folder: Path, tries: int = 5) -> Outcome:
    """Runs whose loss is lost, all at once on one core: each says so and exits."""
    core = min(os.sched_getaffinity(0))
    processes = [
        start(begin(folder / f"run{index}", *LOST_LOSS), preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        for index in range(tries)
    ]
    results = [ended(process) for process in processes]
    return count((is_one_line(*result, [1]), f"a run that lost its loss: {result}") for result in results)


def signals(folder: Path, tries: int = 10, seed: int = 0) -> Outcome:
    """Ctrl-C or SIGTERM at a random moment, every other time twice: one line, and 130 or 143."""
    chance = random.Random(seed)
    began = time.monotonic()
    train(begin(folder / "whole"))
    span = time.monotonic() - began

    def outcomes() -> Iterator[tuple[bool, str]]:
        for index in range(tries):
            number, delay = chance.choice([signal.SIGINT, signal.SIGTERM]), chance.uniform(0.15, 1) * span
            process = start(begin(folder / f"run {index}"), preexec_fn=_hear_ctrl_c)
            time.sleep(delay)
            for _ in range(1 + index % 2):
                process.send_signal(number)
                time.sleep(0.1)
            status, error = ended(process)
            finished = status == 0 and (folder / f"run {index}" / "model.keras").is_file()
            held = (finished or is_one_line(status, error, [128 + number])) and "Traceback" not in error
            yield held, f"{number.name} after {delay:.1f} of {span:.1f} s: {status}, {error}"

    return count(outcomes())


def _hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A process in the background of a shell ignores it.


def kills(folder: Path, tries: int = 5, seed: int = 0) -> Outcome:
    """SIGKILL at a random moment, and --resume: the same metrics to the last bit, and nothing left over."""
    chance = random.Random(seed)
    began = time.monotonic()
    train(begin(folder / "whole"))
    span, whole = time.monotonic() - began, log_of(folder / "whole")

    def outcomes() -> Iterator[tuple[bool, str]]:
        for index in range(tries):
            workdir, delay = folder / f"run{index}", chance.uniform(0.3, 1) * span
            process = start(begin(workdir))
            time.sleep(delay)
            process.kill()
            process.communicate()
            begun = (workdir / "config.json").is_file()
            status, error = train(["--workdir", str(workdir), "--resume"] if begun else begin(workdir))
            held = status == 0 and log_of(workdir) == whole and not list(workdir.glob("**/.tmp-*"))
            yield held, f"killed after {delay:.1f} of {span:.1f} s: {status}, {error}"

    return count(outcomes())


def small_files(folder: Path, tries: int = 4) -> Outcome:
    """A file-size limit, as a full disk: one line and exit status 1, and without the limit --resume goes on."""

    def outcomes() -> Iterator[tuple[bool, str]]:
        for index in range(tries):
            workdir, limit = folder / f"run{index}", 1000 * 6**index

            def limited(limit: int = limit) -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            status, error = train(begin(workdir), preexec_fn=limited)
            held = status == 0 or is_one_line(status, error, [1])
            if held and (workdir / "config.json").is_file():
                status, error = train(["--workdir", str(workdir), "--resume"])
                held = status == 0
            yield held, f"files of at most {limit} bytes: {status}, {error}"

    return count(outcomes())


def removed_directory(folder: Path, tries: int = 1) -> Outcome:
    """The work directory is deleted in mid-run: one line, and no traceback."""

    def outcomes() -> Iterator[tuple[bool, str]]:
        for index in range(tries):
            workdir = folder / f"run{index}"
            process = start(begin(workdir, "training.max_steps=2000"))
            while process.poll() is None and not list(workdir.glob("checkpoints/step_*.npz")):
                time.sleep(0.1)
            shutil.rmtree(workdir, ignore_errors=True)
            status, error = ended(process)
            yield is_one_line(status, error, [1, 2]), f"a directory that is gone: {status}, {error}"

    return count(outcomes())


def two_at_once(folder: Path, tries: int = 2) -> Outcome:
    """Two processes in one directory: one trains, the other says that it does."""

    def outcomes() -> Iterator[tuple[bool, str]]:
        for index in range(tries):
            results = [ended(process) for process in [start(begin(folder / f"run{index}")) for _ in range(2)]]
            refused = [result for result in results if result[0] == 2]
            held = sorted(status or 0 for status, _ in results) == [0, 2] and is_one_line(*refused[0], [2])
            yield held, f"two at once: {results}"

    return count(outcomes())


def flipped_bytes(folder: Path, tries: int = 1, seed: int = 0) -> Outcome:
    """One byte is changed in each file of a finished and of an unfinished run: `zoo.load` and --resume end with one
    line, or go on and end with the same metrics and weights.

    In this process, since there are many.
    """
    train(begin(folder / "finished"))
    unfinished = Path(shutil.copytree(folder / "finished", folder / "unfinished"))
    for name in ("model.keras", "MODEL_CARD.md"):
        (unfinished / name).unlink()
    whole, weights, chance = log_of(folder / "finished"), _weights(folder / "finished"), random.Random(seed)

    def outcomes() -> Iterator[tuple[bool, str]]:
        for original in (folder / "finished", unfinished):
            for path in sorted(path for path in original.rglob("*") if path.is_file() and path.stat().st_size):
                for _ in range(tries):
                    copy = Path(shutil.copytree(original, folder / "copy"))
                    damaged = copy / path.relative_to(original)
                    at = _flip(damaged, chance)
                    for ask in (_load, _resume):
                        error = ask(copy, whole, weights)
                        yield not error, f"byte {at} of {path.relative_to(folder)}, {ask.__name__}: {error}"
                    shutil.rmtree(copy)

    return count(outcomes())


def _flip(path: Path, chance: random.Random) -> int:
    """Changes a bit of a byte and returns the byte's place."""
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return at


def _weights(workdir: Path) -> list[bytes]:
    import zoo

    return [variable.numpy().tobytes() for variable in zoo.load(workdir).model.weights]


def _load(workdir: Path, whole: list[dict[str, Any]], weights: list[bytes]) -> str:
    """Returns what is wrong with how a damaged directory loads."""
    from zoo.errors import InputError

    if not (workdir / "model.keras").is_file():
        return ""
    try:
        return "" if _weights(workdir) == weights else "other weights, silently"
    except InputError as error:
        return "" if str(workdir) in str(error) else f"names no file: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _resume(workdir: Path, whole: list[dict[str, Any]], weights: list[bytes]) -> str:
    """Returns what is wrong with how a damaged directory is resumed."""
    from training.train import main
    from zoo.cli import run_command

    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(io.StringIO()):
            status = run_command(main, ["--workdir", str(workdir), "--resume"])
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}; {text.getvalue()}"
    if status:
        return "" if is_one_line(status, text.getvalue(), [2]) else f"{status}: {text.getvalue()}"
    return "" if _weights(workdir) == weights else f"other weights: {text.getvalue()}"


SCENARIOS: dict[str, Callable[[Path], Outcome]] = {
    "a training that stops, five at once on a core": stops,
    "Ctrl-C or SIGTERM at a random moment": signals,
    "SIGKILL at a random moment, and --resume": kills,
    "a limit on the size of files": small_files,
    "the work directory deleted in mid-run": removed_directory,
    "two processes in one directory": two_at_once,
    "a byte changed in each file of a work directory": flipped_bytes,
}
