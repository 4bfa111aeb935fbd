"""Requests of several callers run together, under the stock server's batching parameters.

Requests for the same outputs of the same model wait in one queue. A worker takes a batch from it when that is full or
its first request has waited long enough, joins the inputs along axis 0, runs the graph once and splits the outputs.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
from grpc import StatusCode

from export.server.batch_arrays import join, split
from export.server.deadline import Call, too_late
from export.server.status import RequestError, invalid_argument
from zoo.errors import InputError

Feeds = Mapping[str, np.ndarray]
Run = Callable[[Feeds, Call], list[np.ndarray]]


@dataclass(frozen=True)
class BatchingParameters:
    """The stock server's `BatchingParameters`, with its defaults.

    Attributes:
        max_batch_size: Rows of the largest batch, and of the largest request.
        timeout_seconds: How long the first request of a batch waits for others.
        max_enqueued_batches: Batches that may wait; requests beyond them are refused.
        num_batch_threads: Batches that run at the same time.
        thread_pool_name: A name for the metrics.
        allowed_batch_sizes: Batches are padded to the next of these; empty means not at all.
        pad_variable_length_inputs: Whether inputs of different inner shape are padded to the largest.
        execution_batch_size: Rows that run at once; larger requests are cut into parts of so many.
    """

    max_batch_size: int = 1000
    timeout_seconds: float = 0.0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    thread_pool_name: str = "model_server_batch_threads"
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    execution_batch_size: int = 1000

    @classmethod
    def from_message(cls, message) -> "BatchingParameters":
        """Reads the protocol buffer.

        Raises:
            InputError: The parameters contradict each other.
        """

        def value(name: str, default):
            return getattr(message, name).value if message.HasField(name) else default

        largest = value("max_batch_size", cls.max_batch_size)
        cut = value("enable_large_batch_splitting", False)
        parameters = cls(
            max_batch_size=largest,
            timeout_seconds=value("batch_timeout_micros", 0) / 1e6,
            max_enqueued_batches=value("max_enqueued_batches", cls.max_enqueued_batches),
            num_batch_threads=value("num_batch_threads", cls.num_batch_threads),
            thread_pool_name=value("thread_pool_name", cls.thread_pool_name),
            allowed_batch_sizes=tuple(message.allowed_batch_sizes),
            pad_variable_length_inputs=message.pad_variable_length_inputs,
            execution_batch_size=value("max_execution_batch_size", largest) if cut else largest,
        )
        parameters.check()
        return parameters

    def check(self) -> None:
        """Does nothing if the parameters fit together.

        Raises:
            InputError: They do not.
        """
        sizes = self.allowed_batch_sizes
        numbers = (self.max_batch_size, self.max_enqueued_batches, self.num_batch_threads, self.execution_batch_size)
        if min(numbers) < 1 or self.timeout_seconds < 0:
            raise InputError(f"Batching parameters must be positive. Received: {self}")
        if self.execution_batch_size > self.max_batch_size:
            raise InputError(f"max_execution_batch_size must not exceed max_batch_size. Received: {self}")
        if any(left >= right for left, right in zip(sizes, sizes[1:], strict=False)):
            raise InputError(f"allowed_batch_sizes entries must be monotonically increasing. Received: {list(sizes)}")
        if sizes and sizes[-1] != self.execution_batch_size:
            raise InputError(
                "Last entry in allowed_batch_sizes must match max_batch_size; "
                f"last entry was {sizes[-1]}; expected {self.execution_batch_size}"
            )


@dataclass(eq=False)
class _Task:
    feeds: Feeds
    rows: int
    call: Call
    since: float = field(default_factory=time.monotonic)
    answer: "Future[list[np.ndarray]]" = field(default_factory=Future)


@dataclass
class _Batch:
    tasks: list[_Task] = field(default_factory=list)
    rows: int = 0


@dataclass
class _Queue:
    """Batches of one model and choice of outputs; only the last one still grows."""

    run: Run
    parameters: BatchingParameters
    batches: deque[_Batch] = field(default_factory=lambda: deque([_Batch()]))

    def due(self) -> float:
        """Returns when the first batch should run."""
        first = self.batches[0]
        if len(self.batches) > 1 or first.rows >= self.parameters.execution_batch_size:
            return 0.0
        return first.tasks[0].since + self.parameters.timeout_seconds

    def add(self, task: _Task) -> None:
        if self.batches[-1].rows + task.rows > self.parameters.execution_batch_size:
            if len(self.batches) >= self.parameters.max_enqueued_batches:
                raise RequestError(
                    StatusCode.UNAVAILABLE,
                    "The batch scheduling queue to which this task was submitted is full; currently "
                    f"{len(self.batches)} batches enqueued and max_enqueued_batches is "
                    f"{self.parameters.max_enqueued_batches}",
                )
            self.batches.append(_Batch())
        self.batches[-1].tasks.append(task)
        self.batches[-1].rows += task.rows


class Batcher:
    """The threads that run batches, shared by all models.

    Args:
        parameters: How to form batches where a model has no parameters of its own.
        waited: Told the seconds that each request has waited.
    """

    def __init__(self, parameters: BatchingParameters, waited: Callable[[float], None] = lambda seconds: None):
        self.parameters = parameters
        self._waited = waited
        self._changed = threading.Condition()
        self._queues: dict[Hashable, _Queue] = {}  # only those in which something waits
        self._stopped = False
        for number in range(parameters.num_batch_threads):
            threading.Thread(target=self._work, name=f"batch-{number}", daemon=True).start()

    def run(
        self, key: Hashable, run: Run, feeds: Feeds, call: Call, parameters: BatchingParameters | None = None
    ) -> list[np.ndarray]:
        """Answers one request, together with others of the same key.

        Args:
            key: What may run together: model, inputs and outputs.
            run: Runs the graph on joined inputs.
            feeds: Inputs, each [rows, …].
            call: The caller.
            parameters: The model's own parameters.

        Returns:
            Outputs, each [rows, …].

        Raises:
            RequestError: INVALID_ARGUMENT if there are too many rows or the inputs have none in common, UNAVAILABLE
                if the queue is full, DEADLINE_EXCEEDED, or what the graph raised.
        """
        parameters = parameters or self.parameters
        rows, size = _rows(feeds), parameters.execution_batch_size
        if rows > parameters.max_batch_size:
            raise invalid_argument(
                f"Task size {rows} is larger than maximum input batch size {parameters.max_batch_size}"
            )
        starts = range(0, max(rows, 1), size)
        parts = [{name: array[start : start + size] for name, array in feeds.items()} for start in starts]
        tasks = [_Task(part, _rows(part), call) for part in parts]
        with self._changed:
            queue = self._queues.get(key) or _Queue(run, parameters)
            for task in tasks:
                queue.add(task)
            self._queues[key] = queue
            self._changed.notify_all()
        answers = [self._wait(task) for task in tasks]
        return answers[0] if len(answers) == 1 else [np.concatenate(parts) for parts in zip(*answers, strict=True)]

    def stop(self) -> None:
        """Ends the threads once the queues are empty."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _wait(self, task: _Task) -> list[np.ndarray]:
        try:
            return task.answer.result(task.call.remaining())
        except TimeoutError:  # The worker will find that, too, and not compute it.
            raise too_late() from None

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            queue, batch = taken
            now, waiting = time.monotonic(), []
            for task in batch.tasks:
                self._waited(now - task.since)
                if _is_awaited(task):
                    waiting.append(task)
            if waiting:
                _answer(queue, waiting)

    def _take(self) -> tuple[_Queue, _Batch] | None:
        """Waits for a batch that is due; returns `None` when there will be no more."""
        with self._changed:
            while True:
                key = min(self._queues, key=lambda key: self._queues[key].due(), default=None)
                if key is None and self._stopped:
                    return None
                wait = None if key is None else self._queues[key].due() - time.monotonic()
                if wait is not None and (wait <= 0 or self._stopped):
                    queue = self._queues.pop(key)
                    batch = queue.batches.popleft()
                    if queue.batches:
                        self._queues[key] = queue  # at the end: the other models' turn comes first
                    return queue, batch
                self._changed.wait(wait)


def _rows(feeds: Feeds) -> int:
    if not feeds:
        raise invalid_argument("Batching Run() must have at least one input tensor")
    if any(array.ndim == 0 for array in feeds.values()):
        raise invalid_argument("Batching Run() input tensors must have at least one dimension")
    sizes = {len(array) for array in feeds.values()}
    if len(sizes) > 1:
        raise invalid_argument("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def _is_awaited(task: _Task) -> bool:
    """Tells whether a task is worth computing; one whose caller has given up is answered here."""
    try:
        task.call.check()
    except RequestError as error:
        task.answer.set_exception(error)
        return False
    return True


def _answer(queue: _Queue, tasks: Sequence[_Task]) -> None:
    try:
        answers = _run_together(queue, tasks)
    except Exception as error:
        if len(tasks) == 1:
            tasks[0].answer.set_exception(error)
            return
        for task in filter(_is_awaited, tasks):  # One bad request should not fail the others.
            _answer(queue, [task])
        return
    for task, outputs in zip(tasks, answers, strict=True):
        task.answer.set_result(outputs)


def _run_together(queue: _Queue, tasks: Sequence[_Task]) -> list[list[np.ndarray]]:
    parameters = queue.parameters
    sizes = [task.rows for task in tasks]
    padded = next((size for size in parameters.allowed_batch_sizes if size >= sum(sizes)), sum(sizes))
    feeds = {
        name: join(name, [task.feeds[name] for task in tasks], padded, parameters.pad_variable_length_inputs)
        for name in tasks[0].feeds
    }
    deadlines = [task.call.deadline for task in tasks]
    call = Call(deadline=None if None in deadlines else max(deadlines))  # type: ignore[type-var]
    outputs = queue.run(feeds, call)
    for task in tasks:
        task.call.runtime += call.runtime
    return split(outputs, sizes, padded)
