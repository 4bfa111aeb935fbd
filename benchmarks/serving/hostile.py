"""Requests that mean no good: what each gets, and whether good ones succeed meanwhile."""

from collections.abc import Sequence

from benchmarks.serving.attacks import Attack, requests, too_large
from benchmarks.serving.clients import Clients, Tally
from benchmarks.serving.connections import connections
from benchmarks.serving.exports import Exports
from benchmarks.serving.questions import Answer
from benchmarks.serving.report import Goal, none_of, table
from benchmarks.serving.server import serving

GOOD_CLIENTS = 2


def measure(exports: Exports, options) -> str:
    """Returns the case as Markdown.

    Args:
        exports: What to serve.
        options: Those of the command; `connections` is used.
    """
    expected = exports.answers(exports.questions)
    base = exports.base(dynamic_batching=True)
    with serving(base) as server, Clients(server.address, exports.questions) as clients:
        before = server.memory()
        clients.start(GOOD_CLIENTS)
        texts = [text for texts in exports.questions for text in texts]
        found = [*requests(server), *connections(server, texts, options.connections)]
        tally = clients.stop()
        found.append(too_large(base))
        return judge(found, tally, expected, server.memory() - before)


def judge(found: Sequence[Attack], tally: Tally, expected: Sequence[Answer], grown: int) -> str:
    """Returns what became of everyone as Markdown.

    Args:
        found: What was sent, and got.
        tally: What those got who meant well.
        expected: The right answer to each of their questions.
        grown: Bytes that the server has more in memory than before.
    """
    as_stock = sum(attack.got == attack.stock for attack in found)
    median, most, longest = tally.milliseconds
    goals = [
        Goal("answered as by the stock server", f"{as_stock} of {len(found)}", "all", 0 < as_stock == len(found)),
        none_of("good requests that failed", tally.failed, tally.answers + tally.failed),
        none_of("good requests with a wrong answer", tally.wrong(lambda _: expected), tally.answers),
        Goal("good requests waited", f"{median:.1f} ms in the median, 99 % at most {most:.1f}, at most {longest:.0f}"),
        Goal("memory more than before", f"{grown / 1e6:,.0f} MB"),
    ]
    rows = ["| sent | got | stock | message |", "|---|---|---|---|"]
    rows += [f"| {each.sent} | {each.got} | {each.stock} | {each.message} |" for each in found]
    failures = [f"- {count} × {failure}" for failure, count in tally.failures.items()]
    return table(f"Requests that mean no good, beside {GOOD_CLIENTS} clients that do", goals, [*rows, *failures])
