"""The options that the Transformers of all tasks share."""

from dataclasses import dataclass

from zoo.models.shared.transformer_options.attention import SelfAttentionOptions
from zoo.models.shared.transformer_options.blocks import BlockOptions
from zoo.models.shared.transformer_options.visibility import VisibilityOptions
from zoo.registry import Paper

# Section 2 of that report; their feed-forward networks have three matrices.
QWEN = Paper("Qwen3 Technical Report", 2025, "https://arxiv.org/abs/2505.09388")
MODERN = {
    "normalize_first": True,
    "normalization": "rms_norm",
    "activation": "silu",
    "gated": True,
    "positions": "rotary",
    "use_bias": False,
    "qk_norm": True,
    "num_key_value_heads": 2,
}


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(SelfAttentionOptions, VisibilityOptions, BlockOptions):
    """Options of a stack of Transformer blocks."""

    def visible_to(self) -> dict[str, tuple[str, str]]:
        return {"visibility": (self.self_attention, self.visibility)}
