"""The loop of all decoding methods."""

from collections.abc import Callable
from typing import Any

from keras import ops

from zoo.decoding.constraints import Constraints
from zoo.decoding.while_loops import can_resize, while_loop
from zoo.row_selection import take_rows

Step = Callable[[Any, Any, Any], Any]
Rows = dict[str, Any]

# Finished rows are removed when at most this fraction of rows is unfinished, since copying the others takes time.
SHRINK_AT = 0.75
# With fixed sizes, a second loop, which has fewer rows by this factor, finishes the last sentences of a batch.
FIRST_TO_SECOND = 8


class Search:
    """A loop over steps for sentences that end at different steps.

    A subclass defines the initial variables of each sentence (`initial_rows`), how a step changes them (`advance`), and
    which sentences are finished (`finished`).

    Args:
        step: The step function.
        constraints: The `Constraints`.
        resizes: Whether tensors may change their sizes in loops; `None`: whether the backend supports it.
        width: Rows of the state per sentence.
    """

    results: tuple[str, ...] = ("ids", "log_prob")

    def __init__(self, step: Step, constraints: Constraints, resizes: bool | None, width: int = 1) -> None:
        self.step, self.constraints, self.special = step, constraints, constraints.special
        self.resizes, self.width = can_resize() if resizes is None else resizes, width
        self.columns = ops.arange(constraints.capacity, dtype="int32")

    def initial_rows(self, batch: Any) -> Rows:
        """Returns the initial variables of each sentence, a dict of tensors with the batch axis first."""
        raise NotImplementedError

    def advance(self, index: Any, rows: Rows, state: Any, memory: Any) -> tuple[Rows, Any]:
        """Returns the variables and the state after step number `index`."""
        raise NotImplementedError

    def finished(self, index: Any, rows: Rows) -> Any:
        """Returns which sentences are finished before step number `index`, boolean [B]."""
        raise NotImplementedError

    def run(self, state: Any, memory: Any) -> Rows:
        """Runs the search from an initial state and returns the variables in `results` of each sentence."""
        batch = ops.shape(self.constraints.max_lengths)[0]
        rows = {**self.initial_rows(batch), **self.constraints.by_row(), "sentence": ops.arange(batch, dtype="int32")}
        loop = {
            "index": ops.cast(self.constraints.num_begun, "int32"),
            "rows": rows,
            "state": state,
        }
        results = {name: rows[name] for name in self.results}
        if self.resizes:
            loop = {**loop, "memory": memory, "results": results}
            loop = while_loop(lambda loop: ops.any(self._unfinished(loop)), self._run_and_shrink, loop, resizes=True)
            return self._store(loop["results"], loop["rows"])
        remaining_size = (batch + FIRST_TO_SECOND - 1) // FIRST_TO_SECOND
        loop = self._run_until(remaining_size, loop, memory)
        results = self._store(results, loop["rows"])
        unfinished_first = ops.argsort(ops.cast(self.finished(loop["index"], loop["rows"]), "int32"))
        remaining = ops.cast(unfinished_first[:remaining_size], "int32")
        rows, state, memory = self._take(remaining, loop["rows"], loop["state"], memory)
        loop = self._run_until(0, {"index": loop["index"], "rows": rows, "state": state}, memory)
        return self._store(results, loop["rows"])

    def _unfinished(self, loop: Rows) -> Any:
        return ops.logical_not(self.finished(loop["index"], loop["rows"]))

    def _run_until(self, max_unfinished: Any, loop: Any, memory: Any) -> Any:
        """Returns the loop's tensors when at most `max_unfinished` sentences are unfinished."""
        fixed = {name: loop["rows"][name] for name in ("sentence", *self.constraints.by_row())}

        def with_fixed(loop: Rows) -> Rows:
            return {**loop, "rows": {**loop["rows"], **fixed}}

        def without_fixed(loop: Rows) -> Rows:
            return {**loop, "rows": {name: row for name, row in loop["rows"].items() if name not in fixed}}

        loop = while_loop(
            lambda loop: ops.sum(ops.cast(self._unfinished(with_fixed(loop)), "int32")) > max_unfinished,
            lambda loop: without_fixed(self._body(with_fixed(loop), memory)),
            without_fixed(loop),
            self.resizes,
        )
        return with_fixed(loop)

    def _body(self, loop: Rows, memory: Any) -> Rows:
        rows, state = self.advance(loop["index"], loop["rows"], loop["state"], memory)
        return {"index": loop["index"] + 1, "rows": rows, "state": state}

    def _run_and_shrink(self, loop: Rows) -> Rows:
        """Runs until many sentences are finished, stores the results and removes finished sentences from the loop."""
        memory, results = loop.pop("memory"), loop.pop("results")
        count = ops.cast(ops.shape(loop["rows"]["sentence"])[0], "float32")
        loop = self._run_until(ops.cast(SHRINK_AT * count, "int32"), loop, memory)
        results = self._store(results, loop["rows"])
        remaining = ops.cast(ops.nonzero(self._unfinished(loop))[0], "int32")
        rows, state, memory = self._take(remaining, loop["rows"], loop["state"], memory)
        return {"index": loop["index"], "rows": rows, "state": state, "memory": memory, "results": results}

    def _take(self, sentences: Any, rows: Rows, state: Any, memory: Any) -> tuple[Rows, Any, Any]:
        """Returns variables, state and memory of the sentences with these indices, int32 [R]."""
        beams = ops.reshape(sentences[:, None] * self.width + ops.arange(self.width, dtype="int32"), (-1,))
        return take_rows(rows, sentences), take_rows(state, beams), take_rows(memory, sentences)

    def _store(self, results: Rows, rows: Rows) -> Rows:
        indices = rows["sentence"][:, None]
        return {name: ops.scatter_update(results[name], indices, rows[name]) for name in self.results}
