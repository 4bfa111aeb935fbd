"""All paths agree: random descriptions of layers, called in random ways, against loops in float64.

A description is drawn (kind of layer, score, positions, visibility, normalisation) and a situation (sizes, also zero,
masks, bias, cache, dtype, implementation, graphs that know no lengths); see `support.layers.descriptions` and `matrix`.
What has been found is kept as an example.
"""

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from support.layers.descriptions import described, described_case
from support.layers.matrix import BACKEND, VECTORS, Situation
from support.layers.matrix_checks import check

from zoo import layers
from zoo.layers.attention import sliding_window as sliding_window_attention
from zoo.layers.execution import plan, tiles


@pytest.fixture(scope="module", autouse=True)
def small_pieces():
    """Makes several chunks, tiles and blocks out of a few positions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "DENSE_LIMIT", 1)
        patch.setattr(plan, "CHUNK_BUDGET", 1)
        patch.setattr(tiles, "TILE_BUDGET", 100)
        patch.setattr(sliding_window_attention, "MIN_ROWS", 2)
        yield


def _draw(often, *rarely):
    """Returns a strategy for a value that is mostly the first."""
    return st.sampled_from([often] * (len(rarely) + 1) + list(rarely))


def situations(modes):
    """Returns a strategy for how a layer is called."""
    return st.builds(
        Situation,
        sizes=st.tuples(st.integers(1, 2), _draw(3, 0, 1, 2, 5, 7), _draw(5, 0, 1, 2, 3, 7)),
        **dict.fromkeys(VECTORS, _draw(None, "some", "all but one", "all")),
        attention_mask=_draw(None, "pairs", "shared", "heads"),
        causal=st.booleans(),
        start=_draw(None, -1, 0, 2, 4),
        bias=_draw(None, "keys", "pairs", "all"),
        cached=st.booleans(),
        grows=st.booleans(),
        tells=st.booleans(),
        policy=_draw("float32", "mixed_bfloat16", "mixed_float16"),
        mode=st.sampled_from(modes),
        training=_draw(False, True),
        backward=st.booleans(),
        implementation=st.sampled_from(["auto", "dense", "blockwise", "fused"]),
        budget=st.sampled_from([1, 300]),
        poison=st.sampled_from(["nan", "huge"]),
        seed=st.integers(0, 99),
    )


FOUND = (
    (
        described_case("heads", visibility=layers.Causal() & layers.Segments()),
        Situation(implementation="blockwise", backward=True),
    ),
    (described_case("single", normalization="sink"), Situation(sizes=(1, 3, 0))),  # Keras warned of a softmax of one
    (described_case("heads", visibility=layers.TopBlocks(2, 1)), Situation(value_mask="some", sizes=(2, 3, 7))),
    (described_case("single", visibility=layers.Segments()), Situation(sizes=(2, 3, 5), start=4)),  # beyond the keys
    (  # a prefix that ends in the empty room of the cache
        described_case("groups", visibility=layers.PrefixLM()),
        Situation(sizes=(2, 2, 5), cached=True, seed=2),
    ),
)


def explore(count, modes, chosen=(), **options):
    """Returns what makes a test of chosen and of `count` random descriptions and situations of a function of both."""

    def decorate(function):
        test = given(case=described(), situation=situations(modes))(function)
        for case, situation in chosen:
            test = example(case=case, situation=situation)(test)
        # Explaining a failure would take more time than finding it.
        phases = [Phase.explicit, Phase.generate, Phase.shrink]
        checks = list(HealthCheck)
        return settings(
            max_examples=count, deadline=None, database=None, suppress_health_check=checks, phases=phases, **options
        )(test)

    return decorate


@explore(3, ["eager"], FOUND, derandomize=True)
def test_all_paths_agree(case, situation):
    check(case, situation)


@pytest.mark.nightly
@explore(80 if BACKEND != "jax" else 20, ["eager"] * 4 + ["graph", "unknown", "xla"])
def test_all_paths_agree_at_length(case, situation):
    check(case, situation)
