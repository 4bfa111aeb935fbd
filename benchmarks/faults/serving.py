"""Faults of serving: hostile clients, operators, damaged files."""

import contextlib
import itertools
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import grpc

from benchmarks.faults import hostile
from benchmarks.faults.served import SECONDS, Attacked, attacked, numbered, numbering
from benchmarks.faults.table import Attempt, Case, Stage
from benchmarks.faults.training import finished, is_one_line, limit_files
from benchmarks.runner.process import ROOT
from benchmarks.serving.clients import Clients
from benchmarks.serving.connections import call, greet
from benchmarks.serving.protocol import METHOD, Response, predict_request, read_response
from benchmarks.serving.server import HOST, publish, wait_until
from export.wire.protos import get_model_status_pb2

SLOW = 300  # connections of each kind
PATIENCE = 30.0  # seconds for a response to other clients
REQUESTS, CHANNELS, WINDOW = 100_000, 4, 32  # the window is the number of pending requests of a channel
GROWTH = 0.05


MESSAGE = predict_request(["x"]).SerializeToString()


def _predict(channel: grpc.Channel) -> tuple[int, Response]:
    """Sends `MESSAGE`; returns the version that answered, and its response."""
    return read_response(channel.unary_unary(METHOD)(MESSAGE, timeout=SECONDS))


def _base(stage: Stage) -> Path:
    """Returns a base path with version 1."""
    base = stage.folder / "base"
    base.mkdir()
    publish(numbering(stage, 1), base, 1)
    return base


def slow_and_many(stage: Stage) -> Iterator[Attempt]:
    """Opens connections that send little or nothing, while other clients send requests."""
    with attacked(_base(stage)) as server, contextlib.ExitStack() as stack:
        stage.begin()
        for index in range(SLOW):
            rest = stack.enter_context(socket.create_connection((HOST, server.rest_port), timeout=SECONDS))
            rest.sendall(
                [b"", b"POST /v1/mod", b"POST /v1/models/x:predict HTTP/1.1\r\nContent-Length: 99\r\n\r\n{"][index % 3]
            )
            one = stack.enter_context(socket.create_connection((HOST, server.port), timeout=SECONDS))
            if index % 3:
                greet(one)
            if index % 3 == 2:
                one.sendall(call(MESSAGE)[:-1])
        for index in range(stage.tries):
            began = time.monotonic()
            if index % 2:
                with server.channel() as channel:
                    right = _predict(channel) == (1, numbered("x", 1))
            else:
                right = b'"x1"' in _rest(server, b'{"instances": ["x"]}')
            waited = time.monotonic() - began
            story = f"answered {right} after {waited:.1f} s"
            yield Attempt(right and waited < PATIENCE, story, measurement=f"{2 * SLOW} connections at once")


def _rest(server: Attacked, body: bytes) -> bytes:
    connection = server.connect()
    try:
        connection.request("POST", "/v1/models/measured:predict", body)
        return connection.getresponse().read()
    finally:
        connection.close()


def swaps(stage: Stage) -> Iterator[Attempt]:
    """Replaces versions under load; each response must be that of the version that it names."""
    base = _base(stage)
    with attacked(base) as server, Clients(server.address, [["x"]]) as clients:
        stage.begin()
        clients.start(4)
        for version in itertools.count(2):
            publish(numbering(stage, version), base, version)
            wait_until(lambda version=version: version in server.versions(), SECONDS)  # type: ignore[misc]
            shutil.rmtree(base / str(version - 1))
            if stage.left() <= 1.0:
                break
        tally = clients.stop()
    wrong = tally.wrong(lambda version: [numbered("x", version)])
    yield Attempt(True, "", tally.responses - wrong, f"{version - 1} swaps")
    for problem, count in {"the response of another version": wrong, **tally.failures}.items():
        if count:
            yield Attempt(False, f"{count} times {problem}", count)


def memory(stage: Stage) -> Iterator[Attempt]:
    """Compares the resident set of the server before and after many small requests over several channels."""
    base = _base(stage)
    most = REQUESTS if stage.tries > 1 else REQUESTS // 10
    with attacked(base) as server, contextlib.ExitStack() as stack:
        stage.begin()
        calls = [stack.enter_context(server.channel()).unary_unary(METHOD) for _ in range(CHANNELS)]
        sent, pending, before = 0, deque[grpc.Future](), 0
        while sent < most and stage.left() > 1.0:
            pending.append(calls[sent % CHANNELS].future(MESSAGE, timeout=SECONDS))
            sent += 1
            if len(pending) >= CHANNELS * WINDOW:
                pending.popleft().result()
            if sent == most // 20:  # after the warm-up of its caches
                before = server.memory()
        for future in pending:
            future.result()
        after = server.memory()
    growth = after / before - 1 if before else float("inf")
    measurement = f"resident {before / 1e6:.0f} → {after / 1e6:.0f} MB"
    yield Attempt(growth <= GROWTH, f"{sent:,} requests, {measurement}", sent, measurement)


def damaged_versions(stage: Stage) -> Iterator[Attempt]:
    """Adds a version with one file that is missing, empty, truncated or has a flipped bit."""
    whole, base = numbering(stage, 2), _base(stage)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    damages = [(file, how) for how in ("missing", "empty", "cut off", "with a wrong bit") for file in files]
    version = 1
    with attacked(base) as server, server.channel() as channel:
        stage.begin()
        for file, how in itertools.cycle(stage.chance.sample(damages, len(damages))):
            version += 1
            coming = stage.folder / "coming"
            shutil.copytree(whole, coming)
            story = f"{file} {how}"
            with contextlib.suppress(IndexError):  # an empty file has no bit to flip
                story += _damage(coming / file, how, stage)
            coming.rename(base / str(version))
            try:
                _wait_for(server, version)
                answer = _predict(channel)
                held = answer in [(1, numbered("x", 1)), (version, numbered("x", 2))]
                yield Attempt(held, f"{story}: version {answer[0]} answers {answer[1]}")
            except (grpc.RpcError, TimeoutError) as error:
                yield Attempt(False, f"{story}: {error}; {server.errors()[-300:]}")
            shutil.rmtree(base / str(version))
            wait_until(lambda: server.versions() == {1}, SECONDS)


def _damage(path: Path, how: str, stage: Stage) -> str:
    """Damages a file; returns the position of the damage."""
    if how == "missing":
        path.unlink()
        return ""
    content = bytearray(path.read_bytes())
    at = stage.chance.randrange(8 * len(content)) if content else 0
    if how == "with a wrong bit" and content:
        content[at // 8] ^= 1 << at % 8
    else:
        del content[0 if how == "empty" else at // 8 :]
    path.write_bytes(content)
    return f" (bit {at})"


def _wait_for(server: Attacked, version: int) -> None:
    """Returns when a version has been loaded, or has failed to load."""
    end = get_model_status_pb2.ModelVersionStatus.END
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    wait_until(lambda: server.states().get(version) in (end, available), SECONDS)


def stops(stage: Stage) -> Iterator[Attempt]:
    """Sends SIGTERM or SIGKILL at a random moment, also during the start, while requests are pending."""
    base = _base(stage)
    stage.begin()
    for index in range(stage.tries):
        with Attacked(base, "--drain_seconds=5") as server:
            if index % 3:
                server.wait()
            else:  # until the handler is installed, Python's default applies
                wait_until(server.handles_sigterm, SECONDS)
            number = signal.SIGKILL if index % 3 == 2 else signal.SIGTERM
            with server.channel() as channel:
                predict = channel.unary_unary(METHOD)
                futures = [predict.future(MESSAGE, timeout=SECONDS) for _ in range(64 if index % 3 else 0)]
                time.sleep(stage.chance.uniform(0, 0.2 if index % 3 else 4))
                server.send_signal(number)
                codes = {future.code().name for future in futures}
            story = f"{number.name}: status {(status := server.status())}, {codes}, {server.errors()!r}"
        right = status in ((-number,) if number == signal.SIGKILL else (0, 128 + number))
        yield Attempt(right and codes <= {"OK", "UNAVAILABLE", "CANCELLED"} and "Traceback" not in story, story)


def export_on_full_disk(stage: Stage) -> Iterator[Attempt]:
    """Limits the size of the files of an export, like a full disk."""
    workdir, _ = finished(stage)
    stage.begin()
    for index in range(stage.tries):
        limit, base = 1000 * 8**index, stage.folder / f"export{index}"
        command = [sys.executable, "-m", "export.saved_model", str(workdir), "--output", str(base)]
        options = {"capture_output": True, "text": True, "timeout": 300, "preexec_fn": limit_files(limit)}
        result = subprocess.run(command, cwd=ROOT, **options)
        left = sorted(str(path.relative_to(base)) for path in base.glob("*"))
        done = result.returncode == 0 and left == ["1"]
        held = done or (is_one_line(result.returncode, result.stderr, [1]) and not left)
        yield Attempt(held, f"files of at most {limit} bytes: {result.returncode}, {left}, {result.stderr}")


_ANSWERED = "a status that names the problem; the server continues, and logs no traceback"
CASES = [
    Case(
        "export: files cannot grow, as on a full disk",
        "one line, exit status 1, nothing left",
        export_on_full_disk,
        3,
        20,
    ),
    Case("serving: messages made up by hypothesis, gRPC", _ANSWERED, hostile.over_grpc, 3000, 30),
    Case("serving: requests made up by hypothesis, REST", _ANSWERED, hostile.over_rest, 3000, 30),
    Case(
        f"serving: {SLOW} slow senders each of gRPC and REST",
        f"other clients get responses within {PATIENCE:.0f} s",
        slow_and_many,
        200,
        15,
    ),
    Case(
        "serving: responses while versions are replaced",
        "each is completely that of its version, and none fails",
        swaps,
        3,
        20,
    ),
    Case(
        "serving: a damaged file in a new version",
        "it loads, or the previous version stays in service",
        damaged_versions,
        40,
        25,
    ),
    Case("serving: SIGTERM or SIGKILL at a random moment", "exit status 0 or 143; all calls end", stops, 6, 25),
    Case(
        f"serving: memory over {REQUESTS:,} requests",
        f"the resident set grows by at most {GROWTH:.0%}",
        memory,
        2,
        100,
    ),
]
