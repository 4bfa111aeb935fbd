"""Options of the Transformers of all tasks. Without Keras, because the catalog imports them.

`zoo.models.shared.transformer_layers` makes the layers for these options.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from zoo.errors import InputError
from zoo.models.shared.attention_options import HALVED, SelfAttentionOptions, VisibilityOptions
from zoo.models.shared.options import TextEncoderOptions
from zoo.models.shared.position_options import MAX_LENGTH, ROTARY_POSITIONS, LayerPositionOptions
from zoo.options import Options, choice, count, flag, number, rate, size, text

NORMALIZATIONS = ("layer_norm", "rms_norm")
PROJECTION_ACTIVATIONS = ("tanh", "linear", "relu", "gelu")


@dataclass(frozen=True, kw_only=True)
class FeedForwardOptions(Options):
    """Options of the feed-forward networks."""

    group: ClassVar[str] = "feed_forward"
    short_names: ClassVar[dict[str, str]] = {"dim": "intermediate_dim", "dropout": "feed_forward_dropout"}

    intermediate_dim: int = size(2048, "Size of the hidden layer of the feed-forward networks.")
    activation: str = text(
        "relu", "Activation of the feed-forward networks, a name for Keras, or gelu_tanh, the GELU of GPT-2."
    )
    gated: bool = flag(False, "Whether the feed-forward networks have a gate; SwiGLU has the activation silu as well.")
    feed_forward_dropout: float = rate(0.0, "Rate of dropout inside the feed-forward networks.")


@dataclass(frozen=True, kw_only=True)
class NormOptions(Options):
    """Options of the normalisations."""

    group: ClassVar[str] = "norms"
    short_names: ClassVar[dict[str, str]] = {"kind": "normalization", "first": "normalize_first"}

    normalize_first: bool = flag(False, "Whether blocks normalise before each part (pre-norm) instead of after it.")
    normalization: str = choice("layer_norm", NORMALIZATIONS, "Kind of normalisation.")
    epsilon: float = number(1e-5, "ε of the normalisations of blocks.")


@dataclass(frozen=True, kw_only=True)
class BlockOptions(FeedForwardOptions, NormOptions):
    """Options of a stack of blocks."""

    group: ClassVar[str] = "blocks"
    short_names: ClassVar[dict[str, str]] = {"count": "num_layers"}

    num_layers: int = size(6, "Number of blocks; in an encoder-decoder, of each side.")
    use_bias: bool = flag(True, "Whether attention and feed-forward networks have biases.")


class Stack(NamedTuple):
    """The options of a stack of blocks in which the stacks of a model, or the models of different tasks, differ.

    Attributes:
        num_layers: Number of blocks.
        self_attention: Kind of self-attention.
        visibility: Its visibility.
        full_attention_every: n: every n-th block ignores `visibility`; 0: none does.
        parallel_residual: See `TransformerEncoderBlock`.
        sandwich_norm: See `TransformerEncoderBlock`.
        res_post_norm: See `TransformerEncoderBlock`.
        qk_norm_across_heads: Whether `qk_norm` normalises all heads of a position together.
        no_positions_every: n: every n-th block has no positions in its attention; 0: none.
        window_wavelength: w of rotary positions in blocks with a `visibility`; 0: `max_wavelength`.
    """

    num_layers: int
    self_attention: str
    visibility: str
    full_attention_every: int = 0
    parallel_residual: bool = False
    sandwich_norm: bool = False
    res_post_norm: bool = False
    qk_norm_across_heads: bool = False
    no_positions_every: int = 0
    window_wavelength: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(LayerPositionOptions, SelfAttentionOptions, VisibilityOptions, BlockOptions):
    """Options of a Transformer."""

    @property
    def stacks(self) -> dict[str, Stack]:
        """The stacks of blocks, by the prefix of the names of their options."""
        return {"": Stack(self.num_layers, self.self_attention, self.visibility)}

    def check(self) -> None:
        super().check()
        stacks = self.stacks.items()
        kinds = {f"{prefix}visibility": (stack.self_attention, stack.visibility) for prefix, stack in stacks}
        self.check_visibility(kinds)
        self._check_rotated()
        for prefix, stack in stacks:
            self.check_kind(f"{prefix}self_attention", stack.self_attention)

    def _check_rotated(self) -> None:
        if self.positions not in ROTARY_POSITIONS:
            return
        minimum, reason = 2, f"positions={self.positions!r}"
        if self.rope_scaling == "ntk":
            minimum, reason = 4, "rope_scaling='ntk'"
        for prefix, stack in self.stacks.items():
            if stack.self_attention in HALVED:
                minimum, reason = 2 * minimum, f"{prefix}self_attention={stack.self_attention!r}"
                break
        if self.rotated_dim < minimum:
            sizes = f"key_dim={self.key_dim}" if self.key_dim else f"model_dim={self.model_dim}"
            required = {2: "two", 4: "four", 8: "eight"}[minimum]
            raise InputError(
                f"`{reason}` rotates pairs of features: heads must have at least {required}. "
                f"Received: {sizes}, num_heads={self.num_heads}."
            )


@dataclass(frozen=True, kw_only=True)
class TransformerTextEncoderOptions(TransformerOptions, TextEncoderOptions):
    """Options of `TransformerTextEncoder`."""

    dropout: float = rate(
        0.1, "Rate of dropout on embeddings, on the result of each part of a block and on the vector of the text."
    )
    max_length: int = size(512, MAX_LENGTH)
    embedding_norm: bool = flag(False, "Whether embeddings with their positions are normalised, as in BERT.")
    num_segments: int = count(
        0,
        "Number of segments that have a learned vector, which is added to their embeddings; each segment ends with an "
        "end token. 0: none. BERT has two.",
    )
    projection_dim: int = count(
        0, "Size of a projection g(W x + b) of the vector of the text, such as BERT's pooler; 0: no projection."
    )
    projection_activation: str = choice("tanh", PROJECTION_ACTIVATIONS, "g, the activation of this projection.")
