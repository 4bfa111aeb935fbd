"""Worker: clients that ask a server one question after the other, each on a connection of its own.

`python -m benchmarks.serving.load ADDRESS QUESTIONS.json`: a line with a number starts so many clients, the next line
stops them, and a line of JSON tells what they got.
"""

import collections
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np

from benchmarks.serving.questions import METHOD, question, read
from benchmarks.serving.server import OPTIONS
from export.wire.protos import predict_pb2

SECONDS = 60  # for an answer


class Clients:
    """Clients at work until they are told to stop.

    Args:
        address: Host and port of the server.
        questions: Requests, serialized; all clients together ask them in turn.
        count: How many clients.
    """

    def __init__(self, address: str, questions: list[bytes], count: int):
        self._address, self._questions = address, questions
        self._turn = itertools.count()
        self._stopped = threading.Event()
        self._got: collections.Counter = collections.Counter()
        self._failures: collections.Counter = collections.Counter()
        self._seconds: list[float] = []
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._threads = [threading.Thread(target=self._work) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> dict:
        """Stops them once they have their answers, and returns what they got."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return {
            "seconds": time.monotonic() - self._began,
            "got": [[index, version, *answer, count] for (index, version, answer), count in self._got.items()],
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
        index = next(self._turn) % len(self._questions)
        began = time.monotonic()
        try:
            found, counter = (index, *read(ask(self._questions[index], timeout=SECONDS))), self._got
        except grpc.RpcError as error:
            found, counter = f"{error.code().name}: {error.details()}", self._failures
        except Exception as error:
            found, counter = f"no answer that can be read: {error!r}", self._failures
        with self._lock:
            counter[found] += 1
            self._seconds.append(time.monotonic() - began)


def main() -> None:
    address, path = sys.argv[1:]
    questions = [question(texts).SerializeToString() for texts in json.loads(Path(path).read_text(encoding="utf-8"))]
    for line in sys.stdin:
        clients = Clients(address, questions, int(line))
        sys.stdin.readline()
        print(json.dumps(clients.stop()), flush=True)


if __name__ == "__main__":
    main()
