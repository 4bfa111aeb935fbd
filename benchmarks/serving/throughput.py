"""Many clients of a model that answers together what arrives together, beside one client of the same server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.serving.clients import Clients, Tally
from benchmarks.serving.exports import Exports
from benchmarks.serving.questions import Answer
from benchmarks.serving.report import Goal, none_of, table
from benchmarks.serving.server import serving
from benchmarks.timing import Spread, take_turns

CLIENTS, FACTOR = 16, 4.0
ROUNDS, SECONDS = 5, 60
WARM_UP = 2  # seconds


@dataclass(frozen=True)
class Turn:
    """What clients got in one turn.

    Attributes:
        tally: The answers.
        busy: Seconds that the server kept a core busy.
    """

    tally: Tally
    busy: float


def measure(exports: Exports, options) -> str:
    """Returns the case as Markdown.

    Args:
        exports: What to serve.
        options: Those of the command; `seconds` is used.
    """
    expected = exports.answers(exports.questions)
    turns: dict[int, list[Turn]] = {1: [], CLIENTS: []}
    with (
        serving(exports.base(dynamic_batching=True)) as server,
        Clients(server.address, exports.questions) as clients,
    ):
        clients.ask_for(CLIENTS, WARM_UP)
        seconds = (options.seconds or SECONDS) / ROUNDS / len(turns)

        def rate(count: int) -> float:
            before = server.processor_time()
            tally = clients.ask_for(count, seconds)
            turns[count].append(Turn(tally, server.processor_time() - before))
            return tally.rate

        take_turns({str(count): lambda count=count: rate(count) for count in turns}, ROUNDS, warm_up=0)
    return judge(turns, expected)


def judge(turns: Mapping[int, Sequence[Turn]], expected: Sequence[Answer]) -> str:
    """Returns turns by the number of clients as Markdown.

    Args:
        turns: What each turn gave.
        expected: The right answer to each question.
    """
    rates = {count: Spread.of([turn.tally.rate for turn in each]) for count, each in turns.items()}
    ratio = rates[CLIENTS].median / max(rates[1].median, 1e-9)
    tallies = [turn.tally for each in turns.values() for turn in each]
    answers = sum(tally.answers for tally in tallies)
    failed = sum(tally.failed for tally in tallies)
    goals = [
        *(Goal(f"answers a second, clients: {count}", _told(rates[count], turns[count])) for count in turns),
        Goal("ratio", f"{ratio:.2f}×", f"≥ {FACTOR:g}×", ratio >= FACTOR),
        none_of("wrong", sum(tally.wrong(lambda _: expected) for tally in tallies), answers),
        none_of("failed", failed, answers + failed),
    ]
    return table(f"{CLIENTS} clients with dynamic batching, beside one; turns A B A B (quartiles)", goals)


def _told(rate: Spread, turns: Sequence[Turn]) -> str:
    wait = Spread.of([turn.tally.milliseconds[0] for turn in turns]).median
    busy = sum(turn.busy for turn in turns) / max(1, sum(turn.tally.answers for turn in turns))
    spread = f"{rate.median:,.1f} ({rate.low:,.1f}–{rate.high:,.1f})"
    return f"{spread}, each after {wait:.1f} ms, for {1000 * busy:.1f} ms of a core"
