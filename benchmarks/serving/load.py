"""Load from a process of its own: one sentence in a request, from clients that wait or at a rate that does not.

Clients that wait (a closed loop) ask again once they have their answer. At a rate (an open loop) requests are sent when
they are due, whatever became of the earlier ones: what a server that is too slow makes people wait is seen there alone.
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
from benchmarks.serving.questions import METHOD, question
from benchmarks.serving.server import OPTIONS, SECONDS
from benchmarks.worker import Channel
from export.wire.protos import predict_pb2

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Protocol:
    """How a text is asked for, and its translation read."""

    method: str
    write: Callable[[str], bytes]
    read: Callable[[bytes], str]


def _read_prediction(response: bytes) -> str:
    (text,) = predict_pb2.PredictResponse.FromString(response).outputs["text"].string_val
    return str(text.decode())


def _write_prediction(text: str) -> bytes:
    request = question([text])
    request.output_filter.append("text")
    return bytes(request.SerializeToString())


PROTOCOLS = {
    "predict": Protocol(METHOD, _write_prediction, _read_prediction),
    "text": Protocol("/peer.Translator/Translate", str.encode, bytes.decode),
}


@dataclass(frozen=True)
class Felt:
    """What came of requests: the milliseconds of `PERCENTILES`, the answers in a second, and what went wrong."""

    milliseconds: tuple[float, float, float]
    rate: float
    answers: int
    failures: Mapping[str, int]
    wrong: int

    @property
    def p99(self) -> float:
        """The milliseconds that one in a hundred waited, or longer."""
        return self.milliseconds[2]


class Load(Process):
    """A process that asks a server; to be closed. The first answers to each text, asked alone, are the right ones."""

    def __init__(self, address: str, protocol: str, texts: Sequence[str]):
        task = {"adapter": "benchmarks.serving.load:serve", "address": address, "protocol": protocol}
        super().__init__([sys.executable, "-m", "benchmarks.worker", json.dumps({**task, "texts": list(texts)})])
        self.answer()

    def wait(self, clients: int, seconds: float) -> Felt:
        """Lets clients ask that wait for their answers."""
        return self._felt(self.ask(clients=clients, seconds=seconds))

    def at_rate(self, rate: float, seconds: float) -> Felt:
        """Sends so many requests in a second."""
        return self._felt(self.ask(rate=rate, seconds=seconds))

    def _felt(self, outcome: Mapping[str, Any]) -> Felt:
        return Felt(**{**outcome, "milliseconds": tuple(outcome["milliseconds"])})


class _Record:
    """What came of the requests so far."""

    def __init__(self, expected: Sequence[str]):
        self._expected, self._lock = expected, threading.Lock()
        self._seconds: list[float] = []
        self._failures: Counter = Counter()
        self._wrong = 0

    def add(self, index: int, seconds: float, answer: str | None, failure: str = "") -> None:
        with self._lock:
            if answer is None:
                self._failures[failure] += 1
            else:
                self._seconds.append(seconds)
                self._wrong += answer != self._expected[index]

    def summary(self, seconds: float) -> dict[str, Any]:
        values = 1000 * np.percentile(self._seconds or [np.inf], PERCENTILES)
        answers = len(self._seconds)
        return {
            "milliseconds": values.tolist(),
            "rate": answers / seconds,
            "answers": answers,
            "failures": dict(self._failures),
            "wrong": self._wrong,
        }


class _Asker:
    """Asks one server for texts in turn."""

    def __init__(self, address: str, protocol: Protocol, texts: Sequence[str]):
        self._address, self._protocol = address, protocol
        self._requests = [protocol.write(text) for text in texts]
        with self._channel() as channel:
            self._expected = [
                protocol.read(self._call(channel)(request, timeout=SECONDS)) for request in self._requests
            ]

    def _channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self._address, OPTIONS)

    def _call(self, channel: grpc.Channel) -> Any:
        return channel.unary_unary(self._protocol.method)

    def wait(self, clients: int, seconds: float) -> dict[str, Any]:
        record, numbers, end = _Record(self._expected), itertools.count(), time.monotonic() + seconds

        def work() -> None:
            with self._channel() as channel:
                call = self._call(channel)
                while time.monotonic() < end:
                    index = next(numbers) % len(self._requests)
                    began = time.perf_counter()
                    try:
                        answer = self._protocol.read(call(self._requests[index], timeout=SECONDS))
                    except grpc.RpcError as error:
                        record.add(index, 0.0, None, error.code().name)
                        continue
                    record.add(index, time.perf_counter() - began, answer)

        threads = [threading.Thread(target=work) for _ in range(clients)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return record.summary(time.monotonic() - began)

    def at_rate(self, rate: float, seconds: float) -> dict[str, Any]:
        record, count = _Record(self._expected), max(1, int(rate * seconds))
        left = threading.Semaphore(0)
        with self._channel() as channel:
            call = self._call(channel)
            began = time.perf_counter()
            for number in range(count):
                due = began + number / rate
                time.sleep(max(0.0, due - time.perf_counter()))
                self._send(call, number % len(self._requests), due, record, left)
            for _ in range(count):
                left.acquire()
            return record.summary(time.perf_counter() - began)

    def _send(self, call: Any, index: int, due: float, record: _Record, left: threading.Semaphore) -> None:
        def done(future: grpc.Future) -> None:
            seconds = time.perf_counter() - due
            if future.exception() is None:
                record.add(index, seconds, self._protocol.read(future.result()))
            else:
                record.add(index, seconds, None, future.exception().code().name)
            left.release()

        call.future(self._requests[index], timeout=SECONDS).add_done_callback(done)


def serve(channel: Channel) -> None:
    """Asks the server at the `address` of the task as each request says."""
    asker = _Asker(channel.task["address"], PROTOCOLS[channel.task["protocol"]], channel.task["texts"])
    channel.introduce()
    while (request := channel.receive()) is not None:
        channel.send(**(asker.at_rate(**request) if "rate" in request else asker.wait(**request)))
