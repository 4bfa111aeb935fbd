"""Decoding: turns a step function into sequences. Knows no model.

A step function is `step(last, state, memory) -> (logits, state)`: `last` [R] are the last symbols of R rows, `logits`
[R, V] score the next ones, `state` is a nested structure of tensors whose first axis is R (scalars are left alone), and
`memory` a nested structure whose first axis is the batch B; it does not change from step to step. R is B, or in beam
search B times the number of beams, with those of one sentence adjacent. If attention is asked for, the step function
returns `(logits, attention [R, S], state)`.

Everything here runs eagerly, in a TensorFlow graph and under JAX's jit. Where tensors may change their sizes, finished
rows leave the loop and cost nothing any more.
"""

from zoo.decoding.beam import coverage_penalty, length_penalty
from zoo.decoding.beam_rules import BEAM_RULES, beam_search
from zoo.decoding.constraints import Constraints, SpecialIds, sequence_log_prob, symbol_log_probs
from zoo.decoding.counter_based_random import uniform
from zoo.decoding.greedy_and_sampling import greedy_search, sample
from zoo.decoding.while_loops import can_resize
from zoo.row_selection import repeat_rows

__all__ = [
    "BEAM_RULES",
    "Constraints",
    "SpecialIds",
    "beam_search",
    "can_resize",
    "coverage_penalty",
    "greedy_search",
    "length_penalty",
    "repeat_rows",
    "sample",
    "sequence_log_prob",
    "symbol_log_probs",
    "uniform",
]
