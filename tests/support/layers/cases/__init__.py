"""All cases of the contract."""

import pytest
from support.layers.cases import attention as cases_attention
from support.layers.cases import blocks as cases_blocks
from support.layers.cases import efficient as cases_efficient
from support.layers.cases import positions as cases_positions
from support.layers.cases import recurrent as cases_recurrent
from support.layers.cases import scores as cases_scores
from support.layers.cases import visibility as cases_visibility

from zoo import layers

MODULES = (
    cases_scores,
    cases_attention,
    cases_visibility,
    cases_efficient,
    cases_positions,
    cases_blocks,
    cases_recurrent,
)
CASES = [case for module in MODULES for case in module.CASES]
ATTENTION_CASES = [case for case in CASES if issubclass(case.covers, layers.BaseAttention)]
# Whose weights are a softmax of scores, within what is visible.
SOFTMAX_CASES = [case for case in ATTENTION_CASES if not case.signed and case.make("float32").has_softmax]
MASKED_CASES = [case for case in CASES if case.hides]


def first_of_each_class(cases):
    """Returns the first case of each class."""
    return list({case.covers: case for case in reversed(cases)}.values())


def with_each(cases, fast=None):
    """Returns a mark that runs a test with each case; all but the first of each class are slow.

    Args:
        cases: The cases.
        fast: Classes of those that are not slow. Default: all classes.
    """
    chosen = [case for case in first_of_each_class(cases) if fast is None or case.covers in fast]
    rows = [pytest.param(case, marks=() if case in chosen else pytest.mark.nightly, id=case.name) for case in cases]
    return pytest.mark.parametrize("case", rows)
