"""The options that the Transformers of all tasks share."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.errors import InputError
from zoo.models.shared.transformer_options.attention import SelfAttentionOptions
from zoo.models.shared.transformer_options.blocks import BlockOptions
from zoo.models.shared.transformer_options.positions import T5_POSITIONS, PositionOptions
from zoo.models.shared.transformer_options.visibility import VisibilityOptions
from zoo.options import flag
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
class LayerPositionOptions(PositionOptions):
    """Options of the positions of several layers."""

    group: ClassVar[str] = "positions"
    short_names: ClassVar[dict[str, str]] = {"share": "share_positions"}

    share_positions: bool = flag(
        True, "Whether all layers share the biases of t5 and learned_t5; if not, each has its own, as in UMT5."
    )

    def check(self) -> None:
        super().check()
        if not self.share_positions and self.positions not in T5_POSITIONS:
            raise InputError(
                f"`share_positions=false` is for the positions {' and '.join(T5_POSITIONS)}. "
                f"Received: share_positions={self.share_positions}, positions={self.positions!r}."
            )


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(LayerPositionOptions, SelfAttentionOptions, VisibilityOptions, BlockOptions):
    """Options of a stack of Transformer blocks."""

    def visible_to(self) -> dict[str, tuple[str, str]]:
        return {"visibility": (self.self_attention, self.visibility)}
