"""Rules that say which query may see which key: one file each."""

from zoo.layers.visibility.base import VisibilityRule
from zoo.layers.visibility.block_sparse import BlockSparse
from zoo.layers.visibility.causal import Causal
from zoo.layers.visibility.dilated import Dilated
from zoo.layers.visibility.global_tokens import GlobalTokens
from zoo.layers.visibility.local_blocks import LocalBlocks
from zoo.layers.visibility.mask_mod import MaskMod
from zoo.layers.visibility.prefix_lm import PrefixLM
from zoo.layers.visibility.segments import Segments
from zoo.layers.visibility.sliding_window import SlidingWindow
from zoo.layers.visibility.summary_tokens import SummaryTokens
from zoo.layers.visibility.top_blocks import TopBlocks

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
