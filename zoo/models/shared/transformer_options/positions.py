"""Options of the positions of a Transformer, at the embeddings or in attention."""

from dataclasses import dataclass
from typing import Any, ClassVar

from zoo.errors import InputError
from zoo.models.shared.transformer_options.embeddings import EmbeddingOptions
from zoo.options import choice, count, flag, number

CONCATENATED = ("concat", "learned_concat")
INPUT_POSITIONS = ("sinusoidal", "fairseq_sinusoidal", "learned", *CONCATENATED, "integer", "integer_normalized")
# Biases for distances; the second adds learned positions to the embeddings as well.
T5_POSITIONS = ("t5", "learned_t5")
SCORE_POSITIONS = ("alibi", "relative", *T5_POSITIONS)
POSITIONS = (*INPUT_POSITIONS, "rotary", "xpos", *SCORE_POSITIONS, "none")
ROTARY_POSITIONS = ("rotary", "xpos")
ROPE_SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")
# Distances that the papers distinguish: Shaw et al. 2018, section 4.1; Raffel et al. 2020, section 2.1.
MAX_DISTANCES = {"relative": 16, "t5": 128, "learned_t5": 128}
# Of the 32 buckets of T5, a decoder has one for each distance below this.
T5_EXACT = 16

MAX_LENGTH = "Rows of a table of learned positions; in longer texts all positions after the last row share it."


@dataclass(frozen=True, kw_only=True)
class PositionOptions(EmbeddingOptions):
    """Options of the positions.

    At place t, `x_t = f E y_t + p_t`; p_t is sinusoidal or learned, t itself in every feature (integer), or
    `min(t / (max_length − 1), 1)` (integer_normalized). Concatenated positions give `W [f E y_t; p_t] + b`, without
    `concat_projection` `[f E y_t; p_t]`. Relative positions begin as `a ~ N(0, relative_stddev²)`.
    """

    group: ClassVar[str] = "positions"
    short_names: ClassVar[dict[str, str]] = {"kind": "positions", "dim": "position_dim"}

    positions: str = choice(
        "sinusoidal",
        POSITIONS,
        "At the embeddings sinusoidal (fairseq_sinusoidal, as fairseq counts them) or learned, which are added, or "
        "concat (sinusoids) or learned_concat, which are put beside them; for study integer, which adds the position p "
        "itself to every feature, or integer_normalized, p / (max_length - 1). In self-attention rotary, xpos (in an "
        "encoder as rotary), alibi (in an encoder one side counts double), relative (Shaw) or t5; in both learned_t5, "
        "as in MPNet. With none, an encoder knows no order.",
    )
    concat_projection: bool = flag(
        True,
        "Whether a linear map leads from concatenated positions back to D, W [x; p] + b; if not, all that follows has "
        "the size D + P, and tied embeddings, of size D, cannot give the logits.",
    )
    position_dim: int = count(0, "Size of concatenated positions, P; 0: that of the embeddings, D.")
    max_distance: int = count(
        0, "Distance from which on relative, t5 and learned_t5 treat all keys alike; 0: that of the papers, 16 and 128."
    )
    max_wavelength: float = number(10000.0, "w of rotary and xpos positions, the base of their angles.", above=1)
    rotary_fraction: float = number(
        1.0, "Part of each head that rotary and xpos rotate, as GPT-NeoX does a quarter of it.", above=0, maximum=1
    )
    rope_scaling: str = choice(
        "none",
        ROPE_SCALINGS,
        "How rotary and xpos turn more slowly, for texts longer than those of training, see `RotaryPositions`.",
    )
    rope_factor: float = number(1.0, "s, how many times longer texts have become.", minimum=1)
    rope_original_length: int = count(
        0, "Length of the texts before that, which yarn and llama3 ask for; 0: `max_length` divided by s."
    )
    relative_stddev: float = number(
        0.0,
        "Standard deviation with which the vectors of relative begin; 0 for Glorot's. Keys in pre-norm blocks have "
        "about 1, among which much smaller vectors are lost.",
        minimum=0,
    )
    alibi_slope: float = number(
        0.0,
        "Slope of the first head of alibi in an encoder, with the others in proportion; 0 for the paper's, which is "
        "next to nothing for a single head: 1/256.",
        minimum=0,
    )

    @property
    def hidden_dim(self) -> int:
        """Size of the activations: D, or D + P with concatenated positions that no map leads back."""
        return self.model_dim if self.concat_projection else self.model_dim + (self.position_dim or self.model_dim)

    def check(self) -> None:
        super().check()
        self._check_concatenated()
        self._check_rope()
        if self.positions in T5_POSITIONS and 0 < self.max_distance <= T5_EXACT:
            raise InputError(
                f"`max_distance` must be above {T5_EXACT} with positions={self.positions!r}, which keep nearer "
                f"ones apart. Received: max_distance={self.max_distance}."
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
            parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # of all models of that name
        return parameters

    def untied_only(self, name: str, untied: str) -> InputError:
        """Returns the error of tied embeddings, the option `name`, where the activations are larger than they are."""
        return InputError(
            f"`{name}` must be {untied} with `concat_projection=false`: logits come from activations of size D + P = "
            f"{self.hidden_dim}, embeddings have the size D = {self.model_dim}. Received: {name}={getattr(self, name)}."
        )

    def _check_rope(self) -> None:
        if self.rotary_fraction != 1.0 and self.positions not in ROTARY_POSITIONS:
            raise InputError(
                f"`rotary_fraction` is for the positions {' and '.join(ROTARY_POSITIONS)}. "
                f"Received: rotary_fraction={self.rotary_fraction}, positions={self.positions!r}."
            )
        if self.rope_scaling != "none" and self.positions not in ROTARY_POSITIONS:
            raise InputError(
                f"`rope_scaling` is for the positions {' and '.join(ROTARY_POSITIONS)}. "
                f"Received: rope_scaling={self.rope_scaling!r}, positions={self.positions!r}."
            )
        for name, default in (("rope_factor", 1.0), ("rope_original_length", 0)):
            if self.rope_scaling == "none" and getattr(self, name) != default:
                raise InputError(
                    f"`{name}` needs a `rope_scaling`: {', '.join(ROPE_SCALINGS[1:])}. "
                    f"Received: {name}={getattr(self, name)}, rope_scaling='none'."
                )

    def _check_concatenated(self) -> None:
        if self.positions not in CONCATENATED:
            for name, default in (("concat_projection", True), ("position_dim", 0)):
                if getattr(self, name) != default:
                    raise InputError(
                        f"`{name}` is for the positions {' and '.join(CONCATENATED)}. "
                        f"Received: {name}={getattr(self, name)}, positions={self.positions!r}."
                    )
        if self.position_dim % 2 and self.positions == "concat":
            raise InputError(
                f"`position_dim` must be even with positions='concat', pairs of sine and cosine. "
                f"Received: position_dim={self.position_dim}."
            )
