"""The cases: each measures one side of serving an export, and judges what it found."""

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

from benchmarks.measure import take_turns
from benchmarks.report import Goal, Spread, goal_table, table
from benchmarks.serving.attacks import Attack, requests, too_large
from benchmarks.serving.clients import Clients, Tally
from benchmarks.serving.connections import connections
from benchmarks.serving.exports import Exports, in_process
from benchmarks.serving.questions import METHOD, Response, question, read
from benchmarks.serving.server import OPTIONS, Server, publish, serving, wait_until
from export.wire.protos import predict_pb2


@contextmanager
def clients_of(exports: Exports) -> Iterator[tuple[Server, Clients]]:
    """Serves an export with dynamic batching, and gives clients that ask its questions."""
    with (
        serving(exports.base(dynamic_batching=True)) as server,
        Clients(server.address, exports.questions) as clients,
    ):
        yield server, clients


def _always(expected: Sequence[Response]) -> Callable[[int], Sequence[Response]]:
    return lambda version: expected


def none_of(what: str, count: int, answers: int) -> Goal:
    """Returns the goal that something never happened; of no answers at all nothing can be said."""
    return Goal(what, f"{count:,} of {answers:,}", "0", answers > 0 and count == 0)


def section(title: str, goals: Sequence[Goal], details: Sequence[str] = ()) -> str:
    """Returns a case as Markdown: its goals, and then lines that tell more."""
    return "\n".join([f"### {title}", "", *goal_table("measured", goals), *([""] if details else []), *details])


# Latency: one sentence over gRPC, beside the same call in this process

LATENCY_FACTOR, LATENCY_ADDED = 1.3, 1.0  # milliseconds


def latency(exports: Exports, options) -> str:
    """Returns how long a translation takes over gRPC and in process; `options.rounds` is used."""
    base = exports.base()
    with serving(base) as server, grpc.insecure_channel(server.address, OPTIONS) as channel:
        ask = channel.unary_unary(
            METHOD, predict_pb2.PredictRequest.SerializeToString, predict_pb2.PredictResponse.FromString
        )
        contestants = {
            "in process": _timed(exports, in_process(base / "1")),
            "over gRPC": _timed(exports, lambda texts: read(ask(question(texts)))),
        }
        return judge_latency(take_turns(contestants, options.rounds, warm_up=len(exports.questions)))


def _timed(exports: Exports, ask: Callable) -> Callable[[], float]:
    """Returns a function that asks the next question and returns the milliseconds that took."""
    questions = itertools.cycle(exports.questions)

    def ask_next() -> float:
        texts = next(questions)
        began = time.perf_counter()
        ask(texts)
        return 1000 * (time.perf_counter() - began)

    return ask_next


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


# Throughput: many clients of a model that answers together what arrives together, beside one client

MANY, THROUGHPUT_FACTOR = 16, 4.0
THROUGHPUT_ROUNDS, THROUGHPUT_SECONDS, WARM_UP_SECONDS = 5, 60, 2


@dataclass(frozen=True)
class Turn:
    """What clients got in one turn, and the seconds for which the server kept a core busy."""

    tally: Tally
    busy: float


def throughput(exports: Exports, options) -> str:
    """Returns how many answers clients get in a second; `options.seconds` is used."""
    expected = exports.answers(exports.questions)
    turns: dict[int, list[Turn]] = {1: [], MANY: []}
    with clients_of(exports) as (server, clients):
        clients.ask_for(MANY, WARM_UP_SECONDS)
        seconds = (options.seconds or THROUGHPUT_SECONDS) / THROUGHPUT_ROUNDS / len(turns)

        def rate(count: int) -> float:
            before = server.processor_time()
            tally = clients.ask_for(count, seconds)
            turns[count].append(Turn(tally, server.processor_time() - before))
            return tally.rate

        take_turns({str(count): lambda count=count: rate(count) for count in turns}, THROUGHPUT_ROUNDS, warm_up=0)
    return judge_throughput(turns, expected)


def judge_throughput(turns: Mapping[int, Sequence[Turn]], expected: Sequence[Response]) -> str:
    """Returns turns by the number of clients as Markdown; `expected` has the right answer to each question."""
    rates = {count: Spread.of([turn.tally.rate for turn in of_count]) for count, of_count in turns.items()}
    ratio = rates[MANY].median / max(rates[1].median, 1e-9)
    tallies = [turn.tally for of_count in turns.values() for turn in of_count]
    answers, failed = (sum(getattr(tally, name) for tally in tallies) for name in ("answers", "failed"))

    def describe(count: int) -> str:
        wait = Spread.of([turn.tally.milliseconds[0] for turn in turns[count]]).median
        busy = sum(turn.busy for turn in turns[count]) / max(1, sum(turn.tally.answers for turn in turns[count]))
        return f"{rates[count].text()}, each after {wait:.1f} ms, for {1000 * busy:.1f} ms of a core"

    goals = [
        *(Goal(f"answers a second, clients: {count}", describe(count)) for count in turns),
        Goal("ratio", f"{ratio:.2f}×", f"≥ {THROUGHPUT_FACTOR:g}×", ratio >= THROUGHPUT_FACTOR),
        none_of("wrong", sum(tally.wrong(_always(expected)) for tally in tallies), answers),
        none_of("failed", failed, answers + failed),
    ]
    return section(f"{MANY} clients with dynamic batching, beside one; turns A B A B (quartiles)", goals)


# Swaps: new versions under load; none of the answers may fail, and each must be wholly that of one version

SWAP_CLIENTS, SWAP_SECONDS, INTERVAL = 8, 120, 5
SENTENCES = 4  # in a request, so that an answer could be put together from two versions
ON_DISK = 6  # versions; the server has the newest
# Versions with odd numbers, and those with even ones; what the latter say is short, so every answer shows its version.
KINDS: tuple[dict, ...] = ({}, {"max_length": 3})


def swaps(exports: Exports, options) -> str:
    """Returns what clients get while versions are replaced; `options.seconds` is used."""
    texts = [text for texts in exports.questions for text in texts]
    questions = [texts[start : start + SENTENCES] for start in range(0, len(texts), SENTENCES)]
    expected = [exports.answers(questions, **kind) for kind in KINDS]
    folders = [exports.base(**kind) / "1" for kind in KINDS]
    with tempfile.TemporaryDirectory(dir=exports.folder) as folder:  # where files can be shared
        base = Path(folder)
        publish(folders[0], base, 1)
        with serving(base) as server, Clients(server.address, questions) as clients:
            clients.start(SWAP_CLIENTS)
            published = _replace(server, base, folders, options.seconds or SWAP_SECONDS)
            tally = clients.stop()
    return judge_swaps(tally, expected, published)


def _replace(server: Server, base: Path, folders: Sequence[Path], seconds: float) -> int:
    """Publishes one version after the other and removes the oldest; returns the last, once it has answered."""
    last = max(2, int(seconds / INTERVAL))
    for version in range(2, last + 1):
        time.sleep(INTERVAL)
        publish(folders[(version - 1) % len(folders)], base, version)
        shutil.rmtree(base / str(version - ON_DISK), ignore_errors=True)
    wait_until(lambda: last in server.versions())
    time.sleep(INTERVAL)
    return last


def judge_swaps(tally: Tally, expected: Sequence[Sequence[Response]], published: int) -> str:
    """Returns what clients got as Markdown; `expected` has the answers of odd versions, and those of even ones."""
    seen = len({counted.version for counted in tally.counted})
    median, most, longest = tally.milliseconds
    mixed = tally.wrong(lambda version: expected[(version - 1) % len(expected)])
    goals = [
        Goal("versions that answered", f"{seen} of {published}", "≥ 2", seen >= 2),
        none_of("failed", tally.failed, tally.answers + tally.failed),
        none_of("mixed or wrong", mixed, tally.answers),
        Goal("waited", f"{median:.1f} ms in the median, 99 % at most {most:.1f} ms, at most {longest:.0f} ms"),
    ]
    title = f"A version every {INTERVAL} s, {tally.seconds:.0f} s, {SWAP_CLIENTS} clients of {SENTENCES} sentences each"
    return section(title, goals, tally.failure_lines)


# Soak: memory of a server that is asked as much as it can answer, for long

SOAK_SECONDS, SAMPLES = 600, 60
SETTLED = 0.2  # the part of the time after which memory is to stay: two minutes of ten
MAX_GROWTH = 0.03

Sample = tuple[float, float]  # seconds, bytes


def soak(exports: Exports, options) -> str:
    """Returns the server's memory over time; `options.seconds` is used."""
    expected = exports.answers(exports.questions)
    seconds = options.seconds or SOAK_SECONDS
    with clients_of(exports) as (server, clients):
        clients.start(MANY)
        began, samples = time.monotonic(), []
        for number in range(SAMPLES + 1):
            time.sleep(max(0.0, began + number * seconds / SAMPLES - time.monotonic()))
            samples.append((time.monotonic() - began, server.memory()))
        return judge_soak(samples, clients.stop(), expected)


def judge_soak(samples: Sequence[Sample], tally: Tally, expected: Sequence[Response]) -> str:
    """Returns the memory over time as Markdown, and what clients got meanwhile."""
    end = samples[-1][0]
    times, sizes = np.array([sample for sample in samples if sample[0] >= SETTLED * end]).T
    span = (sizes.max() - sizes.min()) / sizes.min()
    slope = np.polyfit(times / 60, sizes, 1)[0] if len(sizes) > 1 else 0.0
    goals = [
        Goal("memory, largest less smallest", f"{span:.1%}", f"≤ {MAX_GROWTH:.0%}", bool(span <= MAX_GROWTH)),
        Goal("of these", f"{sizes.min() / 1e6:,.1f} to {sizes.max() / 1e6:,.1f} MB, {len(sizes)} samples"),
        Goal("slope", f"{slope / 1e6:+.2f} MB ({slope / sizes.mean():+.2%}) a minute"),
        Goal("answers a second", f"{tally.rate:,.1f}"),
        none_of("wrong", tally.wrong(_always(expected)), tally.answers),
        none_of("failed", tally.failed, tally.answers + tally.failed),
    ]
    some = ", ".join(f"{size / 1e6:,.0f}" for _, size in samples[:: max(1, len(samples) // 20)])
    title = f"{end / 60:.1f} minutes of {MANY} clients, memory after the first {SETTLED * end / 60:.1f}"
    return section(title, goals, [f"Resident memory from start to end, MB: {some}."])


# Hostile: what malicious requests get, and whether good ones succeed meanwhile

GOOD_CLIENTS = 2


def hostile(exports: Exports, options) -> str:
    """Returns what hostile requests and connections get; `options.connections` is used."""
    expected = exports.answers(exports.questions)
    with clients_of(exports) as (server, clients):
        before = server.memory()
        clients.start(GOOD_CLIENTS)
        texts = [text for texts in exports.questions for text in texts]
        attacks = [*requests(server), *connections(server, texts, options.connections)]
        tally = clients.stop()
        attacks.append(too_large(exports.base(dynamic_batching=True)))
        return judge_hostile(attacks, tally, expected, server.memory() - before)


def judge_hostile(attacks: Sequence[Attack], tally: Tally, expected: Sequence[Response], grown: int) -> str:
    """Returns what became of attacks and of good clients as Markdown; memory has `grown` by so many bytes."""
    as_stock = sum(attack.got == attack.stock for attack in attacks)
    median, most, longest = tally.milliseconds
    goals = [
        Goal("answered as by the stock server", f"{as_stock} of {len(attacks)}", "all", 0 < as_stock == len(attacks)),
        none_of("good requests that failed", tally.failed, tally.answers + tally.failed),
        none_of("good requests with a wrong answer", tally.wrong(_always(expected)), tally.answers),
        Goal("good requests waited", f"{median:.1f} ms in the median, 99 % at most {most:.1f}, at most {longest:.0f}"),
        Goal("memory more than before", f"{grown / 1e6:,.0f} MB"),
    ]
    rows = table(["sent", "got", "stock", "message"], attacks)
    title = f"Requests that mean no good, beside {GOOD_CLIENTS} clients that do"
    return section(title, goals, [*rows, *tally.failure_lines])


CASES = {case.__name__: case for case in (latency, throughput, swaps, soak, hostile)}
