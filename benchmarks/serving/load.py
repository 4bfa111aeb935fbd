"""Adapter of `benchmarks.worker`: clients that ask a server one question after the other, each on its own connection.

A request with a number starts so many `clients`; the next one, with 0, stops them, and is answered with what they got.
"""

import collections
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import numpy as np

from benchmarks.serving.questions import METHOD, question, read
from benchmarks.serving.server import OPTIONS
from benchmarks.worker import Channel
from export.wire.protos import predict_pb2

SECONDS = 60  # for an answer


class RunningClients:
    """Clients at work until they are stopped; all together ask the serialized questions in turn."""

    def __init__(self, address: str, questions: Sequence[bytes], count: int):
        self._address, self._questions = address, questions
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        self._answers: collections.Counter = collections.Counter()
        self._failures: collections.Counter = collections.Counter()
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
        except Exception as error:
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
