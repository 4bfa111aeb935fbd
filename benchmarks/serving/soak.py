"""Memory of a server that is asked as much as it can answer, for long."""

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.serving.clients import Clients, Tally
from benchmarks.serving.exports import Exports
from benchmarks.serving.questions import Answer
from benchmarks.serving.report import Goal, none_of, table
from benchmarks.serving.server import serving

CLIENTS, SECONDS = 16, 600
SETTLED = 0.2  # the part of the time after which memory is to stay: two minutes of ten
SAMPLES = 60
MOST = 0.03

Sample = tuple[float, float]  # seconds, bytes


def measure(exports: Exports, options) -> str:
    """Returns the case as Markdown.

    Args:
        exports: What to serve.
        options: Those of the command; `seconds` is used.
    """
    expected = exports.answers(exports.questions)
    seconds = options.seconds or SECONDS
    with (
        serving(exports.base(dynamic_batching=True)) as server,
        Clients(server.address, exports.questions) as clients,
    ):
        clients.start(CLIENTS)
        began, samples = time.monotonic(), []
        for number in range(SAMPLES + 1):
            time.sleep(max(0.0, began + number * seconds / SAMPLES - time.monotonic()))
            samples.append((time.monotonic() - began, server.memory()))
        return judge(samples, clients.stop(), expected)


def judge(samples: Sequence[Sample], tally: Tally, expected: Sequence[Answer]) -> str:
    """Returns the memory over time as Markdown.

    Args:
        samples: When there was how much, in order.
        tally: What clients got meanwhile.
        expected: The right answer to each question.
    """
    end = samples[-1][0]
    times, sizes = np.array([sample for sample in samples if sample[0] >= SETTLED * end]).T
    span = (sizes.max() - sizes.min()) / sizes.min()
    slope = np.polyfit(times / 60, sizes, 1)[0] if len(sizes) > 1 else 0.0
    goals = [
        Goal("memory, largest less smallest", f"{span:.1%}", f"≤ {MOST:.0%}", bool(span <= MOST)),
        Goal("of these", f"{sizes.min() / 1e6:,.1f} to {sizes.max() / 1e6:,.1f} MB, {len(sizes)} samples"),
        Goal("slope", f"{slope / 1e6:+.2f} MB ({slope / sizes.mean():+.2%}) a minute"),
        Goal("answers a second", f"{tally.rate:,.1f}"),
        none_of("wrong", tally.wrong(lambda _: expected), tally.answers),
        none_of("failed", tally.failed, tally.answers + tally.failed),
    ]
    told = ", ".join(f"{size / 1e6:,.0f}" for _, size in samples[:: max(1, len(samples) // 20)])
    title = f"{end / 60:.1f} minutes of {CLIENTS} clients, memory after the first {SETTLED * end / 60:.1f}"
    return table(title, goals, [f"Resident memory from start to end, MB: {told}."])
