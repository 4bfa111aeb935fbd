"""Generates sequences with a step function, independently of models.

A step function is `step(last, state, memory) -> (logits, state)`. `last` [R] are the last tokens of R rows; `logits`
[R, V] are those of the next ones. `state` is a nested structure of tensors whose first axis is R, or scalars. `memory`
is a nested structure of tensors whose first axis is the batch B; it is constant. R is B, or in beam search B times the
number of beams, with those of one sentence adjacent. For the coverage penalty, the step function returns
`(logits, attention [R, S], state)`.

All functions run eagerly, in a TensorFlow graph and under JAX's jit. Where the sizes of tensors may change in loops,
finished rows are removed and cost nothing.
"""

from zoo.decoding.beam import coverage_penalty, length_penalty
from zoo.decoding.beam_rules import BEAM_RULES, beam_search
from zoo.decoding.constraints import Constraints, SpecialIds, sequence_log_prob, token_log_probs
from zoo.decoding.counter_based_random import uniform
from zoo.decoding.greedy_and_sampling import greedy_search, sample
from zoo.decoding.speculative import DraftModel, Drafts
from zoo.decoding.while_loops import can_resize
from zoo.row_selection import repeat_rows

__all__ = [
    "BEAM_RULES",
    "Constraints",
    "DraftModel",
    "Drafts",
    "SpecialIds",
    "beam_search",
    "can_resize",
    "coverage_penalty",
    "greedy_search",
    "length_penalty",
    "repeat_rows",
    "sample",
    "sequence_log_prob",
    "token_log_probs",
    "uniform",
]
