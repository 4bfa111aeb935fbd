"""Visibility rules, which restrict the keys to which a query attends, and the visibility of a call."""

from zoo.layers.visibility.base import VisibilityRule
from zoo.layers.visibility.blocks import BlockSparse, SummaryTokens, TopBlocks
from zoo.layers.visibility.mask_mod import MaskMod
from zoo.layers.visibility.sequences import Causal, PrefixLM, Segments
from zoo.layers.visibility.windows import Dilated, GlobalTokens, LocalBlocks, SlidingWindow

__all__ = [
    "BlockSparse",
    "Causal",
    "Dilated",
    "GlobalTokens",
    "LocalBlocks",
    "MaskMod",
    "PrefixLM",
    "Segments",
    "SlidingWindow",
    "SummaryTokens",
    "TopBlocks",
    "VisibilityRule",
]
