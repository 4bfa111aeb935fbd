"""Cases that compare `export.serve` with CTranslate2: the start of a server, one sentence, and many clients.

CTranslate2 has the same weights, behind a minimal gRPC server that batches (`benchmarks.peers.ctranslate2_server`).
"""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.runner.environments import python_of
from benchmarks.runner.report import table
from benchmarks.serving.clients import Clients, Tally
from benchmarks.serving.exports import Exports
from benchmarks.serving.protocol import MODEL, PROTOCOLS, Response
from benchmarks.serving.server import HOST, OPTIONS, START, Server, ServerProcess, free_port
from export.convert import convert
from zoo.runtime.cores import available_cores

# Makes a client reconnect soon after nothing listened.
_RECONNECT = [(f"grpc.{name}_reconnect_backoff_ms", 100) for name in ("initial", "min", "max")]
BATCHING = """max_batch_size { value: 32 }
batch_timeout_micros { value: 0 }
num_batch_threads { value: %d }
max_enqueued_batches { value: 1000 }
"""


class PeerServer(ServerProcess):
    """CTranslate2's server of a folder."""

    def __init__(self, folder: Path):
        port, module = free_port(), "benchmarks.peers.ctranslate2_server"
        self.address = f"{HOST}:{port}"
        command = [python_of("ctranslate2"), "-m", module, str(folder), str(port), str(available_cores())]
        super().__init__(command, {"OMP_NUM_THREADS": "1"})


@dataclass(frozen=True)
class ServerContestant:
    """A server that takes part: how it is started, and the protocol of its clients."""

    name: str
    start: Callable[[], Any]
    protocol: str = "predict text"


def contestants(exports: Exports) -> list[ServerContestant]:
    """Returns our server without batching and with both kinds of batching, and CTranslate2's server."""
    plain, dynamic = exports.base(), exports.base(dynamic_batching=True)
    parameters, peer = exports.folder / "batching.txt", exports.folder / "ctranslate2"
    parameters.write_text(BATCHING % available_cores(), encoding="ascii")
    batching = ("--enable_batching", f"--batching_parameters_file={parameters}")
    if not peer.exists():
        convert(exports.workdir, f"ctranslate2:{peer}")
    return [
        ServerContestant("ours", lambda: Server(plain)),
        ServerContestant("ours, --dynamic_batching", lambda: Server(dynamic)),
        ServerContestant("ours, --enable_batching", lambda: Server(plain, *batching)),
        ServerContestant("CTranslate2's", lambda: PeerServer(peer), "text"),
    ]


def wait_for_response(server: Any, protocol: str, text: str) -> None:
    """Returns when a server has responded for the first time."""
    used, deadline = PROTOCOLS[protocol], time.monotonic() + START
    with grpc.insecure_channel(server.address, [*OPTIONS, *_RECONNECT]) as channel:
        while True:
            try:
                channel.unary_unary(used.method)(used.write([text]), timeout=START)
                return
            except grpc.RpcError:
                if server.has_ended or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def running(contestant: ServerContestant, text: str) -> Iterator[Any]:
    """Runs a server for the length of the block, which begins after the first response."""
    with contestant.start() as server:
        wait_for_response(server, contestant.protocol, text)
        yield server


def start(exports: Exports, options: Any) -> str:
    """Measures the time to the first response and the memory then, `--starts` times each, in turns."""
    text = exports.requests[0][0]
    taking_part = [one for one in contestants(exports) if one.name in ("ours", "CTranslate2's")]
    seconds: dict[str, list[float]] = {one.name: [] for one in taking_part}
    memory: dict[str, list[float]] = {one.name: [] for one in taking_part}
    for _ in range(options.starts):
        for one in taking_part:
            began = time.monotonic()
            with running(one, text) as server:
                seconds[one.name].append(time.monotonic() - began)
                memory[one.name].append(server.memory() / 1e6)
    rows = [(name, f"{np.median(seconds[name]):.1f} s", f"{np.median(memory[name]):,.0f} MB") for name in seconds]
    title = f"### From the start of a process to its first answer, median of {options.starts}"
    return "\n".join([title, "", *table(["server", "first answer", "memory then"], rows)])


def sentence(exports: Exports, options: Any) -> str:
    """Measures the latency of one sentence for one client, over gRPC and REST, servers in turns."""
    texts = [texts[0] for texts in exports.requests]
    with contextlib.ExitStack() as stack:
        calls: dict[str, Callable[[str], object]] = {}
        for one in contestants(exports):
            server = stack.enter_context(running(one, texts[0]))
            channel, used = stack.enter_context(grpc.insecure_channel(server.address, OPTIONS)), PROTOCOLS[one.protocol]
            call = channel.unary_unary(used.method)
            calls[f"{one.name}, gRPC"] = lambda text, used=used, call=call: used.read(call(used.write([text])))
            if one.name == "ours":
                calls[f"{one.name}, REST"] = _rest(stack, server)
        latencies: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(options.turns + 1):
            for text in texts:
                for name, call in calls.items():
                    began = time.perf_counter()
                    call(text)
                    if turn:
                        latencies[name].append(1000 * (time.perf_counter() - began))
    peer = np.median(latencies["CTranslate2's, gRPC"])
    rows = []
    for name, values in latencies.items():
        cells = (f"{value:.1f} ms" for value in np.percentile(values, (50, 95, 99)))
        rows.append((name, *cells, f"{peer / np.median(values):.2f}×"))
    title = f"### One client, one sentence at a time, {options.turns * len(texts)} requests each, in turns"
    return "\n".join([title, "", *table(["server", "p50", "p95", "p99", "speed beside CTranslate2's (p50)"], rows)])


def _rest(stack: contextlib.ExitStack, server: Server) -> Callable[[str], object]:
    connection = http.client.HTTPConnection(HOST, server.rest_port, timeout=START)
    stack.callback(connection.close)

    def call(text: str) -> object:
        connection.request("POST", f"/v1/models/{MODEL}:predict", json.dumps({"instances": [text]}))
        response = connection.getresponse()
        content = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(content)
        return content

    return call


LIMIT = 200.0  # milliseconds of p99
FIRST_RATE, FASTER = 20.0, 1.25


def clients(exports: Exports, options: Any) -> str:
    """Measures closed loops of 1 to 64 clients, and the highest rate at which p99 is at most 200 ms."""
    closed: list[Sequence[str]] = []
    opened: list[Sequence[str]] = []
    curves: dict[str, list[Tally]] = {}
    for one in contestants(exports):
        with (
            running(one, exports.requests[0][0]) as server,
            Clients(server.address, exports.requests, one.protocol) as load,
        ):
            expected = load.answer_each()
            load.run(16, 2.0)
            for count in (1, 4, 16, 64):
                cells = _cells(load.run(count, options.load_seconds), expected)
                closed.append((one.name, str(count), *cells))
            curve = curves[one.name] = list(rising_rates(load, options.load_seconds))
            best = max((tally for tally in curve if _is_within(tally)), key=lambda tally: tally.rate, default=None)
            rate = "none" if best is None else f"{best.rate:.0f}"
            opened.append((one.name, rate, *_cells(best or curve[0], expected)))
    if options.plot:
        plot(curves, options.plot)
    head = ["p50", "p95", "p99", "answers a second", "failed", "other text than alone"]
    parts = [
        f"### Clients that wait for their answers, {options.load_seconds:g} s each",
        "",
        *table(["server", "clients", *head], closed),
        "",
        f"### The highest rate at which p99 is within {LIMIT:g} ms, of rates that rise by {FASTER:g}×",
        "",
        *table(["server", "sentences a second", *head], opened),
    ]
    return "\n".join(parts)


def _is_within(tally: Tally) -> bool:
    return tally.milliseconds[2] <= LIMIT and not tally.failures


def rising_rates(load: Clients, seconds: float) -> Iterator[Tally]:
    """Yields the tallies of rising rates, the last of which exceeds the limit."""
    rate = FIRST_RATE
    while True:
        tally = load.at_rate(rate, seconds)
        yield tally
        if not _is_within(tally):
            return
        rate *= FASTER


def _cells(tally: Tally, expected: Sequence[Response]) -> tuple[str, ...]:
    latencies = (f"{value:.1f} ms" for value in tally.milliseconds[:3])
    wrong = tally.wrong(lambda version: expected)
    return (*latencies, f"{tally.rate:.1f}", str(tally.failed), f"{wrong} of {tally.responses}")


def plot(curves: dict[str, list[Tally]], file: Path) -> None:
    """Draws p99 over the responses in a second."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for name, tallies in curves.items():
        latencies = [tally.milliseconds[2] for tally in tallies]
        axes.plot([tally.rate for tally in tallies], latencies, marker="o", markersize=3, label=name)
    axes.axhline(LIMIT, color="gray", linewidth=0.8, linestyle="--")
    axes.set(xlabel="sentences a second", ylabel="p99, milliseconds", ylim=(0, 2 * LIMIT))
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    plt.close(figure)


CASES = {case.__name__: case for case in (start, sentence, clients)}
