"""Cases of the contract: rules of visibility, and normalisations of scores."""

import keras
from support.layers.contract import ATTENTION, DROPOUT, FLAT, QUERY_VALUE_KEY, Case

from zoo import layers

_SINGLE_HEAD = {"output": (2, 3, 13), "weights": (2, 3, 5), **ATTENTION}
_SEVEN_HEADS = {"output": (2, 3, 11), "weights": (2, 7, 3, 5), **ATTENTION}
_SIX_HEADS = {"output": (2, 3, 11), "weights": (2, 6, 3, 5), **ATTENTION}
_OF_ONE_SIZE = {**_SINGLE_HEAD, "inputs": {**QUERY_VALUE_KEY, "key": (2, 5, 11)}}
_PROJECTIONS = 7 * 19 * (11 + 1 + 17 + 1 + 13 + 1) + (7 * 19 + 1) * 11
_OF_GROUPS = 6 * 19 * (11 + 1) + 2 * 19 * (17 + 1 + 13 + 1) + (6 * 19 + 1) * 11
_SCORES = {"inputs": {"scores": (2, 3, 5)}, "output": (2, 3, 5)}


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
def not_the_head(batch, head, query, key):
    """A rule of one's own: of seven keys, each head ignores another one, and sees nothing later than the next."""
    return (key % 7 != head) & (key <= query + 1)


def _multi_head(policy, **options):
    return layers.MultiHeadAttention(7, 19, dtype=policy, **options)


CASES = [
    Case(
        "multi_head_attention_in_a_window_with_global_tokens",
        layers.MultiHeadAttention,
        lambda policy: _multi_head(policy, visibility=layers.SlidingWindow(1, 0) | layers.GlobalTokens([1])),
        parameters=_PROJECTIONS,
        flat=FLAT,
        **_SEVEN_HEADS,
    ),
    Case(
        "multi_head_attention_by_a_function",
        layers.MultiHeadAttention,
        lambda policy: _multi_head(policy, visibility=layers.MaskMod(not_the_head), implementation="blockwise"),
        parameters=_PROJECTIONS,
        flat=FLAT,
        **_SEVEN_HEADS,
    ),
    Case(
        "grouped_query_attention_dilated",
        layers.GroupedQueryAttention,
        lambda policy: layers.GroupedQueryAttention(
            6, 2, 19, visibility=layers.Dilated(1, 2) & layers.Causal(), dtype=policy, **DROPOUT
        ),
        parameters=_OF_GROUPS,
        flat=FLAT,
        **_SIX_HEADS,
    ),
    Case(
        "additive_attention_in_sparse_blocks",
        layers.AdditiveAttention,
        lambda policy: layers.AdditiveAttention(
            31, visibility=layers.BlockSparse(2, [[1, 0, 1], [0, 1, 1], [1, 1, 0]]), dtype=policy
        ),
        parameters=31 * (11 + 1 + 17 + 1),
        **_SINGLE_HEAD,
    ),
    Case(
        "multi_head_attention_to_top_blocks",
        layers.MultiHeadAttention,
        lambda policy: _multi_head(policy, visibility=layers.Causal() & layers.TopBlocks(2, 2), **DROPOUT),
        parameters=_PROJECTIONS,
        flat=FLAT,
        **_SEVEN_HEADS,
    ),
    Case(
        "additive_attention_to_top_blocks_by_entmax",
        layers.AdditiveAttention,
        lambda policy: layers.AdditiveAttention(
            31, visibility=layers.TopBlocks(2, 1), normalization="entmax15", dtype=policy
        ),
        parameters=31 * (11 + 1 + 17 + 1),
        sparse=True,
        **_SINGLE_HEAD,
    ),
    Case(
        "multi_head_attention_with_sinks",
        layers.MultiHeadAttention,
        lambda policy: _multi_head(policy, normalization="sink", **DROPOUT),
        parameters=_PROJECTIONS + 7,
        whole=False,
        **_SEVEN_HEADS,
    ),
    Case(
        "additive_attention_off_by_one",
        layers.AdditiveAttention,
        lambda policy: layers.AdditiveAttention(31, normalization="off_by_one", dtype=policy),
        parameters=31 * (11 + 1 + 17 + 1),
        whole=False,
        **_SINGLE_HEAD,
    ),
    Case(
        "grouped_query_attention_by_sigmoids",
        layers.GroupedQueryAttention,
        lambda policy: layers.GroupedQueryAttention(
            6, 2, 19, normalization="sigmoid", implementation="blockwise", dtype=policy
        ),
        parameters=_OF_GROUPS,
        whole=False,
        **_SIX_HEADS,
    ),
    Case(
        "scaled_dot_product_attention_by_sparsemax",
        layers.ScaledDotProductAttention,
        lambda policy: layers.ScaledDotProductAttention(normalization="sparsemax", dtype=policy, **DROPOUT),
        parameters=0,
        sparse=True,
        **_OF_ONE_SIZE,
    ),
    Case(
        "multi_head_attention_by_entmax",
        layers.MultiHeadAttention,
        lambda policy: _multi_head(policy, normalization="entmax15"),
        parameters=_PROJECTIONS,
        flat=FLAT,
        sparse=True,
        **_SEVEN_HEADS,
    ),
    Case(
        "self_attention_by_entmax_of_its_own",
        layers.SelfAttention,
        lambda policy: layers.SelfAttention(
            19, normalization=layers.EntmaxNormalization(1.3, dtype=policy), dtype=policy
        ),
        parameters=19 * (11 + 17 + 13),
        output=(2, 3, 19),
        weights=(2, 3, 5),
        sparse=True,
        **ATTENTION,
    ),
    *(
        Case(name, type(make("float32")), make, parameters=parameters, **_SCORES)
        for name, make, parameters in (
            ("softmax_normalization", lambda policy: layers.SoftmaxNormalization(dtype=policy), 0),
            ("sink_normalization", lambda policy: layers.SinkNormalization(dtype=policy), 1),
            ("off_by_one_normalization", lambda policy: layers.SinkNormalization(learned=False, dtype=policy), 0),
            ("sigmoid_normalization", lambda policy: layers.SigmoidNormalization(dtype=policy), 0),
            ("biased_sigmoid_normalization", lambda policy: layers.SigmoidNormalization(-0.7, dtype=policy), 0),
            ("sparsemax_normalization", lambda policy: layers.SparsemaxNormalization(dtype=policy), 0),
            ("entmax_normalization", lambda policy: layers.EntmaxNormalization(dtype=policy), 0),
            ("entmax_normalization_by_bisection", lambda policy: layers.EntmaxNormalization(1.7, dtype=policy), 0),
        )
    ),
]
