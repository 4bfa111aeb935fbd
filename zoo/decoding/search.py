"""The loop that all ways of decoding share."""

from keras import ops

from zoo.decoding.while_loops import can_resize, while_loop
from zoo.row_selection import take_rows

# Rows are taken out of the loop when at most this part of them is left: copying the others costs something, too.
SHRINK_AT = 0.75
# Where sizes may not change, the last sentences of a batch have a second loop, with one row for so many of the first.
FIRST_TO_SECOND = 8


class Search:
    """A loop over steps for sentences that come to their ends one after another.

    A subclass says what is known of each sentence before the first step (`first_rows`), what a step makes of it
    (`advance`), and which sentences are done (`ended`).

    Args:
        step: The step function.
        rules: The `Rules`.
        resizes: Whether tensors may change their sizes, see `zoo.decoding.while_loops`; `None` for where they can.
        width: Rows of the state for each sentence.
    """

    results: tuple[str, ...] = ("ids", "log_prob")

    def __init__(self, step, rules, resizes, width=1):
        self.step, self.rules, self.symbols = step, rules, rules.symbols
        self.resizes, self.width = can_resize() if resizes is None else resizes, width
        self.columns = ops.arange(rules.room, dtype="int32")

    def first_rows(self, batch):
        """Returns what is known of each sentence, a dict of tensors with the batch first."""
        raise NotImplementedError

    def advance(self, index, rows, state, memory):
        """Returns the rows and the state behind the step with number `index`."""
        raise NotImplementedError

    def ended(self, index, rows):
        """Returns which sentences are done before the step with number `index`, boolean [B]."""
        raise NotImplementedError

    def run(self, state, memory):
        """Returns what `results` name of each sentence, a dict.

        Args:
            state: State of the step function before the first step.
            memory: What does not change.
        """
        batch = ops.shape(self.rules.max_lengths)[0]
        rows = {**self.first_rows(batch), **self.rules.rows(), "origin": ops.arange(batch, dtype="int32")}
        loop = {"index": ops.zeros((), dtype="int32"), "rows": rows, "state": state}
        done = {name: rows[name] for name in self.results}
        if self.resizes:
            loop = {**loop, "memory": memory, "done": done}
            loop = while_loop(lambda loop: ops.any(self._going(loop)), self._shrinking_turn, loop, resizes=True)
            return self._store(loop["done"], loop["rows"])
        few = (batch + FIRST_TO_SECOND - 1) // FIRST_TO_SECOND
        loop = self._until(few, loop, memory)
        done = self._store(done, loop["rows"])
        going_first = ops.argsort(ops.cast(self.ended(loop["index"], loop["rows"]), "int32"))
        left = ops.cast(going_first[:few], "int32")
        rows, state, memory = self._take(left, loop["rows"], loop["state"], memory)
        loop = self._until(0, {"index": loop["index"], "rows": rows, "state": state}, memory)
        return self._store(done, loop["rows"])

    def _going(self, loop):
        """Returns which sentences are not done, boolean [B]."""
        return ops.logical_not(self.ended(loop["index"], loop["rows"]))

    def _until(self, few, loop, memory):
        """Returns the loop's tensors when at most `few` sentences are not done."""
        return while_loop(
            lambda loop: ops.count_nonzero(self._going(loop)) > few, lambda loop: self._turn(loop, memory), loop
        )

    def _turn(self, loop, memory):
        rows, state = self.advance(loop["index"], loop["rows"], loop["state"], memory)
        return {"index": loop["index"] + 1, "rows": rows, "state": state}

    def _shrinking_turn(self, loop):
        """As `_turn`, but without the sentences that are done, once they are many; their results are put aside."""
        memory, done = loop["memory"], loop["done"]
        loop = self._turn(loop, memory)
        rows, state, going = loop["rows"], loop["state"], self._going(loop)
        count = ops.cast(ops.count_nonzero(going), "float32")

        def shrink():
            left = ops.cast(ops.nonzero(going)[0], "int32")
            return *self._take(left, rows, state, memory), self._store(done, rows)

        many = count <= SHRINK_AT * ops.cast(ops.shape(going)[0], "float32")
        kept = ops.cond(many, shrink, lambda: (rows, state, memory, done))
        return {"index": loop["index"], **dict(zip(("rows", "state", "memory", "done"), kept, strict=True))}

    def _take(self, left, rows, state, memory):
        """Returns rows, state and memory of the sentences with these numbers, int32 [R], alone."""
        beams = ops.reshape(left[:, None] * self.width + ops.arange(self.width, dtype="int32"), (-1,))
        return take_rows(rows, left), take_rows(state, beams), take_rows(memory, left)

    def _store(self, done, rows):
        places = rows["origin"][:, None]
        return {name: ops.scatter_update(done[name], places, rows[name]) for name in self.results}
