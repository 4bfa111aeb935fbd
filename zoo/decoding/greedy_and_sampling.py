"""Decoding that keeps one sequence for each sentence: the most probable symbol at every step, or a drawn one."""

from keras import ops

from zoo.decoding.constraints import allowed
from zoo.decoding.counter_based_random import uniform
from zoo.decoding.search import Search
from zoo.decoding.top_k import log_total, most_probable


class _OneByOne(Search):
    """Takes a symbol at every step.

    Args:
        choose: Called with logits [B, V], with what is known of each sentence and the number of the step; returns ids.
            `None` takes the most probable ones.
        known: More that is known of each sentence, a dict.
        others: See `Search`.
    """

    def __init__(self, choose, known, *others):
        super().__init__(*others)
        self.choose, self.known = choose, known

    def first_rows(self, batch):
        return {
            "ids": ops.full((batch, self.rules.room), self.symbols.pad, dtype="int32"),
            "last": ops.full((batch,), self.symbols.start, dtype="int32"),
            "log_prob": ops.zeros((batch,), dtype="float32"),
            "finished": self.rules.max_lengths <= 0,
            **self.known,
        }

    def ended(self, index, rows):
        return rows["finished"]

    def advance(self, index, rows, state, memory):
        logits, state = self.step(rows["last"], state, memory)
        logits = allowed(logits, self.symbols)
        largest, place = most_probable(logits)
        total = log_total(logits, largest)
        chosen = place
        if self.choose is not None or self.rules.no_repeat_ngram:
            choose = self.choose or (lambda logits, known, index: most_probable(logits)[1])
            chosen = choose(self.rules.without_repeats(logits, rows["ids"], index), rows, index)
        chosen = ops.cast(chosen, "int32")
        ends = ops.equal(chosen, self.symbols.end)
        still = rows["finished"]
        if self.rules.prompt is not None:
            column, given = self.rules.prescribed(rows, index)
            chosen = ops.where(given, column, chosen)
            ends = ops.logical_and(ends, ops.logical_not(given))
            still = ops.logical_or(still, given)
        gained = ops.take_along_axis(logits, chosen[:, None], axis=1)[:, 0] - total
        chosen = ops.where(rows["finished"], self.symbols.pad, chosen)
        ends = ops.logical_or(ends, index + 1 >= rows["limit"])
        new = {
            "ids": ops.where(ops.equal(self.columns, index), chosen[:, None], rows["ids"]),
            "last": chosen,
            "log_prob": ops.where(still, rows["log_prob"], rows["log_prob"] + gained),
            "finished": ops.logical_or(rows["finished"], ends),
        }
        return {**rows, **new}, state


def _run(choose, known, step, state, rules, memory, resizes):
    found = _OneByOne(choose, known, step, rules, resizes).run(state, memory)
    return found["ids"], found["log_prob"]


def greedy_search(step, state, rules, memory=None, resizes=None):
    """Takes the most probable symbol at every step.

    Args:
        step: The step function.
        state: Its state before the first step.
        rules: The `Rules`.
        memory: What the step function reads and does not change, nested tensors with the batch first; or `None`.
        resizes: Whether tensors may change their sizes. Default: where the backend can do that.

    Returns:
        Ids [B, room], with the prompt, the end symbol (where it was reached) and then padding, and the float32 sum of
        the log probabilities [B] of what follows the prompt.
    """
    return _run(None, {}, step, state, rules, memory or {}, resizes)


def sample(step, state, rules, seeds, rows, temperature=1.0, top_k=0, top_p=1.0, memory=None, resizes=None):
    """Draws each symbol from the model's distribution, sharpened and cut.

    The draw of a step depends on the row's seed and number and on the step alone: the same on every backend, in
    whatever batch the row stands.

    Args:
        step: The step function.
        state: Its state before the first step.
        rules: The `Rules`.
        seeds: Seed of each row, int32 [B].
        rows: Number of each row, int32 [B], so that equal rows with one seed differ.
        temperature: Divides the log probabilities, > 0; a number or a scalar tensor.
        top_k: How many of the most probable symbols may be drawn, an integer; 0 for all.
        top_p: The fewest symbols may be drawn that together have this probability, in (0, 1]; a number or a scalar
            tensor.
        memory: See `greedy_search`.
        resizes: See `greedy_search`.

    Returns:
        See `greedy_search`; log probabilities are those at temperature 1 with nothing cut.

    Reference:
        Fan et al. 2018 (top-k), section 5.4, https://arxiv.org/abs/1805.04833;
        Holtzman et al. 2020 (top-p), section 3.1, https://arxiv.org/abs/1904.09751
    """

    def choose(logits, known, index):
        size = logits.shape[-1]
        kept = min(top_k, size) if top_k else size
        scores, ids = ops.top_k(logits / temperature, kept)
        # A softmax of scores in falling order; Keras' own warns where one score is left.
        probabilities = ops.exp(scores - scores[:, :1])
        probabilities = probabilities / ops.sum(probabilities, axis=-1, keepdims=True)
        before = ops.cumsum(probabilities, axis=-1) - probabilities
        probabilities = ops.where(before < top_p, probabilities, 0.0)
        sums = ops.cumsum(probabilities, axis=-1)
        drawn = uniform(known["seed"], known["row"], index)[:, None] * sums[:, -1:]
        rank = ops.sum(ops.cast(sums <= drawn, "int32"), axis=-1)
        # Rounding may lead behind the last symbol that is left.
        rank = ops.minimum(rank, ops.sum(ops.cast(probabilities > 0, "int32"), axis=-1) - 1)
        return ops.take_along_axis(ids, rank[:, None], axis=1)[:, 0]

    return _run(choose, {"seed": seeds, "row": rows}, step, state, rules, memory or {}, resizes)
