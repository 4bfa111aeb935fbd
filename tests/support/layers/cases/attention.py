"""Cases of the contract: attention layers."""

import keras
from keras import ops
from support.layers.contract import ATTENTION, DROPOUT, FLAT, QUERY_VALUE_KEY, Case

from zoo import layers

_SINGLE_HEAD = {"output": (2, 3, 13), "weights": (2, 3, 5), **ATTENTION}
_OF_ONE_SIZE = {**_SINGLE_HEAD, "inputs": {**QUERY_VALUE_KEY, "key": (2, 5, 11)}}
_SEVEN_HEADS = {"output": (2, 3, 11), "weights": (2, 7, 3, 5), **ATTENTION}


def _multi_head(policy):
    return layers.MultiHeadAttention(7, 19, dtype=policy)


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
class InPairs(keras.layers.Layer):
    """A pooling whose segments are pairs of positions."""

    def __init__(self, pooling, **kwargs):
        super().__init__(**{"dtype": pooling.dtype_policy, **kwargs})
        self.supports_masking = True
        self.pooling = pooling

    def compute_mask(self, inputs, mask=None):
        return None

    def build(self, inputs_shape):
        if not self.pooling.built:
            self.pooling.build(inputs_shape)

    def call(self, inputs, mask=None, return_attention_scores=False):
        pairs = ops.arange(ops.shape(inputs)[1], dtype="int32")[None] // 2
        segments = ops.broadcast_to(pairs, ops.shape(inputs)[:2])
        return self.pooling(inputs, segments, mask=mask, return_attention_scores=return_attention_scores)

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {**super().get_config(), "pooling": keras.saving.serialize_keras_object(self.pooling)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "pooling": keras.saving.deserialize_keras_object(config["pooling"])})


CASES = [
    Case(
        "additive_attention",
        layers.AdditiveAttention,
        lambda policy: layers.AdditiveAttention(
            31, use_bias=False, kernel_initializer="he_normal", dtype=policy, **DROPOUT
        ),
        parameters=31 * (11 + 17 + 1),
        **_SINGLE_HEAD,
    ),
    Case(
        "concat_attention",
        layers.ConcatAttention,
        lambda policy: layers.ConcatAttention(31, kernel_initializer="he_normal", dtype=policy, **DROPOUT),
        parameters=31 * (11 + 17 + 1),
        **_SINGLE_HEAD,
    ),
    Case(
        "general_attention",
        layers.GeneralAttention,
        lambda policy: layers.GeneralAttention(kernel_initializer="he_normal", dtype=policy, **DROPOUT),
        parameters=11 * 17,
        **_SINGLE_HEAD,
    ),
    Case(
        "dot_attention",
        layers.DotAttention,
        lambda policy: layers.DotAttention(dtype=policy, **DROPOUT),
        parameters=0,
        **_OF_ONE_SIZE,
    ),
    Case(
        "cosine_attention",
        layers.CosineAttention,
        lambda policy: layers.CosineAttention(0.3, learn_temperature=True, dtype=policy, **DROPOUT),
        parameters=1,
        **_OF_ONE_SIZE,
    ),
    Case(
        "attention",
        layers.Attention,
        lambda policy: layers.Attention(layers.AdditiveScore(31, dtype=policy), dtype=policy, **DROPOUT),
        parameters=31 * (11 + 1 + 17 + 1),
        **_SINGLE_HEAD,
    ),
    Case(
        "scaled_dot_product_attention",
        layers.ScaledDotProductAttention,
        lambda policy: layers.ScaledDotProductAttention(dtype=policy, **DROPOUT),
        parameters=0,
        **_OF_ONE_SIZE,
    ),
    Case(
        "self_attention",
        layers.SelfAttention,
        lambda policy: layers.SelfAttention(19, dtype=policy),
        parameters=19 * (11 + 17 + 13),
        output=(2, 3, 19),
        weights=(2, 3, 5),
        **ATTENTION,
    ),
    Case(
        "self_attention_with_biases",
        layers.SelfAttention,
        lambda policy: layers.SelfAttention(
            19, value_dim=23, score="additive", use_bias=True, kernel_initializer="he_normal", dtype=policy, **DROPOUT
        ),
        parameters=19 * (11 + 1 + 17 + 1) + 23 * (13 + 1) + 19 * (19 + 1 + 19 + 1),
        output=(2, 3, 23),
        weights=(2, 3, 5),
        **ATTENTION,
    ),
    Case(
        "multi_head_attention",
        layers.MultiHeadAttention,
        _multi_head,
        parameters=7 * 19 * (11 + 1 + 17 + 1 + 13 + 1) + (7 * 19 + 1) * 11,
        flat=FLAT,
        **_SEVEN_HEADS,
    ),
    Case(
        "multi_head_additive_attention",
        layers.MultiHeadAttention,
        lambda policy: layers.MultiHeadAttention(
            num_heads=7,
            query_dim=37,
            key_dim=19,
            value_dim=23,
            output_dim=29,
            score=layers.AdditiveScore(31, dtype=policy),
            use_bias=False,
            kernel_initializer="he_normal",
            dtype=policy,
            **DROPOUT,
        ),
        output=(2, 3, 29),
        weights=(2, 7, 3, 5),
        parameters=7 * (37 * 11 + 19 * 17 + 23 * 13 + 23 * 29) + 31 * (37 + 1 + 19 + 1),
        **ATTENTION,
    ),
    Case(
        "concatenated_heads_with_scores_of_their_own",
        layers.MultiHeadAttention,
        lambda policy: layers.MultiHeadAttention(
            7, 19, value_dim=23, score="additive", output_projection=False, share_score=False, dtype=policy
        ),
        output=(2, 3, 7 * 23),
        weights=(2, 7, 3, 5),
        parameters=7 * (19 * (11 + 1 + 17 + 1) + 23 * (13 + 1)) + 7 * 19 * (19 + 1 + 19 + 1),
        **ATTENTION,
    ),
    Case(
        "multi_head_attention_with_gated_output",
        layers.MultiHeadAttention,
        lambda policy: layers.MultiHeadAttention(7, 19, value_dim=23, output_gate=True, dtype=policy),
        parameters=7 * (19 * (11 + 1 + 17 + 1) + 23 * (13 + 1 + 11 + 1)) + (7 * 23 + 1) * 11,
        flat=FLAT,
        **_SEVEN_HEADS,
    ),
    Case(
        "talking_heads_attention",
        layers.TalkingHeadsAttention,
        lambda policy: layers.TalkingHeadsAttention(
            7, 19, value_dim=23, output_gate=True, use_bias=False, dtype=policy, **DROPOUT
        ),
        parameters=7 * (19 * (11 + 17) + 23 * (13 + 11 + 11)) + 2 * 7 * 7,
        **_SEVEN_HEADS,
    ),
    Case(
        "differential_attention",
        layers.DifferentialAttention,
        lambda policy: layers.DifferentialAttention(
            7, 19, value_dim=23, initial_lambda=0.3, epsilon=1e-3, use_bias=True, dtype=policy, **DROPOUT
        ),
        parameters=7 * (2 * 19 * (11 + 1 + 17 + 1) + 23 * (13 + 1)) + 4 * 19 + (7 * 23 + 1) * 11,
        flat=FLAT,
        whole=False,
        signed=True,
        **_SEVEN_HEADS,
    ),
    Case(
        "grouped_query_attention",
        layers.GroupedQueryAttention,
        lambda policy: layers.GroupedQueryAttention(6, 2, 19, value_dim=23, dtype=policy),
        output=(2, 3, 11),
        weights=(2, 6, 3, 5),
        parameters=6 * 19 * (11 + 1) + 2 * (19 * (17 + 1) + 23 * (13 + 1)) + (6 * 23 + 1) * 11,
        flat=FLAT,
        **ATTENTION,
    ),
    Case(
        "multi_query_attention",
        layers.GroupedQueryAttention,
        lambda policy: layers.GroupedQueryAttention(
            7, 1, 19, query_dim=37, score="general", implementation="dense", dtype=policy, **DROPOUT
        ),
        parameters=7 * 37 * (11 + 1) + 19 * (17 + 1) + 19 * (13 + 1) + (7 * 19 + 1) * 11 + 37 * 19,
        flat=FLAT,
        **_SEVEN_HEADS,
    ),
    Case(
        "grouped_query_attention_with_scores_of_their_own",
        layers.GroupedQueryAttention,
        lambda policy: layers.GroupedQueryAttention(
            6, 2, 19, query_dim=37, score="general", share_score=False, dtype=policy, **DROPOUT
        ),
        output=(2, 3, 11),
        weights=(2, 6, 3, 5),
        parameters=6 * 37 * (11 + 1) + 2 * 19 * (17 + 1 + 13 + 1) + (6 * 19 + 1) * 11 + 6 * 37 * 19,
        flat=FLAT,
        **ATTENTION,
    ),
    Case(
        "multi_head_attention_with_positions",
        layers.MultiHeadAttention,
        lambda policy: layers.MultiHeadAttention(
            7, 19, positions=layers.RotaryPositions(dtype=policy), implementation="blockwise", dtype=policy
        ),
        parameters=7 * 19 * (11 + 1 + 17 + 1 + 13 + 1) + (7 * 19 + 1) * 11,
        **_SEVEN_HEADS,
    ),
    Case(
        "multi_head_attention_with_normalized_queries_and_capped_scores",
        layers.MultiHeadAttention,
        lambda policy: layers.MultiHeadAttention(
            7, 19, query_dim=37, score="general", qk_norm=True, logit_softcap=0.3, dtype=policy, **DROPOUT
        ),
        parameters=7 * (37 * (11 + 1) + 19 * (17 + 1 + 13 + 1)) + (7 * 19 + 1) * 11 + 37 * 19 + 37 + 19,
        **_SEVEN_HEADS,
    ),
    Case(
        "grouped_query_attention_with_normalized_queries_and_capped_scores",
        layers.GroupedQueryAttention,
        lambda policy: layers.GroupedQueryAttention(
            6, 2, 19, qk_norm=True, logit_softcap=0.3, implementation="blockwise", dtype=policy
        ),
        output=(2, 3, 11),
        weights=(2, 6, 3, 5),
        parameters=6 * 19 * (11 + 1) + 2 * 19 * (17 + 1 + 13 + 1) + (6 * 19 + 1) * 11 + 19 + 19,
        **ATTENTION,
    ),
    Case(
        "multi_head_attention_normalized_across_heads",
        layers.MultiHeadAttention,
        lambda policy: layers.MultiHeadAttention(6, 19, qk_norm=True, qk_norm_across_heads=True, dtype=policy),
        output=(2, 3, 11),
        weights=(2, 6, 3, 5),
        parameters=6 * 19 * (11 + 1 + 17 + 1 + 13 + 1) + (6 * 19 + 1) * 11 + 2 * 6 * 19,
        **ATTENTION,
    ),
    # The windows are wider than the sequences here, so that the masks alone decide; test_local.py has narrow ones.
    Case(
        "monotonic_local_attention",
        layers.LocalAttention,
        lambda policy: layers.LocalAttention(window=5, dtype=policy, **DROPOUT),
        parameters=11 * 17,
        **_SINGLE_HEAD,
    ),
    Case(
        "monotonic_attention",
        layers.MonotonicAttention,
        lambda policy: layers.MonotonicAttention(
            layers.NormalizedAdditiveScore(31, dtype=policy),
            noise=0,
            initial_offset=0.5,
            hard=False,
            dtype=policy,
            **DROPOUT,
        ),
        parameters=31 * (11 + 1 + 17 + 1) + 2,
        whole=False,
        **_SINGLE_HEAD,
    ),
    Case(
        "predictive_local_attention",
        layers.LocalAttention,
        lambda policy: layers.LocalAttention(
            window=7,
            alignment="predictive",
            score=layers.ConcatScore(29, dtype=policy),
            units=31,
            dtype=policy,
            **DROPOUT,
        ),
        parameters=29 * (11 + 17 + 1) + 31 * (11 + 1),
        whole=False,
        **_SINGLE_HEAD,
    ),
    Case(
        "additive_pooling",
        layers.AttentionPooling,
        lambda policy: layers.AttentionPooling(layers.AdditiveAttention(31, dtype=policy), query_dim=19, dtype=policy),
        {"inputs": (2, 5, 13)},
        output=(2, 13),
        weights=(2, 1, 5),
        parameters=19 + 31 * (19 + 1 + 13 + 1),
        hides={"mask": ("inputs",)},
    ),
    Case(
        "multi_head_pooling",
        layers.AttentionPooling,
        lambda policy: layers.AttentionPooling(_multi_head(policy), num_queries=3, dtype=policy),
        {"inputs": (2, 5, 13)},
        output=(2, 3, 13),
        weights=(2, 7, 3, 5),
        parameters=3 * 13 + 3 * 7 * 19 * (13 + 1) + (7 * 19 + 1) * 13,
        hides={"mask": ("inputs",)},
        flat=FLAT,
    ),
    Case(
        "segment_pooling",
        layers.SegmentPooling,
        lambda policy: InPairs(layers.SegmentPooling(3, layers.AdditiveScore(31, dtype=policy), dtype=policy)),
        {"inputs": (2, 5, 13)},
        output=(2, 3, 13),
        weights=(2, 3, 5),
        parameters=13 + 31 * (13 + 1 + 13 + 1),
        hides={"mask": ("inputs",)},
        part=lambda layer: layer.pooling,
    ),
]
