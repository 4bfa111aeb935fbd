"""Attention layers, and the layers and objects from which models compose them."""

from zoo.layers.attention.average import AverageAttention
from zoo.layers.attention.base import BaseAttention
from zoo.layers.attention.block_local import BlockLocalAttention
from zoo.layers.attention.delta_rule import DeltaRuleAttention
from zoo.layers.attention.differential import DifferentialAttention
from zoo.layers.attention.from_keras import from_keras
from zoo.layers.attention.gated_linear import GatedLinearAttention
from zoo.layers.attention.grouped_query import GroupedQueryAttention
from zoo.layers.attention.latent import MultiHeadLatentAttention
from zoo.layers.attention.lightweight_convolution import DynamicConvolution, LightweightConvolution
from zoo.layers.attention.linear import LinearAttention
from zoo.layers.attention.local import LocalAttention
from zoo.layers.attention.monotonic import MonotonicAttention
from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.attention.performer import PerformerAttention
from zoo.layers.attention.pooling import AttentionPooling
from zoo.layers.attention.retention import MultiScaleRetention
from zoo.layers.attention.segment_pooling import SegmentPooling
from zoo.layers.attention.single_head import (
    AdditiveAttention,
    Attention,
    ConcatAttention,
    CosineAttention,
    DotAttention,
    GeneralAttention,
    ScaledDotProductAttention,
    SelfAttention,
)
from zoo.layers.attention.sliding_window import SlidingWindowAttention
from zoo.layers.attention.talking_heads import TalkingHeadsAttention
from zoo.layers.blocks.gated_convolution import GatedConvolutionBlock
from zoo.layers.blocks.maxout import Maxout
from zoo.layers.blocks.transformer_decoder import TransformerDecoderBlock
from zoo.layers.blocks.transformer_encoder import TransformerEncoderBlock
from zoo.layers.core.feed_forward import FeedForward, GatedFeedForward
from zoo.layers.normalizations import (
    EntmaxNormalization,
    Normalization,
    SigmoidNormalization,
    SinkNormalization,
    SoftmaxNormalization,
    SparsemaxNormalization,
    get_normalization,
)
from zoo.layers.positions.absolute import IntegerPositions, LearnedPositions, SinusoidalPositions
from zoo.layers.positions.base import Positions
from zoo.layers.positions.relative import ALiBiPositions, ShawRelativePositions, T5RelativePositions
from zoo.layers.positions.rotary import RotaryPositions, XPosPositions
from zoo.layers.recurrent.attention_rnn import AttentionRNN
from zoo.layers.recurrent.bahdanau_cell import RecurrentAttentionCell
from zoo.layers.recurrent.bidirectional_encoder import BidirectionalEncoder
from zoo.layers.recurrent.conditional_cell import ConditionalAttentionCell
from zoo.layers.recurrent.luong_cell import LuongAttentionCell
from zoo.layers.recurrent.ssru import SSRU
from zoo.layers.recurrent.transitions import DeepTransitionCell
from zoo.layers.scores import (
    AdditiveScore,
    CallableScore,
    ConcatScore,
    CosineScore,
    CoverageScore,
    DotScore,
    GeneralScore,
    LocationScore,
    NormalizedAdditiveScore,
    PerHeadScore,
    ScaledDotScore,
    Score,
    TanhConcatScore,
    get_score,
)
from zoo.layers.visibility import (
    BlockSparse,
    Causal,
    Dilated,
    GlobalTokens,
    LocalBlocks,
    MaskMod,
    PrefixLM,
    Segments,
    SlidingWindow,
    SummaryTokens,
    TopBlocks,
    VisibilityRule,
)

__all__ = [
    "ALiBiPositions",
    "AdditiveAttention",
    "AdditiveScore",
    "Attention",
    "AttentionPooling",
    "AttentionRNN",
    "AverageAttention",
    "BaseAttention",
    "BidirectionalEncoder",
    "BlockLocalAttention",
    "BlockSparse",
    "CallableScore",
    "Causal",
    "ConcatAttention",
    "ConcatScore",
    "ConditionalAttentionCell",
    "CosineAttention",
    "CosineScore",
    "DeepTransitionCell",
    "DeltaRuleAttention",
    "DifferentialAttention",
    "Dilated",
    "CoverageScore",
    "DotAttention",
    "DotScore",
    "DynamicConvolution",
    "EntmaxNormalization",
    "FeedForward",
    "GatedConvolutionBlock",
    "GatedFeedForward",
    "GatedLinearAttention",
    "GeneralAttention",
    "GeneralScore",
    "GlobalTokens",
    "GroupedQueryAttention",
    "IntegerPositions",
    "LearnedPositions",
    "LightweightConvolution",
    "LinearAttention",
    "LocalAttention",
    "LocalBlocks",
    "LocationScore",
    "LuongAttentionCell",
    "MaskMod",
    "Maxout",
    "MonotonicAttention",
    "MultiHeadAttention",
    "NormalizedAdditiveScore",
    "MultiHeadLatentAttention",
    "MultiScaleRetention",
    "Normalization",
    "PerHeadScore",
    "PerformerAttention",
    "Positions",
    "PrefixLM",
    "RecurrentAttentionCell",
    "RotaryPositions",
    "SSRU",
    "ScaledDotProductAttention",
    "ScaledDotScore",
    "Score",
    "Segments",
    "SegmentPooling",
    "SelfAttention",
    "ShawRelativePositions",
    "SigmoidNormalization",
    "SinkNormalization",
    "SinusoidalPositions",
    "SlidingWindow",
    "SlidingWindowAttention",
    "SoftmaxNormalization",
    "SparsemaxNormalization",
    "SummaryTokens",
    "T5RelativePositions",
    "TalkingHeadsAttention",
    "TanhConcatScore",
    "TopBlocks",
    "TransformerDecoderBlock",
    "TransformerEncoderBlock",
    "VisibilityRule",
    "XPosPositions",
    "from_keras",
    "get_normalization",
    "get_score",
]
