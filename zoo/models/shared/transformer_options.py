"""The options that the Transformers of all tasks share, and which of them go together.

No Keras here, so that the catalog can read the defaults; `zoo.models.shared.transformer_layers` makes layers of them.
"""

from dataclasses import dataclass

from zoo.errors import InputError
from zoo.options import Options, choice, count, flag, rate, size, text

SELF_ATTENTIONS = ("full", "local", "block_local", "linear", "performer")
# They have sums in place of weights: nothing to score, to drop or to add a bias to.
WITHOUT_SCORES = ("linear", "performer")
INPUT_POSITIONS = ("sinusoidal", "learned", "concat", "learned_concat")
SCORE_POSITIONS = ("alibi", "relative", "t5")
POSITIONS = (*INPUT_POSITIONS, "rotary", *SCORE_POSITIONS, "none")
NORMALIZATIONS = ("layer_norm", "rms_norm")
# Distances that the papers distinguish: Shaw et al. 2018, section 4.1; Raffel et al. 2020, section 2.1.
MAX_DISTANCES = {"relative": 16, "t5": 128}
# Of the 32 buckets of T5, a decoder has one for each distance below this.
T5_EXACT = 16

MAX_LENGTH = "Rows of a table of learned positions; in longer texts all positions after the last row share it."


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(Options):
    """Options of one attention layer of a Transformer, and of the positions that it sees."""

    model_dim: int = size(512, "Size of the activations, D.")
    dropout: float = rate(0.1, "Rate of dropout on embeddings and on the result of each part of a block.")
    attention_dropout: float = rate(0.0, "Rate of dropout on the attention weights; none with linear attention.")
    score: str = text(
        "scaled_dot",
        "How queries and keys are compared, in all attention: a name that `zoo.layers.scores.get_score` knows. "
        "cosine has a learned temperature, which begins at 0.1, as cosines alone cannot separate keys well.",
    )
    positions: str = choice(
        "sinusoidal",
        POSITIONS,
        "At the embeddings sinusoidal or learned, which are added, or concat (sinusoids) or learned_concat, which are "
        "put beside them, followed by a linear map back to D. In self-attention rotary, alibi (in an encoder one side "
        "counts double), relative (Shaw) or t5. With none, an encoder knows no order.",
    )
    scale_embeddings: bool = flag(
        True, "Whether embeddings are multiplied by √D before positions, as in the paper; else by 1: E + P."
    )
    max_distance: int = count(
        0, "Distance from which on relative and t5 treat all keys alike; 0: that of the papers, 16 and 128."
    )

    @property
    def embedding_factor(self) -> float:
        """What embeddings are multiplied by: √D or 1."""
        return float(self.model_dim**0.5) if self.scale_embeddings else 1.0

    def check(self) -> None:
        if self.positions == "t5" and 0 < self.max_distance <= T5_EXACT:
            raise InputError(
                f"`max_distance` must be above {T5_EXACT} with positions='t5', which keep nearer ones apart. "
                f"Received: max_distance={self.max_distance}."
            )


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(AttentionOptions):
    """Options of a stack of Transformer blocks."""

    num_layers: int = size(6, "Number of blocks; in an encoder-decoder, of each side.")
    intermediate_dim: int = size(2048, "Size inside the feed-forward networks.")
    num_heads: int = size(8, "Heads of each attention, N; divides `model_dim`.")
    feed_forward_dropout: float = rate(0.0, "Rate of dropout inside the feed-forward networks.")
    normalize_first: bool = flag(False, "Whether blocks normalise before each part (pre-norm) and not after it.")
    normalization: str = choice("layer_norm", NORMALIZATIONS, "Kind of normalisation.")
    activation: str = text("relu", "Nonlinearity of the feed-forward networks, as Keras knows it by name.")
    gated: bool = flag(False, "Whether the feed-forward networks have a gate; SwiGLU has the activation silu as well.")
    use_bias: bool = flag(True, "Whether attention and feed-forward networks have biases.")
    self_attention: str = choice(
        "full",
        SELF_ATTENTIONS,
        "What a position attends to in its own sequence: everything; local: a window around it; block_local: its "
        "block; or everything at linear cost, by a feature map (linear) or random features (performer).",
    )
    window: int = size(8, "How far local attention sees on each side; the size of a block of block_local attention.")
    num_features: int = size(128, "Number of random features of performer.")
    num_key_value_heads: int = count(
        0, "Heads that keys and values have, shared by groups of heads; 0: as many as `num_heads`."
    )

    @property
    def head_dim(self) -> int:
        """Size of a head, H."""
        return self.model_dim // self.num_heads

    def check(self) -> None:
        super().check()
        self._check_heads()
        self._check_self_attention()

    def _check_heads(self) -> None:
        sizes = f"Received: model_dim={self.model_dim}, num_heads={self.num_heads}."
        if self.model_dim % self.num_heads or self.model_dim % 2:
            raise InputError(f"`model_dim` must be even and a multiple of `num_heads`. {sizes}")
        if self.positions == "rotary" and self.head_dim < 2:
            raise InputError(f"`positions='rotary'` rotates pairs of features: heads need at least two. {sizes}")
        if self.num_key_value_heads and self.num_heads % self.num_key_value_heads:
            raise InputError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: num_heads={self.num_heads}, num_key_value_heads={self.num_key_value_heads}."
            )

    def _check_self_attention(self) -> None:
        if self.self_attention == "full":
            return
        refused: dict[str, object] = {"num_key_value_heads": self.num_key_value_heads}
        if self.score == "location":
            refused["score"] = self.score
        if self.self_attention in WITHOUT_SCORES:
            refused["attention_dropout"] = self.attention_dropout
            refused |= {} if self.score == "scaled_dot" else {"score": self.score}
            refused |= {"positions": self.positions} if self.positions in SCORE_POSITIONS else {}
        for name, value in refused.items():
            if value:
                raise InputError(
                    f"`{name}` does not go together with self_attention={self.self_attention!r}: leave one of them "
                    f"at its default. Received: {name}={value!r}."
                )
