"""Load from a process of its own, and what came of it."""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process import Process
from benchmarks.serving.questions import Answer


@dataclass(frozen=True)
class Got:
    """An answer that clients got, and how often.

    Attributes:
        question: Which question it answers.
        version: The version that it says it is of.
        answer: What it says.
        count: How often.
    """

    question: int
    version: int
    answer: Answer
    count: int


@dataclass(frozen=True)
class Tally:
    """What clients got.

    Attributes:
        seconds: How long they asked.
        got: The answers.
        failures: How often each status came instead of one.
        milliseconds: Median, 99 % and longest wait.
    """

    seconds: float
    got: Sequence[Got]
    failures: Mapping[str, int]
    milliseconds: tuple[float, float, float]

    @property
    def answers(self) -> int:
        """How many questions were answered."""
        return sum(each.count for each in self.got)

    @property
    def failed(self) -> int:
        """How many were not."""
        return sum(self.failures.values())

    @property
    def rate(self) -> float:
        """Answers in a second."""
        return self.answers / self.seconds

    def wrong(self, expected: Callable[[int], Sequence[Answer]]) -> int:
        """Returns how many answers are not, whole, what is expected.

        Args:
            expected: Tells the right answers to all questions by the version that answers.
        """
        return sum(each.count for each in self.got if not each.answer.agrees(expected(each.version)[each.question]))

    def __add__(self, other: "Tally") -> "Tally":
        """Returns what both together got; the waits are those of the slower."""
        failures = {
            name: self.failures.get(name, 0) + other.failures.get(name, 0) for name in {*self.failures, *other.failures}
        }
        slower = max(self.milliseconds, other.milliseconds)
        return Tally(self.seconds + other.seconds, [*self.got, *other.got], failures, slower)


class Clients(Process):
    """A process of clients of one server, to be closed.

    Args:
        address: Host and port of the server.
        questions: Questions of some sentences each, asked in turn.
    """

    def __init__(self, address: str, questions: Sequence[Sequence[str]]):
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name, "questions.json")
        path.write_text(json.dumps([list(texts) for texts in questions]), encoding="utf-8")
        super().__init__([sys.executable, "-m", "benchmarks.serving.load", address, str(path)])

    def close(self) -> None:
        """Ends the process."""
        super().close()
        self._folder.cleanup()

    def start(self, count: int) -> None:
        """Has so many clients ask from now on."""
        self.tell(str(count))

    def stop(self) -> Tally:
        """Has them stop; returns what they got since `start`."""
        self.tell("stop")
        told = self.answer()
        got = [
            Got(index, version, Answer(tuple(texts), tuple(log_probs)), count)
            for index, version, texts, log_probs, count in told["got"]
        ]
        return Tally(told["seconds"], got, told["failures"], tuple(told["milliseconds"]))

    def ask_for(self, count: int, seconds: float) -> Tally:
        """Has so many clients ask for some time; returns what they got."""
        self.start(count)
        time.sleep(seconds)
        return self.stop()
