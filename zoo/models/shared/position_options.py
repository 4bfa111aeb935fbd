"""Options of the embeddings and positions of a Transformer. Without Keras, because the catalog imports them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from zoo.errors import InputError
from zoo.options import Options, choice, count, flag, number, rate, size

CONCATENATED = ("concat", "learned_concat")
INPUT_POSITIONS = ("sinusoidal", "fairseq_sinusoidal", "learned", *CONCATENATED, "integer", "integer_normalized")
# Biases that depend on the distance; learned_t5 also has learned positions at the embeddings.
T5_POSITIONS = ("t5", "learned_t5")
SCORE_POSITIONS = ("alibi", "relative", *T5_POSITIONS)
ROTARY_POSITIONS = ("rotary", "xpos")
POSITIONS = (*INPUT_POSITIONS, *ROTARY_POSITIONS, *SCORE_POSITIONS, "none")
ROPE_SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")
# Largest distances of the papers: Shaw et al. 2018, section 4.1; Raffel et al. 2020, section 2.1.
MAX_DISTANCES = {"relative": 16, "t5": 128, "learned_t5": 128}
# In a decoder, T5 has one bucket for each distance below this.
T5_EXACT = 16

MAX_LENGTH = "Rows of a table of learned positions; all later positions of a longer text use its last row."


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(Options):
    """Options of the embeddings: `x = f E y`, where f is √D, or 1 without `scale_embeddings`."""

    group: ClassVar[str] = "embeddings"
    short_names: ClassVar[dict[str, str]] = {"dim": "model_dim", "scale": "scale_embeddings"}

    model_dim: int = size(512, "Size of the embeddings and of the activations, D.")
    dropout: float = rate(0.1, "Rate of dropout on embeddings and on the result of each part of a block.")
    scale_embeddings: bool = flag(
        True, "Whether embeddings are multiplied by √D before positions are added, as in the paper."
    )

    @property
    def embedding_factor(self) -> float:
        """The factor of the embeddings, √D or 1."""
        return float(self.model_dim**0.5) if self.scale_embeddings else 1.0


@dataclass(frozen=True, kw_only=True)
class PositionOptions(EmbeddingOptions):
    """Options of the positions.

    At position t, `x_t = f E y_t + p_t`, where p_t is sinusoidal or learned, t itself in every feature (integer), or
    `min(t / (max_length − 1), 1)` (integer_normalized). With concatenated positions, `x_t = W [f E y_t; p_t] + b`, or
    `[f E y_t; p_t]` without `concat_projection`. Vectors of relative positions are initialised as
    `a ~ N(0, relative_stddev²)`.
    """

    group: ClassVar[str] = "positions"
    short_names: ClassVar[dict[str, str]] = {"kind": "positions", "dim": "position_dim"}

    positions: str = choice(
        "sinusoidal",
        POSITIONS,
        "Kind of positions. At the embeddings: sinusoidal (fairseq_sinusoidal as in fairseq) or learned, which are "
        "added; concat (sinusoids) or learned_concat, which are concatenated; and for teaching integer, which adds "
        "the position p to every feature, or integer_normalized, p / (max_length - 1). In self-attention: rotary, xpos "
        "(in an encoder the same as rotary), alibi (in an encoder with twice the slope on one side), relative (Shaw) "
        "or t5. In both: learned_t5, as in MPNet. With none, an encoder ignores the order of its inputs.",
    )
    concat_projection: bool = flag(
        True,
        "Whether a linear map W [x; p] + b projects concatenated positions to size D. Otherwise all later activations "
        "have size D + P, and tied embeddings, of size D, cannot compute the logits.",
    )
    position_dim: int = count(0, "Size of concatenated positions, P; 0: that of the embeddings, D.")
    max_distance: int = count(
        0, "Distance from which relative, t5 and learned_t5 treat all keys alike; 0: that of the papers, 16 and 128."
    )
    max_wavelength: float = number(10000.0, "w of rotary and xpos positions, the base of their angles.", above=1)
    rotary_fraction: float = number(
        1.0, "Fraction of each head that rotary and xpos rotate; GPT-NeoX rotates a quarter.", above=0, maximum=1
    )
    rope_scaling: str = choice(
        "none",
        ROPE_SCALINGS,
        "How the rotations of rotary and xpos are slowed down for texts longer than those of training, see "
        "`RotaryPositions`.",
    )
    rope_factor: float = number(1.0, "s, the factor by which texts are longer than in training.", minimum=1)
    rope_original_length: int = count(
        0, "Length of texts in the original training, for yarn and llama3; 0: `max_length` divided by s."
    )
    relative_stddev: float = number(
        0.0,
        "Initial standard deviation of the vectors of relative; 0: that of Glorot. Keys in pre-norm blocks have "
        "about 1, so much smaller vectors have no effect.",
        minimum=0,
    )
    alibi_slope: float = number(
        0.0,
        "Slope of alibi in the first head of an encoder, with the others in proportion; 0: that of the paper, which "
        "for a single head is only 1/256.",
        minimum=0,
    )

    @property
    def hidden_dim(self) -> int:
        """Size of the activations: D, or D + P with concatenated positions without a projection."""
        return self.model_dim if self.concat_projection else self.model_dim + (self.position_dim or self.model_dim)

    def check(self) -> None:
        super().check()
        self._check_concatenated()
        self._check_rope()
        if self.positions in T5_POSITIONS and 0 < self.max_distance <= T5_EXACT:
            raise InputError(
                f"`max_distance` must be above {T5_EXACT} with positions={self.positions!r}, which distinguish all "
                f"smaller distances. Received: max_distance={self.max_distance}."
            )

    def rope_parameters(self, max_length: int) -> dict[str, Any] | None:
        """Returns the `scaling` of `RotaryPositions` for a model of this `max_length`, or `None`."""
        if self.rope_scaling == "none":
            return None
        parameters: dict[str, Any] = {"rope_type": self.rope_scaling, "factor": self.rope_factor}
        if self.rope_scaling in ("yarn", "llama3"):
            length = self.rope_original_length or max(1, round(max_length / self.rope_factor))
            parameters["original_max_position_embeddings"] = length
        if self.rope_scaling == "llama3":
            parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # those of all Llama 3 models
        return parameters

    def untied_only(self, name: str, untied: str) -> InputError:
        """Returns the error for tied embeddings (option `name`) that are smaller than the activations."""
        return InputError(
            f"`{name}` must be {untied} with `concat_projection=false`: logits are computed from activations of size "
            f"D + P = {self.hidden_dim}, embeddings have size D = {self.model_dim}. "
            f"Received: {name}={getattr(self, name)}."
        )

    def _check_only_for(self, kinds: tuple[str, ...], **defaults: object) -> None:
        """Checks that these options have their defaults unless `positions` is one of `kinds`."""
        for name, default in defaults.items():
            if self.positions not in kinds and getattr(self, name) != default:
                raise InputError(
                    f"`{name}` requires positions={' or '.join(kinds)}. "
                    f"Received: {name}={getattr(self, name)}, positions={self.positions!r}."
                )

    def _check_rope(self) -> None:
        self._check_only_for(ROTARY_POSITIONS, rotary_fraction=1.0, rope_scaling="none")
        for name, default in (("rope_factor", 1.0), ("rope_original_length", 0)):
            if self.rope_scaling == "none" and getattr(self, name) != default:
                raise InputError(
                    f"`{name}` requires a `rope_scaling`: {', '.join(ROPE_SCALINGS[1:])}. "
                    f"Received: {name}={getattr(self, name)}, rope_scaling='none'."
                )

    def _check_concatenated(self) -> None:
        self._check_only_for(CONCATENATED, concat_projection=True, position_dim=0)
        if self.position_dim % 2 and self.positions == "concat":
            raise InputError(
                f"`position_dim` must be even with positions='concat', pairs of sine and cosine. "
                f"Received: position_dim={self.position_dim}."
            )


@dataclass(frozen=True, kw_only=True)
class LayerPositionOptions(PositionOptions):
    """Options of the positions of several layers."""

    group: ClassVar[str] = "positions"
    short_names: ClassVar[dict[str, str]] = {"share": "share_positions"}

    share_positions: bool = flag(
        True, "Whether all layers share the biases of t5 and learned_t5; in UMT5 each layer has its own."
    )

    def check(self) -> None:
        super().check()
        self._check_only_for(T5_POSITIONS, share_positions=True)
