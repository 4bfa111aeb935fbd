"""Random descriptions of attention layers: kind × score × positions × visibility × normalisation, as contract cases."""

import keras
from hypothesis import strategies as st
from support.layers.contract import QUERY_VALUE_KEY, Case

from zoo import layers

SCORES = ("scaled_dot", "dot", "general", "additive", "cosine")
POSITIONS = {
    "none": lambda policy: None,
    "rotary": lambda policy: layers.RotaryPositions(dtype=policy),
    "alibi": lambda policy: layers.ALiBiPositions(dtype=policy),
    "t5": lambda policy: layers.T5RelativePositions(6, 5, dtype=policy),
    "shaw": lambda policy: layers.ShawRelativePositions(2, dtype=policy),
}
NORMALIZATIONS = ("softmax", "softmax", "softmax", "sink", "off_by_one", "sigmoid", "sparsemax", "entmax15")


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
def each_head_its_reach(batch, head, query, key):
    """A rule of one's own: how far a query sees depends on the head and on the sequence."""
    return abs(query - key) <= head + batch


_counts = st.integers(0, 3)
RULES = st.one_of(
    st.just(layers.Causal()),
    st.builds(layers.SlidingWindow, _counts, _counts),
    st.just(layers.Segments()),
    st.just(layers.PrefixLM()),
    st.builds(layers.Dilated, _counts, st.integers(1, 3)),
    st.builds(layers.GlobalTokens, st.lists(_counts, max_size=2)),
    st.builds(
        layers.BlockSparse,
        st.integers(1, 3),
        st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=4),
    ),
    st.builds(layers.LocalBlocks, st.integers(1, 3)),
    st.builds(layers.SummaryTokens, st.integers(3, 4), st.integers(1, 3)),
    st.just(layers.MaskMod(each_head_its_reach)),
)
COMBINED = st.one_of(RULES, st.builds(lambda a, b: a & b, RULES, RULES), st.builds(lambda a, b: a | b, RULES, RULES))
CHOOSING = st.builds(layers.TopBlocks, st.integers(1, 3), st.integers(1, 3))


def _single(policy, score, positions, **options):
    return layers.Attention(score, dtype=policy, **options)


def _projected(policy, score, positions, **options):
    return layers.SelfAttention(6, value_dim=23, score=score, dtype=policy, **options)


def _of_heads(kind, *sizes, **windows):
    def make(policy, score, positions, **options):
        options |= {"score": score, "positions": POSITIONS[positions](policy), **windows}
        return kind(*sizes, 6, value_dim=23, dtype=policy, **options)

    return make


KINDS = {
    "single": (_single, 1),
    "projected": (_projected, 1),
    "heads": (_of_heads(layers.MultiHeadAttention, 3), 3),
    "groups": (_of_heads(layers.GroupedQueryAttention, 4, 2), 4),
    "window": (_of_heads(layers.SlidingWindowAttention, 3, window=1), 3),
    "block": (_of_heads(layers.BlockLocalAttention, 3, block_size=2), 3),
}


@st.composite
def described(draw):
    """Returns a case of a layer that is described at random."""
    kind, score, positions = (draw(st.sampled_from(tuple(each))) for each in (KINDS, SCORES, POSITIONS))
    visibility = draw(st.one_of(st.none(), COMBINED))
    if kind not in ("window", "block") and draw(st.integers(0, 9)) == 9:
        choosing = draw(CHOOSING)
        visibility = choosing if visibility is None else choosing & visibility
    normalization = draw(st.sampled_from(NORMALIZATIONS))
    if kind not in ("single", "projected") and positions == "shaw" and score == "general":
        score = "dot"
    return described_case(kind, score, positions, visibility, normalization)


def described_case(kind, score="scaled_dot", positions="none", visibility=None, normalization="softmax"):
    """Returns the case of a layer."""
    make, heads = KINDS[kind]
    has_heads = kind not in ("single", "projected")
    inputs = {**QUERY_VALUE_KEY, "key": (2, 5, 11)}
    return Case(
        f"{kind}, {score}, {positions if has_heads else 'none'}, {visibility!r}, {normalization}",
        layers.BaseAttention,
        lambda policy: make(policy, score, positions, visibility=visibility, normalization=normalization),
        inputs,
        (2, 3, 11 if has_heads else 23 if kind == "projected" else 13),
        parameters=0,
        weights=(2, heads, 3, 5) if has_heads else (2, 3, 5),
        whole=normalization not in ("sink", "off_by_one", "sigmoid"),
        sparse=normalization in ("sparsemax", "entmax15"),
    )
