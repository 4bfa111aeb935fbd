"""The attention contract as one matrix: every attention layer in any situation, against float64 loops.

A situation is drawn by Hypothesis: sizes, masks, bias, cache, dtype policy, mode, implementation, training. One test
checks all that the contract promises there; see references.py for what must come out.
"""

import dataclasses
import zlib

import pytest
from hypothesis import Phase, example, given, seed, settings
from hypothesis import strategies as st
from support.layers.cases import CASES, first_of_each_class
from support.layers.contract import few_on_jax
from support.layers.matrix import VECTORS, Situation
from support.layers.matrix_checks import check
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers.attention import delta_rule, gated_linear, retention
from zoo.layers.attention import linear as linear_attention
from zoo.layers.attention import sliding_window as sliding_window_attention
from zoo.layers.execution import plan


def _draw(often, *rarely):
    """Returns a strategy for a value that is mostly the first."""
    return st.sampled_from([often] * (len(rarely) + 1) + list(rarely))


def situations(sizes, modes):
    """Returns a strategy; the simplest situation is a decoding step, a single query that sees all keys."""
    return st.builds(
        Situation,
        sizes=sizes,
        **dict.fromkeys(VECTORS, _draw(None, "some", "all but one", "all")),
        attention_mask=_draw(None, "pairs", "shared", "heads"),
        causal=st.sampled_from([True, False]),
        start=_draw(None, -1, 0, 2, 4),
        bias=_draw(None, "keys", "pairs", "all"),
        cached=_draw(False, True),
        policy=_draw("float32", "mixed_bfloat16", "mixed_float16"),
        mode=st.sampled_from(modes),
        training=_draw(False, True),
        backward=st.booleans(),
        implementation=st.sampled_from(["auto", "dense", "blockwise", "fused"]),
        budget=st.sampled_from([1, 300]),
        poison=st.sampled_from(["nan", "huge"]),
        large=st.sampled_from([False] * 5 + [True]),
        seed=st.integers(0, 99),
    )


def _narrow(case, **windows):
    """Returns a case whose windows are narrower than the sequences."""

    def make(policy):
        layer = case.make(policy)
        for name, value in windows.items():
            setattr(layer, name, value)
        return layer

    return dataclasses.replace(case, name=f"narrow_{case.name}", make=make)


_BY_NAME = {case.name: case for case in CASES}

# Positions come with a multi-head layer.
MATRIX = [
    *(case for case in CASES if isinstance(case.make("float32"), layers.BaseAttention)),
    _narrow(_BY_NAME["sliding_window_attention"], window=1),
    _narrow(_BY_NAME["block_local_attention"], block_size=2),
    _narrow(_BY_NAME["monotonic_local_attention"], window=1),
]
# One for each way of computing, whose results the others share.
KINDS = {
    "additive_attention",
    "multi_head_attention_with_sinks",
    "grouped_query_attention",
    "talking_heads_attention",
    "differential_attention",
    "latent_attention",
    "narrow_monotonic_local_attention",
    "monotonic_attention",
    "narrow_sliding_window_attention",
    "narrow_block_local_attention",
    "linear_attention",
    "multi_scale_retention",
    "gated_linear_attention",
    "delta_rule_attention",
}
# The others are variants of one of these.
FAST = KINDS - {
    "multi_head_attention_with_sinks",
    "talking_heads_attention",
    "narrow_block_local_attention",
    "multi_scale_retention",
}
ON_JAX = {
    "grouped_query_attention",
    "narrow_sliding_window_attention",
    "linear_attention",
    "delta_rule_attention",
}


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Makes several chunks and blocks out of a few positions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "DENSE_LIMIT", 200)
        patch.setattr(plan, "CHUNK_BUDGET", 1)
        patch.setattr(sliding_window_attention, "MIN_ROWS", 2)
        patch.setattr(linear_attention, "BLOCK_SIZE", 2)
        for module in (delta_rule, gated_linear, retention):
            patch.setattr(module, "CHUNK_SIZE", 2)
        yield


EXAMPLES = (
    # What Keras' own layers get wrong, what ours got wrong, and what is rarely drawn: one of each.
    Situation(query_mask="some", value_mask="all but one", implementation="fused", backward=True),  # ignored; uniform
    Situation(  # NaN in rows to spare of the last chunk
        sizes=(1, 5, 3),
        attention_mask="heads",
        causal=True,
        bias="all",
        implementation="blockwise",
        budget=50,
        backward=True,
    ),
)

MORE = (
    Situation(sizes=(2, 2, 5), cached=True, value_mask="some"),
    # What Keras' own layers get wrong, and what they do then.
    Situation(sizes=(2, 1, 5), causal=True, implementation="fused"),  # see key 0 alone
    Situation(policy="mixed_float16", large=True, implementation="fused"),  # NaN
    Situation(attention_mask="additive"),  # read as boolean
    # Rarely drawn.
    Situation(bias="all", implementation="fused"),  # kernels that take a bias take no mask beside it
)

HEADS = (
    # A kernel attends to everything alike where there is nothing to attend to, maybe in one head alone.
    Situation(attention_mask="heads", implementation="fused", sizes=(3, 5, 3)),
    # A running softmax without a maximum overflows.
    Situation(sizes=(2, 7, 7), causal=True, large=True, implementation="blockwise"),
)


def explore(case, chosen, drawn, count):
    """Checks a layer in situations that are chosen, and in others, which each layer has of its own at every run.

    Args:
        case: The layer.
        chosen: Situations.
        drawn: Strategy for the others.
        count: How many others, of which Hypothesis takes the simplest first; maybe none.
    """

    # Explaining a failure would take more time than finding it.
    phases = [Phase.explicit, Phase.generate, Phase.shrink] if count else [Phase.explicit]

    @seed(zlib.crc32(case.name.encode()))
    @settings(max_examples=count or 1, deadline=None, database=None, phases=phases)
    @given(situation=drawn)
    def run(situation):
        check(case, situation)

    for situation in chosen:
        run = example(situation=situation)(run)
    run()


@pytest.mark.parametrize(
    "case",
    nightly_unless(lambda case: case.name in FAST, [case for case in MATRIX if case.name in KINDS]),
    ids=lambda case: case.name,
)
def test_contract(case):
    few_on_jax(case.name in ON_JAX)
    explore(case, EXAMPLES, st.sampled_from(EXAMPLES), 0)


def test_heads_in_rare_situations():
    explore(_BY_NAME["grouped_query_attention"], HEADS, st.sampled_from(HEADS), 0)


NIGHTLY = {case.name for case in first_of_each_class(MATRIX)} | KINDS


def _tier(case):
    return pytest.mark.nightly if case.name in NIGHTLY else pytest.mark.weekly


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=_tier(case)) for case in MATRIX])
def test_contract_at_length(case):
    drawn = situations(st.tuples(*[st.integers(1, 7)] * 3), ["eager"] * 4 + ["graph", "xla"])
    explore(case, MORE + HEADS if case.name in KINDS else EXAMPLES + MORE + HEADS, drawn, 4)
