"""Clients in a process of their own that ask a server one question after the other, and what came of it.

Both sides of the protocol: a request with a number starts so many `clients`, each on its own connection; the next one,
with 0, stops them, and is answered with what they got.
"""

import itertools
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np

from benchmarks.process import Process
from benchmarks.serving.questions import METHOD, Response, question, read
from benchmarks.serving.server import OPTIONS
from benchmarks.worker import Channel
from export.wire.protos import predict_pb2

SECONDS = 60  # for an answer


@dataclass(frozen=True)
class Counted:
    """An answer that clients got: to which question, from which version, and how often."""

    question: int
    version: int
    answer: Response
    count: int


@dataclass(frozen=True)
class Tally:
    """What clients got."""

    seconds: float  # how long they asked
    counted: Sequence[Counted]
    failures: Mapping[str, int]  # how often each status came instead of one
    milliseconds: tuple[float, float, float]  # median, 99 % and longest wait

    @property
    def answers(self) -> int:
        """How many questions were answered."""
        return sum(each.count for each in self.counted)

    @property
    def failed(self) -> int:
        """How many were not."""
        return sum(self.failures.values())

    @property
    def rate(self) -> float:
        """Answers in a second."""
        return self.answers / self.seconds

    @property
    def failure_lines(self) -> list[str]:
        """A line for each status."""
        return [f"- {count} × {failure}" for failure, count in self.failures.items()]

    def wrong(self, expected: Callable[[int], Sequence[Response]]) -> int:
        """Returns how many answers are not, whole, those that are `expected` of the version that answered."""
        return sum(each.count for each in self.counted if not each.answer.agrees(expected(each.version)[each.question]))


class Clients(Process):
    """A process of clients of one server that ask questions of some sentences each in turn; to be closed."""

    def __init__(self, address: str, questions: Sequence[Sequence[str]]):
        task = {"adapter": "benchmarks.serving.clients:ask_in_turn", "address": address}
        task["questions"] = [list(texts) for texts in questions]
        super().__init__([sys.executable, "-m", "benchmarks.worker", json.dumps(task)])
        self.answer()

    def start(self, count: int) -> None:
        """Lets so many clients ask from now on."""
        self.ask(clients=count)

    def stop(self) -> Tally:
        """Stops them; returns what they got since `start`."""
        outcome = self.ask(clients=0)
        counted = [
            Counted(index, version, Response(tuple(texts), tuple(log_probs)), count)
            for index, version, texts, log_probs, count in outcome["answers"]
        ]
        return Tally(outcome["seconds"], counted, Counter(outcome["failures"]), tuple(outcome["milliseconds"]))

    def ask_for(self, count: int, seconds: float) -> Tally:
        """Lets so many clients ask for some time; returns what they got."""
        self.start(count)
        time.sleep(seconds)
        return self.stop()


class RunningClients:
    """Clients at work until they are stopped; all together ask the serialized questions in turn."""

    def __init__(self, address: str, questions: Sequence[bytes], count: int):
        self._address, self._questions = address, questions
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        self._answers: Counter = Counter()
        self._failures: Counter = Counter()
        self._seconds: list[float] = []
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._work) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> dict[str, Any]:
        """Stops them once they have their answers, and returns what they got."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return {
            "seconds": time.monotonic() - self._began,
            "answers": [[index, version, *answer, count] for (index, version, answer), count in self._answers.items()],
            "failures": dict(self._failures),
            "milliseconds": [1000 * value for value in np.percentile(self._seconds or [0.0], [50, 99, 100])],
        }

    def _work(self) -> None:
        with grpc.insecure_channel(self._address, OPTIONS) as channel:
            ask = channel.unary_unary(METHOD, response_deserializer=predict_pb2.PredictResponse.FromString)
            self._ask_once(ask)  # however soon they are stopped
            while not self._stopped.is_set():
                self._ask_once(ask)

    def _ask_once(self, ask: Callable) -> None:
        index = next(self._numbers) % len(self._questions)
        began = time.monotonic()
        try:
            outcome, counter = (index, *read(ask(self._questions[index], timeout=SECONDS))), self._answers
        except grpc.RpcError as error:
            outcome, counter = f"{error.code().name}: {error.details()}", self._failures
        except ValueError as error:
            outcome, counter = f"no answer that can be read: {error!r}", self._failures
        with self._lock:
            counter[outcome] += 1
            self._seconds.append(time.monotonic() - began)


def ask_in_turn(channel: Channel) -> None:
    """Lets clients ask the `questions` of the task, some sentences each, at its `address`."""
    questions = [question(texts).SerializeToString() for texts in channel.task["questions"]]
    channel.introduce()
    while (request := channel.receive()) is not None:
        clients = RunningClients(channel.task["address"], questions, request["clients"])
        channel.send()
        channel.receive()
        channel.send(**clients.stop())
