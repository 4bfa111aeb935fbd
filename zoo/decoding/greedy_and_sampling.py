"""Decoding with one sequence per sentence: the most probable token at every step, or a random one."""

from collections.abc import Callable
from typing import Any

from keras import ops

from zoo.decoding.constraints import Constraints, ban_special
from zoo.decoding.counter_based_random import uniform
from zoo.decoding.search import Rows, Search, Step
from zoo.decoding.top_k import argmax
from zoo.row_selection import take_per_row

Choice = Callable[[Any, Rows, Any], Any]


class _SingleSequenceSearch(Search):
    """Chooses one token per sentence at every step.

    Args:
        choose: Function of logits [B, V], the variables of each sentence and the number of the step that returns ids
            [B]. `None` chooses the most probable ones.
        variables: Further variables of each sentence, for `choose`.
        arguments: See `Search`.
    """

    def __init__(self, choose: Choice | None, variables: Rows, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.choose, self.variables = choose, variables

    def initial_rows(self, batch: Any) -> Rows:
        ids = ops.full((batch, self.constraints.room), self.special.pad, dtype="int32")
        last = ops.full((batch,), self.special.start, dtype="int32")
        if skips_start := self.constraints.begins_with_prompt:
            last = self.constraints.prompt[:, 0]
            ids = ops.where(ops.equal(self.columns, 0), last[:, None], ids)
        return {
            "ids": ids,
            "last": last,
            "log_prob": ops.zeros((batch,), dtype="float32"),
            "finished": self.constraints.max_lengths <= int(skips_start),
            **self.variables,
        }

    def finished(self, index: Any, rows: Rows) -> Any:
        return rows["finished"]

    def advance(self, index: Any, rows: Rows, state: Any, memory: Any) -> tuple[Rows, Any]:
        logits, state = self.step(rows["last"], state, memory)
        logits = ban_special(self.constraints.without_early_end(logits, index), self.special)
        largest, chosen = argmax(logits)
        log_prob = -ops.log(ops.sum(ops.exp(logits - largest), axis=-1))  # of the most probable one
        is_largest = self.choose is None and not self.constraints.changes_choice
        if self.choose is not None or self.constraints.no_repeat_ngram:
            choose = self.choose or (lambda logits, rows, index: argmax(logits)[1])
            chosen = choose(self.constraints.without_repeats(logits, rows["ids"], index), rows, index)
        chosen = ops.cast(chosen, "int32")
        ends = self.special.are_ends(chosen)
        uncounted = rows["finished"]  # rows whose log probability does not change
        if self.constraints.prompt is not None:
            tokens, in_prompt = self.constraints.prompt_tokens(rows, index)
            chosen = ops.where(in_prompt, tokens, chosen)
            ends = ops.logical_and(ends, ops.logical_not(in_prompt))
            uncounted = ops.logical_or(uncounted, in_prompt)
        if self.constraints.forces_end:
            must_end = self.constraints.must_end(rows, index)
            chosen = ops.where(must_end, self.special.end, chosen)
            uncounted = ops.logical_or(uncounted, must_end)
        if not is_largest:
            log_prob = log_prob + (take_per_row(logits, chosen[:, None]) - largest)[:, 0]
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


def greedy_search(
    step: Step, state: Any, constraints: Constraints, memory: Any = None, resizes: bool | None = None
) -> tuple[Any, Any]:
    """Chooses the most probable token at every step.

    Args:
        step: The step function.
        state: The initial state.
        constraints: The `Constraints`.
        memory: Constant inputs of the step function, nested tensors with the batch axis first; or `None`.
        resizes: Whether tensors may change their sizes in loops. Default: if the backend supports it.

    Returns:
        Ids [B, room]: the prompt, the generated tokens including the end (if it was reached), then padding; and the
        float32 sum of the log probabilities [B] of the tokens after the prompt.
    """
    results = _SingleSequenceSearch(None, {}, step, constraints, resizes).run(state, memory or {})
    return results["ids"], results["log_prob"]


def sample(
    step: Step,
    state: Any,
    constraints: Constraints,
    seeds: Any,
    row_numbers: Any,
    temperature: Any = 1.0,
    top_k: int = 0,
    top_p: Any = 1.0,
    memory: Any = None,
    resizes: bool | None = None,
) -> tuple[Any, Any]:
    """Samples each token from the model's distribution, with temperature and truncation.

    The samples depend only on the row's seed and number and on the step; they are the same on every backend and in any
    batch.

    Args:
        step: The step function.
        state: The initial state.
        constraints: The `Constraints`.
        seeds: Seed of each row, int32 [B].
        row_numbers: Number of each row, int32 [B], so that equal rows with one seed differ.
        temperature: Divisor of the log probabilities, > 0; a number, or one per row, [B].
        top_k: Sample only from this many most probable tokens; 0 for all.
        top_p: Sample from the smallest set of most probable tokens with this total probability, in (0, 1]; a number, or
            one per row, [B].
        memory: See `greedy_search`.
        resizes: See `greedy_search`.

    Returns:
        See `greedy_search`; log probabilities are those at temperature 1 without truncation.

    Reference:
        Fan et al. 2018 (top-k), section 5.4, https://arxiv.org/abs/1805.04833;
        Holtzman et al. 2020 (top-p), section 3.1, https://arxiv.org/abs/1904.09751
    """

    def choose(logits: Any, rows: Rows, index: Any) -> Any:
        size = logits.shape[-1]
        scores, ids = ops.top_k(logits / rows["temperature"][:, None], min(top_k, size) if top_k else size)
        # A softmax of descending scores; Keras' own warns if there is only one score.
        probabilities = ops.exp(scores - scores[:, :1])
        probabilities = probabilities / ops.sum(probabilities, axis=-1, keepdims=True)
        before = ops.cumsum(probabilities, axis=-1) - probabilities
        probabilities = ops.where(before < rows["top_p"][:, None], probabilities, 0.0)
        cumulative = ops.cumsum(probabilities, axis=-1)
        drawn = uniform(rows["seed"], rows["row_number"], index)[:, None] * cumulative[:, -1:]
        rank = ops.sum(ops.cast(cumulative <= drawn, "int32"), axis=-1)
        # Because of rounding, the rank may exceed that of the last remaining token.
        rank = ops.minimum(rank, ops.sum(ops.cast(probabilities > 0, "int32"), axis=-1) - 1)
        return ops.take_along_axis(ids, rank[:, None], axis=1)[:, 0]

    variables = {"seed": seeds, "row_number": row_numbers}
    for name, values in {"temperature": temperature, "top_p": top_p}.items():
        variables[name] = ops.broadcast_to(ops.cast(values, "float32"), ops.shape(row_numbers))
    results = _SingleSequenceSearch(choose, variables, step, constraints, resizes).run(state, memory or {})
    return results["ids"], results["log_prob"]
