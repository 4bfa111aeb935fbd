"""One sentence: how long its translation takes over gRPC, beside the same call in process."""

import itertools
import time
from collections.abc import Callable

import grpc

from benchmarks.serving.exports import Exports, Local
from benchmarks.serving.questions import METHOD, question, read
from benchmarks.serving.report import Goal, table
from benchmarks.serving.server import OPTIONS, serving
from benchmarks.timing import Spread, take_turns
from export.wire.protos import predict_pb2

FACTOR, MORE = 1.3, 1.0  # milliseconds


def measure(exports: Exports, options) -> str:
    """Returns the case as Markdown.

    Args:
        exports: What to serve.
        options: Those of the command; `rounds` is used.
    """
    base = exports.base()
    local = Local(base / "1")
    with serving(base) as server, grpc.insecure_channel(server.address, OPTIONS) as channel:
        ask = channel.unary_unary(
            METHOD, predict_pb2.PredictRequest.SerializeToString, predict_pb2.PredictResponse.FromString
        )
        contestants = {
            "in process": _timed(exports, local.answer),
            "over gRPC": _timed(exports, lambda texts: read(ask(question(texts)))),
        }
        times = take_turns(contestants, options.rounds, warm_up=len(exports.questions))
    return judge(times)


def judge(times: dict[str, list[float]]) -> str:
    """Returns milliseconds by contestant as Markdown."""
    spreads = {name: Spread.of(values) for name, values in times.items()}
    within, over = spreads["in process"], spreads["over gRPC"]
    allowed = FACTOR * within.median + MORE
    told = {name: f"{each.median:.2f} ms ({each.low:.2f}–{each.high:.2f})" for name, each in spreads.items()}
    goals = [
        Goal("in process", told["in process"]),
        Goal("over gRPC", told["over gRPC"], f"≤ {FACTOR}× + {MORE:g} ms = {allowed:.2f} ms", over.median <= allowed),
        Goal("ratio", f"{over.median / within.median:.2f}×"),
    ]
    return table(f"One sentence at a time, median of {len(times['over gRPC'])} turns A B A B (quartiles)", goals)


def _timed(exports: Exports, ask: Callable) -> Callable[[], float]:
    """Returns a function that asks the next question and returns the milliseconds that took."""
    questions = itertools.cycle(exports.questions)

    def once() -> float:
        texts = next(questions)
        began = time.perf_counter()
        ask(texts)
        return 1000 * (time.perf_counter() - began)

    return once
