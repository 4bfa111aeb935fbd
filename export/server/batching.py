"""Batches requests of several clients, with the stock server's batching parameters.

Requests for the same outputs of the same model share a queue. A worker takes a batch when it is full or when its first
request has waited for the timeout. It joins the inputs along axis 0, runs the graph once and splits the outputs.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from grpc import StatusCode

from export.server.context import RequestContext
from export.server.errors import RequestError, ServingError, deadline_exceeded, failed_precondition, invalid_argument

Feeds = Mapping[str, np.ndarray]
Run = Callable[[Feeds, RequestContext], list[np.ndarray]]


@dataclass(frozen=True)
class BatchingParameters:
    """The stock server's `BatchingParameters`, with its defaults."""

    max_batch_size: int = 1000  # rows of a batch or a request
    timeout_seconds: float = 0.0  # how long the first request of a batch waits for others
    max_enqueued_batches: int = 10  # further requests are rejected
    num_batch_threads: int = os.cpu_count() or 1  # batches that run at the same time
    thread_pool_name: str = "model_server_batch_threads"  # for the metrics
    allowed_batch_sizes: tuple[int, ...] = ()  # batches are padded to the next of these sizes
    pad_variable_length_inputs: bool = False  # whether to pad to the largest inner shape
    execution_batch_size: int = 1000  # rows of a batch; larger requests are split

    @classmethod
    def from_message(cls, message: Any) -> "BatchingParameters":
        """Reads the protocol buffer; raises ServingError if the parameters are inconsistent."""
        values = {item.name: getattr(value, "value", value) for item, value in message.ListFields()}
        sizes = values["allowed_batch_sizes"] = tuple(values.get("allowed_batch_sizes", ()))
        values["timeout_seconds"] = values.pop("batch_timeout_micros", 0) / 1e6
        largest = execution = values.get("max_batch_size", cls.max_batch_size)
        if values.pop("enable_large_batch_splitting", False):
            execution = values.get("max_execution_batch_size", largest)
        values.pop("max_execution_batch_size", None)
        if list(sizes) != sorted(set(sizes)):
            raise ServingError(f"allowed_batch_sizes entries must be monotonically increasing. Received: {list(sizes)}")
        if sizes and sizes[-1] != execution:
            raise ServingError(
                "Last entry in allowed_batch_sizes must match max_batch_size; "
                f"last entry was {sizes[-1]}; expected {execution}"
            )
        parameters = cls(**values, execution_batch_size=execution)
        counts = (largest, execution, parameters.max_enqueued_batches, parameters.num_batch_threads)
        if min(counts) < 1 or parameters.timeout_seconds < 0:
            raise ServingError(f"Batching parameters must be positive. Received: {parameters}")
        if execution > largest:
            raise ServingError(f"max_execution_batch_size must not exceed max_batch_size. Received: {parameters}")
        return parameters


@dataclass(eq=False)
class _Task:
    """A request, or a part of a request that is too large for a batch."""

    feeds: Feeds
    rows: int
    context: RequestContext
    enqueued: float = field(default_factory=time.monotonic)
    outputs: "Future[list[np.ndarray]]" = field(default_factory=Future)

    def is_awaited(self) -> bool:
        """Returns whether the client still waits for the task; otherwise, sets the error of the task."""
        try:
            self.context.check()
        except RequestError as error:
            self.outputs.set_exception(error)
            return False
        return True

    def wait(self) -> list[np.ndarray]:
        try:
            return self.outputs.result(self.context.remaining())
        except TimeoutError:  # the worker skips the task for the same reason
            raise deadline_exceeded() from None


class _Queue:
    """The waiting batches for one model and set of outputs; tasks are added to the last batch only."""

    def __init__(self, run: Run, parameters: BatchingParameters):
        self.run = run
        self.parameters = parameters
        self.batches: deque[list[_Task]] = deque([[]])

    def due(self) -> float:
        """Returns the time at which the first batch should run."""
        if len(self.batches) > 1 or _sum_rows(self.batches[0]) >= self.parameters.execution_batch_size:
            return 0.0
        return self.batches[0][0].enqueued + self.parameters.timeout_seconds

    def add(self, tasks: Sequence[_Task]) -> None:
        """Adds all tasks of a request, or none of them if the queue is then too long; this is a RequestError."""
        most, last = self.parameters.max_enqueued_batches, [[*self.batches[-1]]]
        for task in tasks:
            if _sum_rows(last[-1]) + task.rows > self.parameters.execution_batch_size:
                last.append([])
            last[-1].append(task)
        if len(self.batches) - 1 + len(last) > most:
            raise RequestError(
                StatusCode.UNAVAILABLE,
                "The batch scheduling queue to which this task was submitted is full; currently "
                f"{len(self.batches)} batches enqueued and max_enqueued_batches is {most}",
            )
        self.batches.pop()
        self.batches.extend(last)


class Batcher:
    """The threads that run the batches of all models; `on_wait` is called with the waiting time of each request."""

    def __init__(self, parameters: BatchingParameters, on_wait: Callable[[float], None] = lambda seconds: None):
        self._parameters = parameters
        self._on_wait = on_wait
        self._changed = threading.Condition()
        self._queues: dict[Hashable, _Queue] = {}  # only those that are not empty
        self._stopped = False
        for number in range(parameters.num_batch_threads):
            threading.Thread(target=self._work, name=f"batch-{number}", daemon=True).start()

    def run(self, key: Hashable, run: Run, feeds: Feeds, context: RequestContext) -> list[np.ndarray]:
        """Runs a request, batched with others of the same key: model, inputs and outputs.

        All inputs and outputs are [rows, …]; `run` runs the graph on joined inputs.

        Raises:
            RequestError: There are too many rows or the inputs differ in their number of rows, the queue is full, the
                deadline has passed, or the graph failed.
        """
        rows, size, largest = _count_rows(feeds), self._parameters.execution_batch_size, self._parameters.max_batch_size
        if rows > largest:
            raise invalid_argument(f"Task size {rows} is larger than maximum input batch size {largest}")
        tasks = []
        for start in range(0, max(rows, 1), size):
            part = {name: array[start : start + size] for name, array in feeds.items()}
            tasks.append(_Task(part, min(size, rows - start), context))
        with self._changed:
            queue = self._queues.get(key) or _Queue(run, self._parameters)
            queue.add(tasks)
            self._queues[key] = queue
            self._changed.notify_all()
        outputs = [task.wait() for task in tasks]
        return outputs[0] if len(outputs) == 1 else [np.concatenate(parts) for parts in zip(*outputs, strict=True)]

    def stop(self) -> None:
        """Ends the threads once the queues are empty."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            queue, batch = taken
            for task in batch:
                self._on_wait(time.monotonic() - task.enqueued)
            _answer(queue, batch)

    def _take(self) -> tuple[_Queue, list[_Task]] | None:
        """Waits for a batch that is due; returns `None` when the batcher has stopped."""
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
                        self._queues[key] = queue  # at the end, after the queues of other models
                    return queue, batch
                self._changed.wait(wait)


def _answer(queue: _Queue, tasks: Sequence[_Task]) -> None:
    tasks = [task for task in tasks if task.is_awaited()]
    if not tasks:
        return
    try:
        outputs_by_task = _run_together(queue, tasks)
    except Exception as error:
        if len(tasks) == 1:
            tasks[0].outputs.set_exception(error)
            return
        for task in tasks:  # One bad request must not fail the others.
            _answer(queue, [task])
        return
    for task, outputs in zip(tasks, outputs_by_task, strict=True):
        task.outputs.set_result(outputs)


def _run_together(queue: _Queue, tasks: Sequence[_Task]) -> list[list[np.ndarray]]:
    parameters, rows = queue.parameters, _sum_rows(tasks)
    padded = next((size for size in parameters.allowed_batch_sizes if size >= rows > 0), rows)
    feeds = {
        name: join_rows(name, [task.feeds[name] for task in tasks], padded, parameters.pad_variable_length_inputs)
        for name in tasks[0].feeds
    }
    deadlines = [task.context.deadline for task in tasks if task.context.deadline is not None]
    context = RequestContext(deadline=max(deadlines) if len(deadlines) == len(tasks) else None)
    outputs = queue.run(feeds, context)
    for output in outputs:
        if output.ndim == 0:
            raise failed_precondition("Batched output tensor has 0 dimensions")
        if len(output) != padded:
            raise failed_precondition(
                "Batched output tensor's 0th dimension does not equal the sum of the input tensors' 0th dimensions"
            )
    for task in tasks:
        task.context.runtime += context.runtime
    ends = np.cumsum([task.rows for task in tasks])
    return [[output[end - task.rows : end] for output in outputs] for task, end in zip(tasks, ends, strict=True)]


def _sum_rows(tasks: Sequence[_Task]) -> int:
    return sum(task.rows for task in tasks)


def _count_rows(feeds: Feeds) -> int:
    if not feeds:
        raise invalid_argument("Batching Run() must have at least one input tensor")
    if any(array.ndim == 0 for array in feeds.values()):
        raise invalid_argument("Batching Run() input tensors must have at least one dimension")
    sizes = {len(array) for array in feeds.values()}
    if len(sizes) > 1:
        raise invalid_argument("Batching Run() input tensors must have equal 0th-dimension size")
    return sizes.pop()


def join_rows(name: str, arrays: Sequence[np.ndarray], rows: int, pad_inner: bool) -> np.ndarray:
    """Joins one input of several requests and pads it to `rows` rows by repeating a row, which is a valid input."""
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        if not pad_inner:
            raise failed_precondition(
                f"Tensors with name '{name}' from different tasks have different shapes and padding is turned off. "
                "Set pad_variable_length_inputs to true."
            )
        if len(set(map(len, shapes))) > 1:
            raise invalid_argument(f"Tensors with name '{name}' from different tasks have different ranks")
        arrays = [_pad_inner(array, np.max([*shapes], axis=0)) for array in arrays]
    missing = rows - sum(map(len, arrays))
    if missing:
        filling = next(array[:1] for array in reversed(arrays) if len(array))
        arrays = [*arrays, np.repeat(filling, missing, axis=0)]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _pad_inner(array: np.ndarray, shape: np.ndarray) -> np.ndarray:
    widths = [(0, 0), *((0, missing) for missing in shape - array.shape[1:])]
    return np.pad(array, widths, constant_values=b"" if array.dtype.hasobject else np.zeros((), array.dtype))
