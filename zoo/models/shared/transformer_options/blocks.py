"""Options of the blocks of a Transformer: their feed-forward networks and normalisations."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.options import Options, choice, flag, number, rate, size, text

NORMALIZATIONS = ("layer_norm", "rms_norm")


@dataclass(frozen=True, kw_only=True)
class FeedForwardOptions(Options):
    """Options of the feed-forward networks."""

    group: ClassVar[str] = "feed_forward"
    short_names: ClassVar[dict[str, str]] = {"dim": "intermediate_dim", "dropout": "feed_forward_dropout"}

    intermediate_dim: int = size(2048, "Size inside the feed-forward networks.")
    activation: str = text(
        "relu", "Nonlinearity of the feed-forward networks, as Keras knows it by name; or gelu_tanh, GPT-2's GELU."
    )
    gated: bool = flag(False, "Whether the feed-forward networks have a gate; SwiGLU has the activation silu as well.")
    feed_forward_dropout: float = rate(0.0, "Rate of dropout inside the feed-forward networks.")


@dataclass(frozen=True, kw_only=True)
class NormOptions(Options):
    """Options of the normalisations."""

    group: ClassVar[str] = "norms"
    short_names: ClassVar[dict[str, str]] = {"kind": "normalization", "first": "normalize_first"}

    normalize_first: bool = flag(False, "Whether blocks normalise before each part (pre-norm) and not after it.")
    normalization: str = choice("layer_norm", NORMALIZATIONS, "Kind of normalisation.")
    epsilon: float = number(1e-5, "ε of the normalisations of blocks.")


@dataclass(frozen=True, kw_only=True)
class BlockOptions(FeedForwardOptions, NormOptions):
    """Options of a stack of blocks."""

    group: ClassVar[str] = "blocks"
    short_names: ClassVar[dict[str, str]] = {"count": "num_layers"}

    num_layers: int = size(6, "Number of blocks; in an encoder-decoder, of each side.")
    use_bias: bool = flag(True, "Whether attention and feed-forward networks have biases.")
