"""Decoding with one sequence per sentence: the most probable token at every step, or a random one."""

from typing import Any

from keras import ops

from zoo.decoding.constraints import Constraints
from zoo.decoding.counter_based_random import uniform
from zoo.decoding.search import Rows, Step
from zoo.decoding.single_sequence import Choice, SingleSequenceSearch
from zoo.decoding.speculative import Drafts, SpeculativeSearch


def greedy_search(
    step: Step,
    state: Any,
    constraints: Constraints,
    memory: Any = None,
    resizes: bool | None = None,
    drafts: Drafts | None = None,
) -> tuple[Any, Any]:
    """Chooses the most probable token at every step.

    Args:
        step: The step function.
        state: The initial state.
        constraints: The `Constraints`.
        memory: Constant inputs of the step function, nested tensors with the batch axis first; or `None`.
        resizes: Whether tensors may change their sizes in loops. Default: if the backend supports it.
        drafts: How several tokens are drafted and confirmed at once; requires `resizes` and replaces `step`. `None`
            for one token at a time. The results are the same, up to rounding in the model.

    Returns:
        Ids [B, capacity]: the prompt, the generated tokens including the end (if it was reached), then padding; and the
        float32 sum of the log probabilities [B] of the tokens after the prompt.
    """
    return _search(None, {}, step, state, constraints, memory, resizes, drafts)


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
    drafts: Drafts | None = None,
) -> tuple[Any, Any]:
    """Samples each token from the model's distribution, with temperature and truncation.

    The samples depend only on the row's seed and number and on the step; they are the same on every backend and in any
    batch.

    Args:
        step: The step function.
        state: The initial state.
        constraints: The `Constraints`.
        seeds: Seed of each row, int32 [B].
        row_numbers: Number of each row, int32 [B], so that the samples of equal rows with the same seed differ.
        temperature: Divisor of the log probabilities, > 0; a number, or one per row, [B].
        top_k: Sample only from this many most probable tokens; 0 for all.
        top_p: Sample from the smallest set of most probable tokens with this total probability, in (0, 1]; a number, or
            one per row, [B].
        memory: See `greedy_search`.
        resizes: See `greedy_search`.
        drafts: See `greedy_search`.

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
        # Rounding may make the rank larger than that of the last remaining token.
        rank = ops.minimum(rank, ops.sum(ops.cast(probabilities > 0, "int32"), axis=-1) - 1)
        return ops.take_along_axis(ids, rank[:, None], axis=1)[:, 0]

    variables = {"seed": seeds, "row_number": row_numbers}
    for name, values in {"temperature": temperature, "top_p": top_p}.items():
        variables[name] = ops.broadcast_to(ops.cast(values, "float32"), ops.shape(row_numbers))
    return _search(choose, variables, step, state, constraints, memory, resizes, drafts)


def _search(
    choose: Choice | None,
    variables: Rows,
    step: Step,
    state: Any,
    constraints: Constraints,
    memory: Any,
    resizes: bool | None,
    drafts: Drafts | None,
) -> tuple[Any, Any]:
    search = (
        SingleSequenceSearch(choose, variables, step, constraints, resizes)
        if drafts is None
        else SpeculativeSearch(choose, variables, drafts, constraints)
    )
    results = search.run(state, memory or {})
    return results["ids"], results["log_prob"]
