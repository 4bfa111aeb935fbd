"""Load from a process of its own, and what came of it."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.process import Process
from benchmarks.serving.questions import Answer


@dataclass(frozen=True)
class Counted:
    """An answer that clients got: to which question, from which version, and how often."""

    question: int
    version: int
    answer: Answer
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

    def wrong(self, expected: Callable[[int], Sequence[Answer]]) -> int:
        """Returns how many answers are not, whole, those that are `expected` of the version that answered."""
        return sum(each.count for each in self.counted if not each.answer.agrees(expected(each.version)[each.question]))


class Clients(Process):
    """A process of clients of one server that ask questions of some sentences each in turn; to be closed."""

    def __init__(self, address: str, questions: Sequence[Sequence[str]]):
        task = {"adapter": "benchmarks.serving.load:ask_in_turn", "address": address}
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
            Counted(index, version, Answer(tuple(texts), tuple(log_probs)), count)
            for index, version, texts, log_probs, count in outcome["answers"]
        ]
        return Tally(outcome["seconds"], counted, Counter(outcome["failures"]), tuple(outcome["milliseconds"]))

    def ask_for(self, count: int, seconds: float) -> Tally:
        """Lets so many clients ask for some time; returns what they got."""
        self.start(count)
        time.sleep(seconds)
        return self.stop()
