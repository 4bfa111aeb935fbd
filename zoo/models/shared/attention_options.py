"""Options of the attention of a Transformer. Without Keras, because the catalog imports them."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.errors import InputError
from zoo.models.shared.position_options import (
    INPUT_POSITIONS,
    POSITIONS,
    ROTARY_POSITIONS,
    SCORE_POSITIONS,
    PositionOptions,
)
from zoo.options import Options, choice, count, flag, number, rate, size, text
from zoo.synonyms import SCORES, unique

# Kinds of self-attention.
VARIANTS = ("talking_heads", "differential", "latent")  # softmax attention to all positions, in another form
HALVED = ("differential", "latent")  # rotary positions rotate only a part of each head
CONVOLUTIONS = ("lightweight_conv", "dynamic_conv")
SELF_ATTENTIONS = ("full", "local", "block_local", *VARIANTS, *CONVOLUTIONS, "linear", "performer")
MEANS = ("average", "ssru")
CAUSAL_SELF_ATTENTIONS = ("retention", "gated_linear", "delta_rule", *MEANS)  # for language models and decoders
WITH_GATES = ("retention", "gated_linear")  # always with an output gate
WITHOUT_SCORES = ("linear", "performer", *CONVOLUTIONS, *CAUSAL_SELF_ATTENTIONS)
WITHOUT_HEADS = (*CONVOLUTIONS, *MEANS)  # without heads of queries and keys
WITH_VISIBILITY = ("full", *VARIANTS)

# Each visibility, and the options of its sizes.
VISIBILITY_SIZES = {
    "full": (),
    "window": (),
    "dilated": ("dilation",),
    "global": ("global_tokens",),
    "block_sparse": ("block_size", "summary_tokens"),
    "top_blocks": ("block_size", "num_blocks"),
}
VISIBILITIES = tuple(VISIBILITY_SIZES)

# Scores and positions that require queries and keys of the same size.
OF_EQUAL_SIZES = {"score": ("dot", "scaled_dot", "cosine"), "positions": ("rotary", "xpos", "relative")}
ATTENTION_NORMALIZATIONS = ("softmax", "sink", "off_by_one", "sigmoid", "sparsemax", "entmax15")
HEAD_SIZES = ("query_dim", "key_dim", "value_dim")


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(PositionOptions):
    """Options of one attention layer.

    `head_i = softmax(score(X W_Q⁽ⁱ⁾, Y W_K⁽ⁱ⁾)) Y W_V⁽ⁱ⁾`, with matrices of D × p_q (`query_dim`), D × p_k (`key_dim`)
    and D × p_v (`value_dim`). The result is `[head_1; …; head_N] W_O + b` of size p_o (`output_dim`), or without
    `output_projection` the concatenated heads.
    """

    group: ClassVar[str] = "attention"
    short_names: ClassVar[dict[str, str]] = {"dropout": "attention_dropout"}

    score: str = text(
        "scaled_dot",
        "Score of queries and keys in all attention layers, a name for `zoo.layers.scores.get_score`. cosine has a "
        "learned temperature with the initial value 0.1, because cosines alone are too similar.",
        synonyms=unique(SCORES),
    )
    attention_dropout: float = rate(0.0, "Rate of dropout on the attention weights; linear attention has none.")
    query_dim: int = count(0, "Size of a head for queries, p_q; 0: `key_dim`. Dot products require equal sizes.")
    key_dim: int = count(0, "Size of a head for keys, p_k; 0: that of the activations divided by `num_heads`.")
    value_dim: int = count(0, "Size of a head for values, p_v; 0: `key_dim`.")
    output_dim: int = count(
        0,
        "Size of the result of an attention layer, p_o. It is added to the activations, so it must have their size; "
        "0: that size.",
    )
    output_projection: bool = flag(
        True, "Whether W_o projects the concatenated heads; otherwise N · p_v must be the size of the activations."
    )


@dataclass(frozen=True, kw_only=True)
class SelfAttentionOptions(AttentionOptions):
    """Options of the attention of a stack of blocks; without `share_score`, head i has its own `score_i`."""

    group: ClassVar[str] = "attention"
    short_names: ClassVar[dict[str, str]] = {
        **AttentionOptions.short_names,
        "kind": "self_attention",
        "normalization": "attention_normalization",
    }

    num_heads: int = size(
        8, "Heads of each attention layer, N; a divisor of the size of the activations, unless `key_dim` is set."
    )
    num_key_value_heads: int = count(
        0, "Heads of keys and values, each shared by a group of query heads; 0: as many as `num_heads`."
    )
    share_score: bool = flag(
        True, "Whether all heads of an attention layer share one score; otherwise each head has its own weights."
    )
    qk_norm: bool = flag(
        False,
        "Whether queries and keys of each head are normalised (RMS norm with learned scales) in all attention layers.",
    )
    logit_softcap: float = number(
        0.0, "c, the limit of all attention scores: c · tanh(score / c); 0 for no limit.", minimum=0
    )
    output_gate: bool = flag(
        False, "Whether the heads of all attention layers have a gate before W_o, concat(heads) ⊙ sigmoid(X W_g)."
    )
    attention_normalization: str = choice(
        "softmax",
        ATTENTION_NORMALIZATIONS,
        "Normalisation of the scores in all attention layers: softmax; softmax with a learned sink (sink) or one of 0 "
        "(off_by_one); sigmoid; or a sparse one, sparsemax or entmax15.",
    )
    self_attention: str = choice(
        "full",
        SELF_ATTENTIONS,
        "Kind of self-attention: full; full with mixed heads (talking_heads), as a difference of softmaxes "
        "(differential) or with keys and values from one small vector (latent); local, a window around each position; "
        "block_local, the block of each position; at linear cost, with a feature map (linear) or random features "
        "(performer); or a convolution whose weights are learned (lightweight_conv) or predicted at each position "
        "(dynamic_conv).",
    )
    kernel_widths: str = text(
        "3,7,15,31", "Width of the convolution of each block, separated by commas; all other blocks have the last."
    )
    latent_dim: int = count(
        0, "Size of the vectors of latent attention, C; 0: four times that of a head, as in the paper."
    )
    num_features: int = size(128, "Number of random features of performer.")

    def kernel_width(self, block: int) -> int:
        """Returns the width of the convolution of a block, counted from 0."""
        widths = [int(width) for width in self.kernel_widths.split(",")]
        return widths[min(block, len(widths) - 1)]

    @property
    def head_dim(self) -> int:
        """Size of a head for keys, p_k."""
        return self.key_dim or self.hidden_dim // self.num_heads

    @property
    def rotated_dim(self) -> int:
        """Number of features of a head that rotary positions rotate."""
        return 2 * int(self.rotary_fraction * self.head_dim / 2)

    def check(self) -> None:
        super().check()
        self._check_heads()
        self._check_head_sizes()
        if not all(width.strip().isdecimal() and int(width) > 0 for width in self.kernel_widths.split(",")):
            raise InputError(
                "`kernel_widths` must be positive integers separated by commas, such as 3,7,15. "
                f"Received: kernel_widths={self.kernel_widths!r}."
            )

    def _check_heads(self) -> None:
        received = f"Received: model_dim={self.model_dim}, num_heads={self.num_heads}"
        if self.model_dim % 2 or (not self.key_dim and self.hidden_dim % self.num_heads):
            if self.hidden_dim == self.model_dim:
                raise InputError(f"`model_dim` must be even and a multiple of `num_heads`. {received}.")
            raise InputError(
                "`model_dim` must be even, and with `concat_projection=false` the sum of `model_dim` and "
                f"`position_dim` must be a multiple of `num_heads`. {received}, position_dim={self.position_dim}."
            )
        if self.num_key_value_heads and self.num_heads % self.num_key_value_heads:
            raise InputError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: num_heads={self.num_heads}, num_key_value_heads={self.num_key_value_heads}."
            )

    def _check_head_sizes(self) -> None:
        query_dim, value_dim = self.query_dim or self.head_dim, self.value_dim or self.head_dim
        for name, equal in OF_EQUAL_SIZES.items():
            if query_dim != self.head_dim and getattr(self, name) in equal:
                raise InputError(
                    f"`query_dim` must equal `key_dim` with {name}={getattr(self, name)!r}. "
                    f"Received: query_dim={query_dim}, key_dim={self.head_dim}."
                )
        size = f"the size of the activations, {self.hidden_dim}, to which the result of attention is added"
        if self.output_dim not in (0, self.hidden_dim):
            raise InputError(f"`output_dim` must be {size}. Received: output_dim={self.output_dim}.")
        if not self.output_projection and self.num_heads * value_dim != self.hidden_dim:
            raise InputError(
                f"Without `output_projection`, num_heads · value_dim must be {size}. "
                f"Received: num_heads={self.num_heads}, value_dim={value_dim}."
            )

    def check_kind(self, name: str, kind: str) -> None:
        """Checks that the other options suit a kind of self-attention, the value of the option `name`.

        Raises:
            InputError: If they do not.
        """
        if kind in CONVOLUTIONS and self.hidden_dim % self.num_heads:
            raise InputError(
                f"`num_heads` must divide the size of the activations, {self.hidden_dim}, with {name}={kind!r}. "
                f"Received: num_heads={self.num_heads}."
            )
        defaults = SelfAttentionOptions.declared()
        conflicts = [option for option in unsupported(kind) if getattr(self, option) != defaults[option].default]
        if self.positions not in positions_of(kind):
            conflicts.append("positions")
        if self.score == "location" and kind != "full":
            conflicts.append("score")
        if conflicts:
            option = conflicts[0]
            raise InputError(
                f"`{option}` cannot be combined with {name}={kind!r}: set one of them to its default. "
                f"Received: {option}={getattr(self, option)!r}."
            )


def unsupported(kind: str) -> list[str]:
    """Returns the options that a kind of self-attention does not support."""
    names = [] if kind == "full" else ["num_key_value_heads"]
    if kind in HALVED:
        names += ["query_dim", "share_score"]
    if kind == "latent":
        names += ["qk_norm", "score"]
    if kind in WITHOUT_SCORES:
        names += ["score", "share_score", "logit_softcap", "attention_normalization"]
        names += [] if kind in CONVOLUTIONS else ["attention_dropout"]
    if kind in WITHOUT_HEADS:
        names += ["qk_norm", "output_gate", "output_projection", *HEAD_SIZES]
    return [*names, "output_gate"] if kind in WITH_GATES else names


def positions_of(kind: str) -> tuple[str, ...]:
    """Returns the positions that a kind of self-attention supports."""
    if kind == "latent":
        return ROTARY_POSITIONS
    if kind in WITHOUT_HEADS:
        return (*INPUT_POSITIONS, "none")
    if kind in WITHOUT_SCORES:
        return tuple(name for name in POSITIONS if name not in (*SCORE_POSITIONS, "xpos"))
    return POSITIONS


@dataclass(frozen=True, kw_only=True)
class VisibilityOptions(Options):
    """Options of the mask of self-attention."""

    group: ClassVar[str] = "visibility"
    short_names: ClassVar[dict[str, str]] = {"kind": "visibility"}

    visibility: str = choice(
        "full",
        VISIBILITIES,
        f"Positions that self-attention attends to, if its kind is {', '.join(WITH_VISIBILITY[:-1])} or "
        f"{WITH_VISIBILITY[-1]}: all; window: those up to `window` away; dilated: every `dilation`-th, `window` on "
        "each side; global: a window and the first `global_tokens`, which attend to all (Longformer); block_sparse: "
        "those of the same block and the last `summary_tokens` of each block (Sparse Transformer); top_blocks: those "
        "of the `num_blocks` blocks with the highest scores, including its own (MoBA). With window or global, the "
        "caches of language models and decoders contain only these positions; the first tokens are attention sinks.",
    )
    window: int = size(
        8, "Positions on each side in local attention and `visibility`; the size of a block in block_local attention."
    )
    dilation: int = size(2, "Step between the positions of dilated.")
    global_tokens: int = size(1, "With global, number of first positions that attend to all and to which all attend.")
    block_size: int = size(64, "Size of the blocks of block_sparse and top_blocks.")
    summary_tokens: int = size(8, "With block_sparse, number of positions of each block to which all attend.")
    num_blocks: int = size(4, "With top_blocks, number of blocks to which a position attends, including its own.")

    def check_visibility(self, kinds: dict[str, tuple[str, str]]) -> None:
        """Checks that visibilities suit the kinds of self-attention, and that no unused size is set.

        Args:
            kinds: Kind of self-attention and visibility of each stack, by the name of the option of the visibility.

        Raises:
            InputError: If they do not.
        """
        for name, (kind, visibility) in kinds.items():
            if visibility != "full" and kind not in WITH_VISIBILITY:
                raise InputError(
                    f"`{name}` must be full with {kind} self-attention, which determines its own mask. "
                    f"Received: {name}={visibility!r}."
                )
        used = {name for _, visibility in kinds.values() for name in VISIBILITY_SIZES[visibility]}
        for name in dict.fromkeys(name for sizes in VISIBILITY_SIZES.values() for name in sizes):
            if name not in used and getattr(self, name) != type(self).declared()[name].default:
                required = " or ".join(visibility for visibility, sizes in VISIBILITY_SIZES.items() if name in sizes)
                raise InputError(f"`{name}` requires visibility={required}. Received: {name}={getattr(self, name)}.")
        if "summary_tokens" in used and self.summary_tokens > self.block_size:
            raise InputError(
                f"`summary_tokens` must be at most `block_size`, {self.block_size}. "
                f"Received: summary_tokens={self.summary_tokens}."
            )
