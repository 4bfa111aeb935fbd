"""The options that the Transformers of all tasks share, by idea, and which of them go together.

No Keras here, so that the catalog can read the defaults; `zoo.models.shared.transformer_layers` makes layers of them.
"""

from zoo.models.shared.transformer_options.attention import AttentionOptions
from zoo.models.shared.transformer_options.positions import (
    CONCATENATED,
    INPUT_POSITIONS,
    MAX_DISTANCES,
    MAX_LENGTH,
    POSITIONS,
    ROTARY_POSITIONS,
    T5_POSITIONS,
)
from zoo.models.shared.transformer_options.transformer import MODERN, QWEN, TransformerOptions
from zoo.models.shared.transformer_options.variants import (
    CAUSAL_SELF_ATTENTIONS,
    CONVOLUTIONS,
    SELF_ATTENTIONS,
    VARIANTS,
)
from zoo.models.shared.transformer_options.visibility import VISIBILITIES

__all__ = [
    "CAUSAL_SELF_ATTENTIONS",
    "CONCATENATED",
    "CONVOLUTIONS",
    "INPUT_POSITIONS",
    "MAX_DISTANCES",
    "MAX_LENGTH",
    "MODERN",
    "POSITIONS",
    "QWEN",
    "ROTARY_POSITIONS",
    "SELF_ATTENTIONS",
    "T5_POSITIONS",
    "VARIANTS",
    "VISIBILITIES",
    "AttentionOptions",
    "TransformerOptions",
]
