"""What those who run or ask a server feel: its start, one sentence, and many clients, beside CTranslate2's.

CTranslate2 serves the same weights, behind the smallest gRPC server that batches (`benchmarks.peers`).
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
import psutil

from benchmarks.environments import python_of
from benchmarks.process import Process
from benchmarks.report import table
from benchmarks.serving.exports import Exports
from benchmarks.serving.load import PROTOCOLS, Felt, Load
from benchmarks.serving.questions import MODEL
from benchmarks.serving.server import HOST, OPTIONS, START, Server, free_port
from export.convert import convert
from zoo.runtime.cores import available_cores

# A client that asks again soon where nobody listens yet.
_IMPATIENT = [(f"grpc.{name}_reconnect_backoff_ms", 100) for name in ("initial", "min", "max")]
BATCHING = """max_batch_size { value: 32 }
batch_timeout_micros { value: 0 }
num_batch_threads { value: %d }
max_enqueued_batches { value: 1000 }
"""


class PeerServer(Process):
    """CTranslate2's server of a folder; to be closed."""

    def __init__(self, folder: Path):
        port = free_port()
        self.address = f"{HOST}:{port}"
        module = "benchmarks.peers.ctranslate2_server"
        super().__init__(
            [python_of("ctranslate2"), "-m", module, str(folder), str(port), str(available_cores())],
            {"OMP_NUM_THREADS": "1"},
        )

    def close(self) -> None:
        self._process.terminate()
        super().close()

    def memory(self) -> int:
        """Returns the bytes that it has in memory."""
        return int(psutil.Process(self.pid).memory_info().rss)


@dataclass(frozen=True)
class Contestant:
    """A server that takes part: how it is started, and in which protocol it is asked."""

    name: str
    start: Callable[[], Any]
    protocol: str = "predict"


def contestants(exports: Exports) -> list[Contestant]:
    """Returns ours, with and without what puts requests together, and CTranslate2's server."""
    plain, dynamic = exports.base(), exports.base(dynamic_batching=True)
    parameters, peer = exports.folder / "batching.txt", exports.folder / "ctranslate2"
    parameters.write_text(BATCHING % available_cores(), encoding="ascii")
    together = ("--enable_batching", f"--batching_parameters_file={parameters}")
    if not peer.exists():
        convert(exports.workdir, f"ctranslate2:{peer}")
    return [
        Contestant("ours", lambda: Server(plain)),
        Contestant("ours, --dynamic_batching", lambda: Server(dynamic)),
        Contestant("ours, --enable_batching", lambda: Server(plain, *together)),
        Contestant("CTranslate2's", lambda: PeerServer(peer), "text"),
    ]


def first_answer(server: Any, protocol: str, text: str) -> None:
    """Returns once a server has answered."""
    how, deadline = PROTOCOLS[protocol], time.monotonic() + START
    with grpc.insecure_channel(server.address, [*OPTIONS, *_IMPATIENT]) as channel:
        while True:
            try:
                how.read(channel.unary_unary(how.method)(how.write(text), timeout=START))
                return
            except grpc.RpcError:
                if server.has_ended or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def running(contestant: Contestant, text: str) -> Iterator[Any]:
    """Runs a server for the length of the block, from its first answer on."""
    with contestant.start() as server:
        first_answer(server, contestant.protocol, text)
        yield server


def start(exports: Exports, options: Any) -> str:
    """Returns how long servers take to their first answer, and their memory then; `--starts` times each, in turns."""
    text = exports.questions[0][0]
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
    """Returns what one client waits for one sentence, over gRPC and REST, servers in turns."""
    texts = [texts[0] for texts in exports.questions]
    taking_part, waits = contestants(exports), {}
    with contextlib.ExitStack() as stack:
        asks: dict[str, Callable[[str], object]] = {}
        for one in taking_part:
            server = stack.enter_context(running(one, texts[0]))
            how, channel = PROTOCOLS[one.protocol], stack.enter_context(grpc.insecure_channel(server.address, OPTIONS))
            call = channel.unary_unary(how.method)
            asks[f"{one.name}, gRPC"] = lambda text, how=how, call=call: how.read(call(how.write(text)))
            if one.name == "ours":
                asks[f"{one.name}, REST"] = _rest(stack, server)
        waits = {name: [] for name in asks}
        for turn in range(options.turns + 1):
            for text in texts:
                for name, ask in asks.items():
                    began = time.perf_counter()
                    ask(text)
                    if turn:
                        waits[name].append(1000 * (time.perf_counter() - began))
    beside = np.median(waits["CTranslate2's, gRPC"])
    rows = []
    for name, values in waits.items():
        shown = (f"{value:.1f} ms" for value in np.percentile(values, (50, 95, 99)))
        rows.append((name, *shown, f"{beside / np.median(values):.2f}×"))
    title = f"### One client, one sentence at a time, {len(next(iter(waits.values())))} requests each, in turns"
    return "\n".join([title, "", *table(["server", "p50", "p95", "p99", "speed beside CTranslate2's (p50)"], rows)])


def _rest(stack: contextlib.ExitStack, server: Server) -> Callable[[str], object]:
    connection = http.client.HTTPConnection(HOST, server.rest_port, timeout=START)
    stack.callback(connection.close)

    def ask(text: str) -> object:
        connection.request("POST", f"/v1/models/{MODEL}:predict", json.dumps({"instances": [text]}))
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(answer)
        return answer

    return ask


LIMIT = 200.0  # milliseconds of p99
FIRST_RATE, FASTER = 20.0, 1.25


def clients(exports: Exports, options: Any) -> str:
    """Returns what many clients get: closed loops of 1 to 64, and the highest rate at which p99 is within 200 ms."""
    texts = [texts[0] for texts in exports.questions]
    closed: list[Sequence[str]] = []
    opened: list[Sequence[str]] = []
    curves: dict[str, list[Felt]] = {}
    for one in contestants(exports):
        with running(one, texts[0]) as server, Load(server.address, one.protocol, texts) as load:
            load.wait(16, 2.0)
            for count in (1, 4, 16, 64):
                closed.append((one.name, str(count), *_described(load.wait(count, options.load_seconds))))
            curves[one.name] = list(_rising(load, options.load_seconds))
            best = max((felt for felt in curves[one.name] if _within(felt)), key=lambda felt: felt.rate, default=None)
            reached = "none" if best is None else f"{best.rate:.0f}"
            opened.append((one.name, reached, *_described(best or curves[one.name][0])))
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


def _within(felt: Felt) -> bool:
    return felt.p99 <= LIMIT and not felt.failures


def _rising(load: Load, seconds: float) -> Iterator[Felt]:
    rate = FIRST_RATE
    while True:
        felt = load.at_rate(rate, seconds)
        yield felt
        if not _within(felt):
            return
        rate *= FASTER


def _described(felt: Felt) -> tuple[str, ...]:
    waits = (f"{value:.1f} ms" for value in felt.milliseconds)
    return (*waits, f"{felt.rate:.1f}", str(sum(felt.failures.values())), f"{felt.wrong} of {felt.answers}")


def plot(curves: dict[str, list[Felt]], file: Path) -> None:
    """Draws the wait of one in a hundred over the answers in a second."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for name, felts in curves.items():
        axes.plot([felt.rate for felt in felts], [felt.p99 for felt in felts], marker="o", markersize=3, label=name)
    axes.axhline(LIMIT, color="gray", linewidth=0.8, linestyle="--")
    axes.set(xlabel="sentences a second", ylabel="p99, milliseconds", ylim=(0, 2 * LIMIT))
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    plt.close(figure)


CASES = {case.__name__: case for case in (start, sentence, clients)}
