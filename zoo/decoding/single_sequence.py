"""Searches with one sequence per sentence."""

from collections.abc import Callable
from typing import Any

from keras import ops

from zoo.decoding.constraints import ban_special
from zoo.decoding.search import Rows, Search
from zoo.decoding.top_k import argmax
from zoo.row_selection import take, take_per_row

Choice = Callable[[Any, Rows, Any], Any]


class SingleSequenceSearch(Search):
    """Chooses one token per sentence at every step.

    Args:
        choose: Function that returns ids [B] from logits [B, V], the variables of each sentence and the number of the
            step. `None` chooses the most probable ids.
        variables: Further variables of each sentence, for `choose`.
        arguments: See `Search`.
    """

    def __init__(self, choose: Choice | None, variables: Rows, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.choose, self.variables = choose, variables

    def initial_rows(self, batch: Any) -> Rows:
        ids = ops.full((batch, self.constraints.capacity), self.special.pad, dtype="int32")
        last = ops.full((batch,), self.special.start, dtype="int32")
        begun = self.constraints.num_begun
        if not isinstance(begun, int) or begun:
            prompt = self.constraints.by_row()["prompt"]
            ids = ops.where(self.columns < begun, prompt[:, : self.constraints.capacity], ids)
            last = ops.where(begun > 0, take(prompt, ops.maximum(begun - 1, 0), axis=1), last)
        return {
            "ids": ids,
            "last": last,
            "log_prob": ops.zeros((batch,), dtype="float32"),
            "finished": self.constraints.max_lengths <= begun,
            **self.variables,
        }

    def finished(self, index: Any, rows: Rows) -> Any:
        return rows["finished"]

    def advance(self, index: Any, rows: Rows, state: Any, memory: Any) -> tuple[Rows, Any]:
        logits, state = self.step(rows["last"], state, memory)
        logits = ban_special(self.constraints.without_early_end(logits, index), self.special)
        largest, chosen = argmax(logits)
        log_prob = -ops.log(ops.sum(ops.exp(logits - largest), axis=-1))  # of the most probable token
        if self.choose is not None or self.constraints.no_repeat_ngram:
            choose = self.choose or (lambda logits, rows, index: argmax(logits)[1])
            chosen = choose(self.constraints.without_repeats(logits, rows["ids"], index), rows, index)
            log_prob = log_prob + (take_per_row(logits, chosen[:, None]) - largest)[:, 0]
        chosen, ends, uncounted = self.constrain(ops.cast(chosen, "int32"), rows, index)
        chosen = self.special.with_one_end(chosen, ends)
        chosen = ops.where(rows["finished"], self.special.pad, chosen)
        ends = ops.logical_or(ends, index + 1 >= rows["max_length"])
        changes = {
            "ids": ops.where(ops.equal(self.columns, index), chosen[:, None], rows["ids"]),
            "last": chosen,
            "log_prob": ops.where(uncounted, rows["log_prob"], rows["log_prob"] + log_prob),
            "finished": ops.logical_or(rows["finished"], ends),
        }
        return {**rows, **changes}, state

    def constrain(self, chosen: Any, rows: Rows, index: Any) -> tuple[Any, Any, Any]:
        """Returns the chosen tokens at `index`, replaced where constraints require other tokens, int32.

        Tokens, rows and index broadcast. Also returns which tokens end a sequence, and which do not change its log
        probability because they are required or follow its end.
        """
        ends = self.special.are_ends(chosen)
        uncounted = rows["finished"]
        if self.constraints.prompt is not None:
            tokens, in_prompt = self.constraints.prompt_tokens(rows, index)
            chosen = ops.where(in_prompt, tokens, chosen)
            ends = ops.logical_and(ends, ops.logical_not(in_prompt))
            uncounted = ops.logical_or(uncounted, in_prompt)
        if self.constraints.forces_end:
            must_end = self.constraints.must_end(rows, index)
            chosen = ops.where(must_end, self.special.end, chosen)
            uncounted = ops.logical_or(uncounted, must_end)
        return chosen, ends, uncounted
