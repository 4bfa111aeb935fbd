"""Attention layers and what models are built from them."""

from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.alibi_positions import ALiBiPositions
from zoo.layers.attention import Attention
from zoo.layers.attention_pooling import AttentionPooling
from zoo.layers.attention_rnn import AttentionRNN
from zoo.layers.base_attention import BaseAttention
from zoo.layers.bidirectional_encoder import BidirectionalEncoder
from zoo.layers.block_local_attention import BlockLocalAttention
from zoo.layers.concat_attention import ConcatAttention
from zoo.layers.cosine_attention import CosineAttention
from zoo.layers.dot_attention import DotAttention
from zoo.layers.feed_forward import FeedForward
from zoo.layers.gated_convolution_block import GatedConvolutionBlock
from zoo.layers.gated_feed_forward import GatedFeedForward
from zoo.layers.general_attention import GeneralAttention
from zoo.layers.grouped_query_attention import GroupedQueryAttention
from zoo.layers.learned_positions import LearnedPositions
from zoo.layers.linear_attention import LinearAttention
from zoo.layers.local_attention import LocalAttention
from zoo.layers.luong_attention_cell import LuongAttentionCell
from zoo.layers.maxout import Maxout
from zoo.layers.multi_head_attention import MultiHeadAttention
from zoo.layers.performer_attention import PerformerAttention
from zoo.layers.positions import Positions
from zoo.layers.recurrent_attention_cell import RecurrentAttentionCell
from zoo.layers.rotary_positions import RotaryPositions
from zoo.layers.scaled_dot_product_attention import ScaledDotProductAttention
from zoo.layers.scores import (
    AdditiveScore,
    CallableScore,
    ConcatScore,
    CosineScore,
    DotScore,
    GeneralScore,
    LocationScore,
    ScaledDotScore,
    Score,
    TanhConcatScore,
)
from zoo.layers.shaw_relative_positions import ShawRelativePositions
from zoo.layers.sinusoidal_positions import SinusoidalPositions
from zoo.layers.sliding_window_attention import SlidingWindowAttention
from zoo.layers.t5_relative_positions import T5RelativePositions
from zoo.layers.transformer_decoder_block import TransformerDecoderBlock
from zoo.layers.transformer_encoder_block import TransformerEncoderBlock

__all__ = [
    "ALiBiPositions",
    "AdditiveAttention",
    "AdditiveScore",
    "Attention",
    "AttentionPooling",
    "AttentionRNN",
    "BaseAttention",
    "BidirectionalEncoder",
    "BlockLocalAttention",
    "CallableScore",
    "ConcatAttention",
    "ConcatScore",
    "CosineAttention",
    "CosineScore",
    "DotAttention",
    "DotScore",
    "FeedForward",
    "GatedConvolutionBlock",
    "GatedFeedForward",
    "GeneralAttention",
    "GeneralScore",
    "GroupedQueryAttention",
    "LearnedPositions",
    "LinearAttention",
    "LocalAttention",
    "LocationScore",
    "LuongAttentionCell",
    "Maxout",
    "MultiHeadAttention",
    "PerformerAttention",
    "Positions",
    "RecurrentAttentionCell",
    "RotaryPositions",
    "ScaledDotProductAttention",
    "ScaledDotScore",
    "Score",
    "ShawRelativePositions",
    "SinusoidalPositions",
    "SlidingWindowAttention",
    "T5RelativePositions",
    "TanhConcatScore",
    "TransformerDecoderBlock",
    "TransformerEncoderBlock",
]
