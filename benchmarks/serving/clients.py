"""Clients of a server, in a process of their own.

In a closed loop each client waits for its response before it sends its next request. In an open loop requests are sent
at a fixed rate, however late the earlier responses are; only this shows how long people wait for an overloaded server.
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

from benchmarks.runner.process import Process
from benchmarks.runner.worker import Channel
from benchmarks.serving.protocol import PROTOCOLS, Protocol, Response
from benchmarks.serving.server import OPTIONS, SECONDS

PERCENTILES = (50, 95, 99, 100)


@dataclass(frozen=True)
class Counted:
    """A response: to which request, by which version of the model, and how often it was received."""

    request: int
    version: int
    response: Response
    count: int


@dataclass(frozen=True)
class Tally:
    """What clients received.

    Attributes:
        seconds: How long they sent requests.
        counted: The responses.
        failures: How often each error was received instead of a response.
        milliseconds: The latency of responses at `PERCENTILES`.
    """

    seconds: float
    counted: Sequence[Counted]
    failures: Mapping[str, int]
    milliseconds: tuple[float, ...]

    @classmethod
    def of(cls, outcome: Mapping[str, Any]) -> "Tally":
        """Returns the tally that `Load` sends as plain data."""
        counted = [
            Counted(request, version, Response(tuple(texts), tuple(log_probs)), count)
            for request, version, texts, log_probs, count in outcome["responses"]
        ]
        return cls(outcome["seconds"], counted, outcome["failures"], tuple(outcome["milliseconds"]))

    @property
    def responses(self) -> int:
        """The number of responses."""
        return sum(item.count for item in self.counted)

    @property
    def failed(self) -> int:
        """The number of requests that failed."""
        return sum(self.failures.values())

    @property
    def rate(self) -> float:
        """Responses in a second."""
        return self.responses / self.seconds

    @property
    def failure_lines(self) -> list[str]:
        """A line for each error."""
        return [f"- {count} × {failure}" for failure, count in self.failures.items()]

    def wrong(self, expected: Callable[[int], Sequence[Response]]) -> int:
        """Returns how many responses differ from those that `expected` returns for the version that answered."""
        return sum(
            item.count for item in self.counted if not item.response.agrees(expected(item.version)[item.request])
        )


class Clients(Process):
    """A process with clients of one server, to be closed. They send the requests, some sentences each, in turn."""

    def __init__(self, address: str, requests: Sequence[Sequence[str]], protocol: str = "predict"):
        task = {"adapter": "benchmarks.serving.clients:serve", "address": address, "protocol": protocol}
        task["requests"] = [list(texts) for texts in requests]
        super().__init__([sys.executable, "-m", "benchmarks.runner.worker", json.dumps(task)])
        self.receive()

    def answer_each(self) -> list[Response]:
        """Returns the response to each request when one client sends them, one after the other."""
        responses = self.request(alone=True)["responses"]
        return [Response(tuple(texts), tuple(log_probs)) for texts, log_probs in responses]

    def start(self, count: int) -> None:
        """Starts a closed loop of `count` clients."""
        self.request(clients=count)

    def stop(self) -> Tally:
        """Stops the closed loop and returns what its clients received."""
        return Tally.of(self.request(stop=True))

    def run(self, count: int, seconds: float) -> Tally:
        """Returns what the clients of a closed loop receive within some seconds."""
        self.start(count)
        time.sleep(seconds)
        return self.stop()

    def at_rate(self, rate: float, seconds: float) -> Tally:
        """Returns what is received in an open loop of `rate` requests a second."""
        return Tally.of(self.request(rate=rate, seconds=seconds))


class Load:
    """The process's side of `Clients`: sends requests to one server and counts its responses."""

    def __init__(self, address: str, protocol: Protocol, requests: Sequence[Sequence[str]]):
        self._address, self._protocol = address, protocol
        self._requests = [protocol.write(texts) for texts in requests]
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._numbers, self._stopped = itertools.count(), threading.Event()
        self._responses: Counter = Counter()
        self._failures: Counter = Counter()
        self._seconds: list[float] = []
        self._threads: list[threading.Thread] = []
        self._began = time.perf_counter()

    def _channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self._address, OPTIONS)

    def _call(self, channel: grpc.Channel) -> Any:
        return channel.unary_unary(self._protocol.method)

    def answer_each(self) -> list[Response]:
        """Returns the response to each request, sent one after the other."""
        with self._channel() as channel:
            call = self._call(channel)
            return [self._protocol.read(call(request, timeout=SECONDS))[1] for request in self._requests]

    def start(self, clients: int) -> None:
        """Starts a closed loop."""
        self._begin()
        self._threads = [threading.Thread(target=self._work) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        with self._channel() as channel:
            call = self._call(channel)
            while True:  # at least once, however soon the loop is stopped
                index, began = next(self._numbers) % len(self._requests), time.perf_counter()
                self._count(index, began, lambda index=index: call(self._requests[index], timeout=SECONDS))
                if self._stopped.is_set():
                    return

    def stop(self) -> dict[str, Any]:
        """Stops the closed loop once all clients have their responses, and returns a tally as plain data."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return self._tally()

    def at_rate(self, rate: float, seconds: float) -> dict[str, Any]:
        """Sends requests at a rate, and returns a tally as plain data; a latency begins when a request is due."""
        self._begin()
        count, pending = max(1, int(rate * seconds)), threading.Semaphore(0)
        with self._channel() as channel:
            call = self._call(channel)
            for number in range(count):
                index, due = number % len(self._requests), self._began + number / rate
                time.sleep(max(0.0, due - time.perf_counter()))

                def done(future: grpc.Future, index: int = index, due: float = due) -> None:
                    self._count(index, due, future.result)
                    pending.release()

                call.future(self._requests[index], timeout=SECONDS).add_done_callback(done)
            for _ in range(count):
                pending.acquire()
            return self._tally()

    def _count(self, index: int, began: float, receive: Callable[[], bytes]) -> None:
        """Counts what `receive` returns, or the error that it raises."""
        try:
            key, counter = (index, *self._protocol.read(receive())), self._responses
        except grpc.RpcError as error:
            key, counter = f"{error.code().name}: {error.details()}", self._failures
        except ValueError as error:
            key, counter = f"unreadable response: {error!r}", self._failures
        with self._lock:
            counter[key] += 1
            if counter is self._responses:
                self._seconds.append(time.perf_counter() - began)

    def _tally(self) -> dict[str, Any]:
        latencies = 1000 * np.percentile(self._seconds or [np.inf], PERCENTILES)
        return {
            "seconds": time.perf_counter() - self._began,
            "responses": [[*key[:2], *key[2], count] for key, count in self._responses.items()],
            "failures": dict(self._failures),
            "milliseconds": latencies.tolist(),
        }


def serve(channel: Channel) -> None:
    """Sends the `requests` of the task to the server at its `address`, as each message of `Clients` requires."""
    task = channel.task
    load = Load(task["address"], PROTOCOLS[task["protocol"]], task["requests"])
    channel.introduce()
    while (message := channel.receive()) is not None:
        if "alone" in message:
            channel.send(responses=load.answer_each())
        elif "clients" in message:
            load.start(message["clients"])
            channel.send()
        else:
            channel.send(**(load.at_rate(**message) if "rate" in message else load.stop()))
    load.stop()
