"""Options of the attention of a Transformer."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.errors import InputError
from zoo.models.shared.transformer_options.positions import (
    ROTARY_POSITIONS,
    SCORE_POSITIONS,
    PositionOptions,
)
from zoo.models.shared.transformer_options.variants import (
    CONVOLUTIONS,
    HALVED,
    SELF_ATTENTION_OPTIONS,
    SELF_ATTENTIONS,
    WITH_GATES,
    WITHOUT_HEADS,
    WITHOUT_SCORES,
)
from zoo.options import choice, count, flag, number, rate, size, text
from zoo.synonyms import SCORES, unique

# Their queries and keys must have one size.
OF_EQUAL_SIZES = {"score": ("dot", "scaled_dot", "cosine"), "positions": ("rotary", "xpos", "relative")}
ATTENTION_NORMALIZATIONS = ("softmax", "sink", "off_by_one", "sigmoid", "sparsemax", "entmax15")
HEAD_SIZES = ("query_dim", "key_dim", "value_dim")


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(PositionOptions):
    """Options of one attention layer.

    `head_i = softmax(score(X W_Q⁽ⁱ⁾, Y W_K⁽ⁱ⁾)) Y W_V⁽ⁱ⁾`, with matrices of D × p_q (`query_dim`), D × p_k (`key_dim`)
    and D × p_v (`value_dim`); then `[head_1; …; head_N] W_O + b`, of size p_o (`output_dim`), or without
    `output_projection` the heads as they are.
    """

    group: ClassVar[str] = "attention"
    short_names: ClassVar[dict[str, str]] = {"dropout": "attention_dropout"}

    score: str = text(
        "scaled_dot",
        "How queries and keys are compared, in all attention: a name that `zoo.layers.scores.get_score` knows. "
        "cosine has a learned temperature, which begins at 0.1, as cosines alone cannot separate keys well.",
        synonyms=unique(SCORES),
    )
    attention_dropout: float = rate(0.0, "Rate of dropout on the attention weights; none with linear attention.")
    query_dim: int = count(0, "Size of a head for queries, p_q; 0: `key_dim`. Dot products need equal ones.")
    key_dim: int = count(0, "Size of a head for keys, p_k; 0: that of the activations, divided by the heads.")
    value_dim: int = count(0, "Size of a head for values, p_v; 0: `key_dim`.")
    output_dim: int = count(
        0,
        "Size of what an attention returns, p_o; since it is added to its inputs, only the size of the activations "
        "fits. 0: that.",
    )
    output_projection: bool = flag(
        True, "Whether W_o follows the concatenated heads; if not, N · p_v must be the size of the activations."
    )


@dataclass(frozen=True, kw_only=True)
class SelfAttentionOptions(AttentionOptions):
    """Options of the attention of a stack of blocks; without `share_score`, head i has a `score_i` of its own."""

    group: ClassVar[str] = "attention"
    short_names: ClassVar[dict[str, str]] = {
        **AttentionOptions.short_names,
        "kind": "self_attention",
        "normalization": "attention_normalization",
    }

    num_heads: int = size(
        8, "Heads of each attention, N; divides the size of the activations, unless `key_dim` is set."
    )
    num_key_value_heads: int = count(
        0, "Heads that keys and values have, shared by groups of heads; 0: as many as `num_heads`."
    )
    share_score: bool = flag(
        True, "Whether all heads of an attention compare by one score function; if not, each has weights of its own."
    )
    qk_norm: bool = flag(
        False, "Whether queries and keys of each head are normalised (RMS norm with learned scales) in all attention."
    )
    logit_softcap: float = number(
        0.0, "c, which no attention score exceeds: c · tanh(score / c); 0 for no limit.", minimum=0
    )
    output_gate: bool = flag(
        False, "Whether the heads of all attention have a gate before W_o, concat(heads) ⊙ sigmoid(X W_g)."
    )
    attention_normalization: str = choice(
        "softmax",
        ATTENTION_NORMALIZATIONS,
        "What makes weights of scores in all attention: a softmax, also with a sink that is learned, or that is 0 "
        "(off_by_one); sigmoid; or sparse, sparsemax and entmax15.",
    )
    self_attention: str = choice(
        "full",
        SELF_ATTENTIONS,
        "What a position attends to in its own sequence: everything, also with heads that mix (talking_heads), as a "
        "difference of softmaxes (differential) or with keys and values from one small vector (latent); local: a "
        "window around it; block_local: its block; everything at linear cost, by a feature map (linear) or random "
        "features (performer); or near positions, summed with weights that are learned (lightweight_conv) or that each "
        "predicts (dynamic_conv).",
    )
    kernel_widths: str = text(
        "3,7,15,31", "Positions that each block's convolution sees, with commas; the last is for all other blocks."
    )
    latent_dim: int = count(
        0, "Size of the vectors of latent attention, C; 0: four times that of a head, as in the paper."
    )
    num_features: int = size(128, "Number of random features of performer.")

    def kernel_width(self, block: int) -> int:
        """Returns how many positions the convolution of a block sees, counted from 0."""
        widths = [int(width) for width in self.kernel_widths.split(",")]
        return widths[min(block, len(widths) - 1)]

    @property
    def head_dim(self) -> int:
        """Size of a head for keys, p_k."""
        return self.key_dim or self.hidden_dim // self.num_heads

    @property
    def rotated_dim(self) -> int:
        """How many features of a head rotary positions rotate."""
        return 2 * int(self.rotary_fraction * self.head_dim / 2)

    def check(self) -> None:
        super().check()
        self._check_heads()
        self._check_head_sizes()
        self.check_self_attention("self_attention")
        self._check_widths()

    def _check_widths(self) -> None:
        if not all(width.strip().isdecimal() and int(width) > 0 for width in self.kernel_widths.split(",")):
            raise InputError(
                "`kernel_widths` must be positive integers with commas between them, such as 3,7,15. "
                f"Received: kernel_widths={self.kernel_widths!r}."
            )

    def _check_heads(self) -> None:
        sizes = f"Received: model_dim={self.model_dim}, num_heads={self.num_heads}."
        if self.model_dim % 2 or (not self.key_dim and self.hidden_dim % self.num_heads):
            if self.hidden_dim == self.model_dim:
                raise InputError(f"`model_dim` must be even and a multiple of `num_heads`. {sizes}")
            raise InputError(
                "`model_dim` must be even, and with `concat_projection=false` the sum of `model_dim` and "
                f"`position_dim` a multiple of `num_heads`. {sizes[:-1]}, position_dim={self.position_dim}."
            )
        self._check_rotated(sizes)
        if self.num_key_value_heads and self.num_heads % self.num_key_value_heads:
            raise InputError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: num_heads={self.num_heads}, num_key_value_heads={self.num_key_value_heads}."
            )

    def _check_rotated(self, sizes: str) -> None:
        if self.positions not in ROTARY_POSITIONS:
            return
        least, kind = (2, f"positions={self.positions!r}")
        if self.rope_scaling == "ntk":
            least, kind = 4, "rope_scaling='ntk'"
        halved = [name for name in SELF_ATTENTION_OPTIONS if getattr(self, name, None) in HALVED]
        if halved:  # a part of each head is rotated
            least, kind = 2 * least, f"{halved[0]}={getattr(self, halved[0])!r}"
        if self.rotated_dim < least:
            sizes = f"Received: key_dim={self.key_dim}." if self.key_dim else sizes
            wanted = {2: "two", 4: "four", 8: "eight"}[least]
            raise InputError(f"`{kind}` rotates pairs of features: heads need at least {wanted}. {sizes}")

    def _check_head_sizes(self) -> None:
        query_dim, value_dim = self.query_dim or self.head_dim, self.value_dim or self.head_dim
        for name, equal in OF_EQUAL_SIZES.items():
            if query_dim != self.head_dim and getattr(self, name) in equal:
                raise InputError(
                    f"`query_dim` must equal `key_dim` with {name}={getattr(self, name)!r}. "
                    f"Received: query_dim={query_dim}, key_dim={self.head_dim}."
                )
        size = f"the size of the activations, {self.hidden_dim}, to which the result of an attention is added"
        if self.output_dim not in (0, self.hidden_dim):
            raise InputError(f"`output_dim` must be {size}. Received: output_dim={self.output_dim}.")
        if not self.output_projection and self.num_heads * value_dim != self.hidden_dim:
            raise InputError(
                f"Without `output_projection`, num_heads · value_dim must be {size}. "
                f"Received: num_heads={self.num_heads}, value_dim={value_dim}."
            )

    def check_self_attention(self, name: str) -> None:
        """Checks that what the option `name` puts in the place of self-attention goes with the others.

        Raises:
            InputError: If it does not.
        """
        kind = getattr(self, name)
        if kind == "full":
            return
        if kind in CONVOLUTIONS and self.hidden_dim % self.num_heads:
            raise InputError(
                f"`num_heads` must divide the size of the activations, {self.hidden_dim}, with {name}={kind!r}. "
                f"Received: num_heads={self.num_heads}."
            )
        refused: dict[str, object] = {"num_key_value_heads": self.num_key_value_heads}
        if self.score == "location":
            refused["score"] = self.score
        if kind in HALVED:
            refused |= {"query_dim": self.query_dim} | ({} if self.share_score else {"share_score": "false"})
        if kind == "latent":
            refused |= {"qk_norm": self.qk_norm} | ({} if self.score == "scaled_dot" else {"score": self.score})
            refused |= {} if self.positions in ROTARY_POSITIONS else {"positions": self.positions}
        if kind in WITHOUT_SCORES:
            droppable = kind in CONVOLUTIONS  # whose weights are dropped as those of attention are
            refused |= {} if droppable else {"attention_dropout": self.attention_dropout}
            refused["logit_softcap"] = self.logit_softcap
            plain = self.attention_normalization == "softmax"
            refused |= {} if plain else {"attention_normalization": self.attention_normalization}
            refused |= {} if self.score == "scaled_dot" else {"score": self.score}
            refused |= {} if self.share_score else {"share_score": "false"}
            refused |= {"output_gate": "true"} if self.output_gate and kind in WITH_GATES else {}
            if kind in WITHOUT_HEADS:
                refused |= {option: getattr(self, option) for option in ("qk_norm", "output_gate", *HEAD_SIZES)}
                refused |= {} if self.output_projection else {"output_projection": "false"}
                refused |= {"positions": self.positions} if self.positions == "rotary" else {}
            refused |= {"positions": self.positions} if self.positions in (*SCORE_POSITIONS, "xpos") else {}
        for refusing, value in refused.items():
            if value:
                raise InputError(
                    f"`{refusing}` does not go together with {name}={kind!r}: leave one of them "
                    f"at its default. Received: {refusing}={value!r}."
                )
