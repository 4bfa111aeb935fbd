"""The cases of serving an export: each measures something and compares it with its goals."""

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from benchmarks.runner.measure import take_turns
from benchmarks.runner.report import Goal, Spread, goal_table, table
from benchmarks.serving.attacks import Attack, requests, too_large
from benchmarks.serving.clients import Clients, Tally
from benchmarks.serving.connections import connections
from benchmarks.serving.exports import Exports, in_process
from benchmarks.serving.protocol import METHOD, Response, predict_request, read_response
from benchmarks.serving.server import OPTIONS, Server, publish, serving, wait_until


@contextmanager
def clients_of(exports: Exports) -> Iterator[tuple[Server, Clients]]:
    """Serves an export with dynamic batching, and yields the server and its clients."""
    with serving(exports.base(dynamic_batching=True)) as server, Clients(server.address, exports.requests) as clients:
        yield server, clients


def _always(expected: Sequence[Response]) -> Callable[[int], Sequence[Response]]:
    return lambda version: expected


def none_of(what: str, count: int, total: int) -> Goal:
    """Returns the goal that something never happened; it is missed if there were no responses at all."""
    return Goal(what, f"{count:,} of {total:,}", "0", total > 0 and count == 0)


def section(title: str, goals: Sequence[Goal], details: Sequence[str] = ()) -> str:
    """Returns a case as Markdown: its goals, and further lines."""
    return "\n".join([f"### {title}", "", *goal_table("measured", goals), *([""] if details else []), *details])


# Latency: one sentence over gRPC, beside the same call in this process

LATENCY_FACTOR, LATENCY_ADDED = 1.3, 1.0  # milliseconds


def latency(exports: Exports, options) -> str:
    """Measures the latency of a sentence over gRPC and in process, in `options.rounds` turns."""
    base = exports.base()
    with serving(base) as server, grpc.insecure_channel(server.address, OPTIONS) as channel:
        call = channel.unary_unary(METHOD)
        contestants = {
            "in process": _timed(exports, in_process(base / "1")),
            "over gRPC": _timed(exports, lambda texts: read_response(call(predict_request(texts).SerializeToString()))),
        }
        return judge_latency(take_turns(contestants, options.rounds, warm_up=len(exports.requests)))


def _timed(exports: Exports, translate: Callable) -> Callable[[], float]:
    """Returns a function that translates the next sentence and returns the milliseconds that it took."""
    requests = itertools.cycle(exports.requests)

    def turn() -> float:
        texts = next(requests)
        began = time.perf_counter()
        translate(texts)
        return 1000 * (time.perf_counter() - began)

    return turn


def judge_latency(times: Mapping[str, Sequence[float]]) -> str:
    """Returns milliseconds by contestant as Markdown."""
    within, over = (Spread.of(times[name]) for name in ("in process", "over gRPC"))
    allowed = LATENCY_FACTOR * within.median + LATENCY_ADDED
    target = f"≤ {LATENCY_FACTOR}× + {LATENCY_ADDED:g} ms = {allowed:.2f} ms"
    goals = [
        Goal("in process", within.text("ms", digits=2)),
        Goal("over gRPC", over.text("ms", digits=2), target, over.median <= allowed),
        Goal("ratio", f"{over.median / within.median:.2f}×"),
    ]
    return section(f"One sentence at a time, median of {len(times['over gRPC'])} turns A B A B (quartiles)", goals)


# Throughput: many clients of a model with dynamic batching, beside one client

MANY, THROUGHPUT_FACTOR = 16, 4.0
THROUGHPUT_ROUNDS, THROUGHPUT_SECONDS, WARM_UP_SECONDS = 5, 60, 2


@dataclass(frozen=True)
class Turn:
    """What clients received in one turn, and the seconds for which the server kept a core busy."""

    tally: Tally
    busy: float


def throughput(exports: Exports, options) -> str:
    """Measures the responses that clients receive in a second, for `options.seconds`."""
    expected = exports.responses(exports.requests)
    turns: dict[int, list[Turn]] = {1: [], MANY: []}
    with clients_of(exports) as (server, clients):
        clients.run(MANY, WARM_UP_SECONDS)
        seconds = (options.seconds or THROUGHPUT_SECONDS) / THROUGHPUT_ROUNDS / len(turns)

        def rate(count: int) -> float:
            before = server.processor_time()
            tally = clients.run(count, seconds)
            turns[count].append(Turn(tally, server.processor_time() - before))
            return tally.rate

        take_turns({str(count): lambda count=count: rate(count) for count in turns}, THROUGHPUT_ROUNDS, warm_up=0)
    return judge_throughput(turns, expected)


def judge_throughput(turns: Mapping[int, Sequence[Turn]], expected: Sequence[Response]) -> str:
    """Returns turns by the number of clients as Markdown; `expected` has the right response to each request."""
    rates = {count: Spread.of([turn.tally.rate for turn in of_count]) for count, of_count in turns.items()}
    ratio = rates[MANY].median / max(rates[1].median, 1e-9)
    tallies = [turn.tally for of_count in turns.values() for turn in of_count]
    responses, failed = (sum(getattr(tally, name) for tally in tallies) for name in ("responses", "failed"))

    def describe(count: int) -> str:
        wait = Spread.of([turn.tally.milliseconds[0] for turn in turns[count]]).median
        busy = sum(turn.busy for turn in turns[count]) / max(1, sum(turn.tally.responses for turn in turns[count]))
        return f"{rates[count].text()}, each after {wait:.1f} ms, for {1000 * busy:.1f} ms of a core"

    goals = [
        *(Goal(f"answers a second, clients: {count}", describe(count)) for count in turns),
        Goal("ratio", f"{ratio:.2f}×", f"≥ {THROUGHPUT_FACTOR:g}×", ratio >= THROUGHPUT_FACTOR),
        none_of("wrong", sum(tally.wrong(_always(expected)) for tally in tallies), responses),
        none_of("failed", failed, responses + failed),
    ]
    return section(f"{MANY} clients with dynamic batching, beside one; turns A B A B (quartiles)", goals)


# Swaps: new versions under load; no request may fail, and each response must be that of one version

SWAP_CLIENTS, SWAP_SECONDS, INTERVAL = 8, 120, 5
SENTENCES = 4  # in a request, so that a response could mix two versions
ON_DISK = 6  # versions, of which the server loads the newest
# Versions with odd numbers, and those with even ones, whose short texts distinguish them.
KINDS: tuple[dict, ...] = ({}, {"max_length": 3})


def swaps(exports: Exports, options) -> str:
    """Counts responses while versions are replaced, for `options.seconds`."""
    texts = [text for texts in exports.requests for text in texts]
    batches = [texts[start : start + SENTENCES] for start in range(0, len(texts), SENTENCES)]
    expected = [exports.responses(batches, **kind) for kind in KINDS]
    folders = [exports.base(**kind) / "1" for kind in KINDS]
    with tempfile.TemporaryDirectory(dir=exports.folder) as folder:  # on the same disk, for hard links
        base = Path(folder)
        publish(folders[0], base, 1)
        with serving(base) as server, Clients(server.address, batches) as clients:
            clients.start(SWAP_CLIENTS)
            published = _replace(server, base, folders, options.seconds or SWAP_SECONDS)
            tally = clients.stop()
    return judge_swaps(tally, expected, published)


def _replace(server: Server, base: Path, folders: Sequence[Path], seconds: float) -> int:
    """Publishes one version after the other and removes the oldest; returns the last one once it is available."""
    last = max(2, int(seconds / INTERVAL))
    for version in range(2, last + 1):
        time.sleep(INTERVAL)
        publish(folders[(version - 1) % len(folders)], base, version)
        shutil.rmtree(base / str(version - ON_DISK), ignore_errors=True)
    wait_until(lambda: last in server.versions())
    time.sleep(INTERVAL)
    return last


def judge_swaps(tally: Tally, expected: Sequence[Sequence[Response]], published: int) -> str:
    """Returns the tally as Markdown; `expected` has the responses of odd versions, and those of even ones."""
    versions = len({counted.version for counted in tally.counted})
    median, _, most, longest = tally.milliseconds
    mixed = tally.wrong(lambda version: expected[(version - 1) % len(expected)])
    goals = [
        Goal("versions that answered", f"{versions} of {published}", "≥ 2", versions >= 2),
        none_of("failed", tally.failed, tally.responses + tally.failed),
        none_of("mixed or wrong", mixed, tally.responses),
        Goal("waited", f"{median:.1f} ms in the median, 99 % at most {most:.1f} ms, at most {longest:.0f} ms"),
    ]
    title = f"A version every {INTERVAL} s, {tally.seconds:.0f} s, {SWAP_CLIENTS} clients of {SENTENCES} sentences each"
    return section(title, goals, tally.failure_lines)


# Soak: memory of a server under full load, for long

SOAK_SECONDS, SAMPLES = 600, 60
SETTLED = 0.2  # the part of the time after which memory must not grow: two minutes of ten
MAX_GROWTH = 0.03

Sample = tuple[float, float]  # seconds, bytes


def soak(exports: Exports, options) -> str:
    """Measures the server's memory over `options.seconds`."""
    expected = exports.responses(exports.requests)
    seconds = options.seconds or SOAK_SECONDS
    with clients_of(exports) as (server, clients):
        clients.start(MANY)
        began, samples = time.monotonic(), []
        for number in range(SAMPLES + 1):
            time.sleep(max(0.0, began + number * seconds / SAMPLES - time.monotonic()))
            samples.append((time.monotonic() - began, server.memory()))
        return judge_soak(samples, clients.stop(), expected)


def judge_soak(samples: Sequence[Sample], tally: Tally, expected: Sequence[Response]) -> str:
    """Returns the memory over time and the tally as Markdown."""
    end = samples[-1][0]
    times, sizes = np.array([sample for sample in samples if sample[0] >= SETTLED * end]).T
    span = (sizes.max() - sizes.min()) / sizes.min()
    slope = np.polyfit(times / 60, sizes, 1)[0] if len(sizes) > 1 else 0.0
    goals = [
        Goal("memory, largest less smallest", f"{span:.1%}", f"≤ {MAX_GROWTH:.0%}", bool(span <= MAX_GROWTH)),
        Goal("of these", f"{sizes.min() / 1e6:,.1f} to {sizes.max() / 1e6:,.1f} MB, {len(sizes)} samples"),
        Goal("slope", f"{slope / 1e6:+.2f} MB ({slope / sizes.mean():+.2%}) a minute"),
        Goal("answers a second", f"{tally.rate:,.1f}"),
        none_of("wrong", tally.wrong(_always(expected)), tally.responses),
        none_of("failed", tally.failed, tally.responses + tally.failed),
    ]
    some = ", ".join(f"{size / 1e6:,.0f}" for _, size in samples[:: max(1, len(samples) // 20)])
    title = f"{end / 60:.1f} minutes of {MANY} clients, memory after the first {SETTLED * end / 60:.1f}"
    return section(title, goals, [f"Resident memory from start to end, MB: {some}."])


# Hostile: the responses to malicious requests, and whether valid ones succeed meanwhile

GOOD_CLIENTS = 2


def hostile(exports: Exports, options) -> str:
    """Sends hostile requests and opens `options.connections` hostile connections."""
    expected = exports.responses(exports.requests)
    with clients_of(exports) as (server, clients):
        before = server.memory()
        clients.start(GOOD_CLIENTS)
        texts = [text for texts in exports.requests for text in texts]
        attacks = [*requests(server), *connections(server, texts, options.connections)]
        tally = clients.stop()
        attacks.append(too_large(exports.base(dynamic_batching=True)))
        return judge_hostile(attacks, tally, expected, server.memory() - before)


def judge_hostile(attacks: Sequence[Attack], tally: Tally, expected: Sequence[Response], grown: int) -> str:
    """Returns the attacks and the tally of valid requests as Markdown; memory has `grown` by so many bytes."""
    as_stock = sum(attack.got == attack.stock for attack in attacks)
    median, _, most, longest = tally.milliseconds
    goals = [
        Goal("answered as by the stock server", f"{as_stock} of {len(attacks)}", "all", 0 < as_stock == len(attacks)),
        none_of("good requests that failed", tally.failed, tally.responses + tally.failed),
        none_of("good requests with a wrong answer", tally.wrong(_always(expected)), tally.responses),
        Goal("good requests waited", f"{median:.1f} ms in the median, 99 % at most {most:.1f}, at most {longest:.0f}"),
        Goal("memory more than before", f"{grown / 1e6:,.0f} MB"),
    ]
    rows = table(["sent", "got", "stock", "message"], attacks)
    title = f"Hostile requests, beside {GOOD_CLIENTS} well-behaved clients"
    return section(title, goals, [*rows, *tally.failure_lines])


CASES = {case.__name__: case for case in (latency, throughput, swaps, soak, hostile)}
