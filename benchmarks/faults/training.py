"""Faults of training: signals, a full disk, damaged files."""

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

from benchmarks.faults.table import Attempt, Case, Stage
from benchmarks.runner.process import ROOT

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
    """Starts `training.train` in a new process."""
    command = [sys.executable, "-m", "training.train", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)


def ended(process: subprocess.Popen[str]) -> tuple[int | None, str]:
    """Waits for a process; returns its exit status, `None` if it did not end in time, and its standard error."""
    try:
        error = process.communicate(timeout=TIMEOUT)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return None, process.communicate()[1]
    return process.returncode, error


def train(arguments: Sequence[str], **options: Any) -> tuple[int | None, str]:
    """Runs `training.train` to its end."""
    return ended(start(arguments, **options))


def is_one_line(status: int | None, error: str, statuses: Sequence[int]) -> bool:
    """Returns whether a command ended with one of the statuses and a message without a traceback."""
    return status in statuses and bool(error.strip()) and "Traceback" not in error and "Exception ignored" not in error


def limit_files(size: int) -> Callable[[], None]:
    """Returns a function that limits the size of the files of this process, for `preexec_fn`."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def log_of(workdir: Path) -> list[dict[str, Any]]:
    """Returns the metrics of a run without those that depend on the clock."""
    lines = (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    clock = ("seconds", "symbols_per_second")
    return [{key: value for key, value in json.loads(line).items() if key not in clock} for line in lines]


def finished(stage: Stage) -> tuple[Path, float]:
    """Returns a tiny run that was not interrupted, and the seconds that it took."""
    workdir, seconds = stage.shared / "finished run", stage.shared / "seconds"
    if not seconds.exists():
        began = time.monotonic()
        status, error = train(begin(workdir))
        if status != 0:
            raise RuntimeError(f"A run that is not interrupted ends with status {status}: {error}")
        seconds.write_text(f"{time.monotonic() - began}", encoding="utf-8")
    return workdir, float(seconds.read_text(encoding="utf-8"))


def stops(stage: Stage) -> Iterator[Attempt]:
    """Runs whose loss becomes NaN, all at once on one core."""
    core = min(os.sched_getaffinity(0))
    processes = [
        start(begin(stage.folder / f"run{index}", *LOST_LOSS), preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        for index in range(stage.tries)
    ]
    for result in [ended(process) for process in processes]:
        yield Attempt(is_one_line(*result, [1]), f"a run that lost its loss: {result}")


def signals(stage: Stage) -> Iterator[Attempt]:
    """Sends SIGINT or SIGTERM at a random moment, every other time twice."""
    _, span = finished(stage)
    stage.begin()
    for index in range(stage.tries):
        workdir = stage.folder / f"run {index}"
        number, delay = stage.chance.choice([signal.SIGINT, signal.SIGTERM]), stage.chance.uniform(0.15, 1) * span
        process = start(begin(workdir), preexec_fn=_handle_sigint)
        time.sleep(delay)
        for _ in range(1 + index % 2):
            process.send_signal(number)
            time.sleep(0.1)
        status, error = ended(process)
        done = status == 0 and (workdir / "model.keras").is_file()
        held = (done or is_one_line(status, error, [128 + number])) and "Traceback" not in error
        yield Attempt(held, f"{number.name} after {delay:.1f} of {span:.1f} s: {status}, {error}")


def _handle_sigint() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a background process of a shell ignores


def kills(stage: Stage) -> Iterator[Attempt]:
    """Sends SIGKILL at a random moment, and resumes."""
    original, span = finished(stage)
    whole = log_of(original)
    stage.begin()
    for index in range(stage.tries):
        workdir, delay = stage.folder / f"run{index}", stage.chance.uniform(0.3, 1) * span
        process = start(begin(workdir))
        time.sleep(delay)
        process.kill()
        process.communicate()
        has_begun = (workdir / "config.json").is_file()
        status, error = train(["--workdir", str(workdir), "--resume"] if has_begun else begin(workdir))
        held = status == 0 and log_of(workdir) == whole and not list(workdir.glob("**/.tmp-*"))
        yield Attempt(held, f"killed after {delay:.1f} of {span:.1f} s: {status}, {error}")


def small_files(stage: Stage) -> Iterator[Attempt]:
    """Limits the size of files, like a full disk, and resumes without the limit."""
    for index in range(stage.tries):
        workdir, limit = stage.folder / f"run{index}", 1000 * 6**index
        status, error = train(begin(workdir), preexec_fn=limit_files(limit))
        held = status == 0 or is_one_line(status, error, [1])
        if held and (workdir / "config.json").is_file():
            status, error = train(["--workdir", str(workdir), "--resume"])
            held = status == 0
        yield Attempt(held, f"files of at most {limit} bytes: {status}, {error}")


def removed_directory(stage: Stage) -> Iterator[Attempt]:
    """Deletes the work directory of a running training."""
    for index in range(stage.tries):
        workdir = stage.folder / f"run{index}"
        process = start(begin(workdir, "training.max_steps=2000"))
        while process.poll() is None and not list(workdir.glob("checkpoints/step_*.npz")):
            time.sleep(0.1)
        shutil.rmtree(workdir, ignore_errors=True)
        status, error = ended(process)
        yield Attempt(is_one_line(status, error, [1, 2]), f"a directory that is gone: {status}, {error}")


def two_at_once(stage: Stage) -> Iterator[Attempt]:
    """Starts two processes in one directory."""
    for index in range(stage.tries):
        results = [ended(process) for process in [start(begin(stage.folder / f"run{index}")) for _ in range(2)]]
        refused = [result for result in results if result[0] == 2]
        held = sorted(status or 0 for status, _ in results) == [0, 2] and is_one_line(*refused[0], [2])
        yield Attempt(held, f"two at once: {results}")


def flipped_bits(stage: Stage) -> Iterator[Attempt]:
    """Flips one bit in a file of a finished or an unfinished run, which is then loaded and resumed in this process."""
    original, _ = finished(stage)
    unfinished = Path(shutil.copytree(original, stage.folder / "unfinished"))
    for name in ("model.keras", "MODEL_CARD.md"):
        (unfinished / name).unlink()
    weights = _weights(original)
    stage.begin()
    files = [
        (folder, path.relative_to(folder))
        for folder in (original, unfinished)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size
    ]
    while True:  # the files in another order each time, since time may end before the last one
        for folder, path in stage.chance.sample(files, len(files)):
            for use in (_load, _resume) if (folder / "model.keras").exists() else (_resume,):
                copy = Path(shutil.copytree(folder, stage.folder / "copy"))
                at = _flip(copy / path, stage.chance)
                error = use(copy, weights)
                shutil.rmtree(copy)
                yield Attempt(not error, f"bit {at} of {path} of a run, {folder.name}, {use.__name__}: {error}")


def _flip(path: Path, chance: random.Random) -> int:
    """Flips a bit of a file and returns its position."""
    content = bytearray(path.read_bytes())
    at = chance.randrange(8 * len(content))
    content[at // 8] ^= 1 << at % 8
    path.write_bytes(content)
    return at


def _weights(workdir: Path) -> list[bytes]:
    import zoo

    return [variable.numpy().tobytes() for variable in zoo.load(workdir).model.weights]


def _load(workdir: Path, weights: list[bytes]) -> str:
    """Loads a damaged directory; returns the problem, empty if the promise held."""
    from zoo.errors import InputError

    try:
        return "" if _weights(workdir) == weights else "other weights without an error"
    except InputError as error:
        return "" if str(workdir) in str(error) else f"names no file: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _resume(workdir: Path, weights: list[bytes]) -> str:
    """Resumes a damaged directory; returns the problem, empty if the promise held."""
    from training.train import main
    from zoo.runtime.cli import run_command

    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(io.StringIO()):
            status = run_command(main, ["--workdir", str(workdir), "--resume"])
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}; {text.getvalue()}"
    if status:
        return "" if is_one_line(status, text.getvalue(), [2]) else f"{status}: {text.getvalue()}"
    return "" if _weights(workdir) == weights else f"other weights: {text.getvalue()}"


CASES = [
    Case(
        "training whose loss becomes NaN, all runs at once on one core",
        "one line, exit status 1; the process always ends",
        stops,
        5,
        40,
    ),
    Case("training: Ctrl-C or SIGTERM at a random moment", "one line, exit status 130 or 143", signals, 8, 40),
    Case(
        "training: SIGKILL at a random moment, then --resume",
        "the same weights to the last bit, no temporary files left",
        kills,
        5,
        60,
    ),
    Case(
        "training: files cannot grow, as on a full disk",
        "one line, exit status 1; --resume continues",
        small_files,
        4,
        40,
    ),
    Case("training: the work directory is deleted", "one line, exit status 1 or 2", removed_directory, 1, 10),
    Case(
        "training: two processes in one work directory",
        "one trains, the other ends with exit status 2",
        two_at_once,
        1,
        15,
    ),
    Case(
        "training: a bit changed in a file of a work directory",
        "the same weights, or one line that names the file",
        flipped_bits,
        200,
        50,
    ),
]
