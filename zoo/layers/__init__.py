"""Attention layers and what models are built from them."""

from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.attention import Attention
from zoo.layers.base_attention import BaseAttention
from zoo.layers.feed_forward import FeedForward
from zoo.layers.maxout import Maxout
from zoo.layers.multi_head_attention import MultiHeadAttention
from zoo.layers.recurrent_attention_cell import RecurrentAttentionCell
from zoo.layers.scaled_dot_product_attention import ScaledDotProductAttention
from zoo.layers.scores import AdditiveScore, ScaledDotScore, Score
from zoo.layers.sinusoidal_positions import SinusoidalPositions
from zoo.layers.transformer_decoder_block import TransformerDecoderBlock
from zoo.layers.transformer_encoder_block import TransformerEncoderBlock

__all__ = [
    "AdditiveAttention",
    "AdditiveScore",
    "Attention",
    "BaseAttention",
    "FeedForward",
    "Maxout",
    "MultiHeadAttention",
    "RecurrentAttentionCell",
    "ScaledDotProductAttention",
    "ScaledDotScore",
    "Score",
    "SinusoidalPositions",
    "TransformerDecoderBlock",
    "TransformerEncoderBlock",
]
