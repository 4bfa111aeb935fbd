"""The options that the Transformers of all tasks share, and which of them go together.

No Keras here, so that the catalog can read the defaults; `zoo.models.shared.transformer_layers` makes layers of them.
"""

from dataclasses import dataclass
from typing import Any

from zoo.errors import InputError
from zoo.options import Options, choice, count, flag, number, rate, size, text
from zoo.registry import Paper
from zoo.synonyms import SCORES, unique

# Softmaxes of everything, in another way.
VARIANTS = ("talking_heads", "differential", "latent")
HALVED = ("differential", "latent")
# They weigh near positions, and compare none.
CONVOLUTIONS = ("lightweight_conv", "dynamic_conv")
SELF_ATTENTIONS = ("full", "local", "block_local", *VARIANTS, *CONVOLUTIONS, "linear", "performer")
# They see what is before a position alone, by means of one size: for language models and decoders.
MEANS = ("average", "ssru")
CAUSAL_SELF_ATTENTIONS = ("retention", "gated_linear", "delta_rule", *MEANS)
# They have gates of their own.
WITH_GATES = ("retention", "gated_linear")
# They have sums in place of weights: nothing to score, to drop or to add a bias to.
WITHOUT_SCORES = ("linear", "performer", *CONVOLUTIONS, *CAUSAL_SELF_ATTENTIONS)
# They have no heads of queries and keys, to normalise, to rotate, to size or to gate.
WITHOUT_HEADS = (*CONVOLUTIONS, *MEANS)
CONCATENATED = ("concat", "learned_concat")
# What positions see in attention with weights of pairs, and the sizes that each of them has.
VISIBILITY_SIZES = {
    "full": (),
    "window": (),
    "dilated": ("dilation",),
    "global": ("global_tokens",),
    "block_sparse": ("block_size", "summary_tokens"),
    "top_blocks": ("block_size", "num_blocks"),
}
VISIBILITIES = tuple(VISIBILITY_SIZES)
WITH_VISIBILITY = ("full", *VARIANTS)
INPUT_POSITIONS = ("sinusoidal", "fairseq_sinusoidal", "learned", *CONCATENATED, "integer", "integer_normalized")
# Biases for distances; the second adds learned positions to the embeddings as well.
T5_POSITIONS = ("t5", "learned_t5")
SCORE_POSITIONS = ("alibi", "relative", *T5_POSITIONS)
POSITIONS = (*INPUT_POSITIONS, "rotary", "xpos", *SCORE_POSITIONS, "none")
# Their queries and keys must have one size.
OF_EQUAL_SIZES = {"score": ("dot", "scaled_dot", "cosine"), "positions": ("rotary", "xpos", "relative")}
ROTARY_POSITIONS = ("rotary", "xpos")
ROPE_SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")
NORMALIZATIONS = ("layer_norm", "rms_norm")
ATTENTION_NORMALIZATIONS = ("softmax", "sink", "off_by_one", "sigmoid", "sparsemax", "entmax15")
# Distances that the papers distinguish: Shaw et al. 2018, section 4.1; Raffel et al. 2020, section 2.1.
MAX_DISTANCES = {"relative": 16, "t5": 128, "learned_t5": 128}
# Of the 32 buckets of T5, a decoder has one for each distance below this.
T5_EXACT = 16

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

HEAD_SIZES = ("query_dim", "key_dim", "value_dim")

SELF_ATTENTION_OPTIONS = ("self_attention", "decoder_self_attention")

MAX_LENGTH = "Rows of a table of learned positions; in longer texts all positions after the last row share it."


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(Options):
    """Options of one attention layer of a Transformer, and of the positions that it sees.

    `head_i = softmax(score(X W_Q⁽ⁱ⁾, Y W_K⁽ⁱ⁾)) Y W_V⁽ⁱ⁾`, with matrices of D × p_q (`query_dim`), D × p_k (`key_dim`)
    and D × p_v (`value_dim`); then `[head_1; …; head_N] W_O + b`, of size p_o (`output_dim`), or without
    `output_projection` the heads as they are.

    At place t, `x_t = f E y_t + p_t`, where f is √D, without `scale_embeddings` 1; p_t is sinusoidal or learned, t
    itself in every feature (integer), or `min(t / (max_length − 1), 1)` (integer_normalized). Concatenated positions
    give `W [f E y_t; p_t] + b`, without `concat_projection` `[f E y_t; p_t]`. Relative positions begin as
    `a ~ N(0, relative_stddev²)`.
    """

    model_dim: int = size(512, "Size of the embeddings and of the activations, D.")
    dropout: float = rate(0.1, "Rate of dropout on embeddings and on the result of each part of a block.")
    attention_dropout: float = rate(0.0, "Rate of dropout on the attention weights; none with linear attention.")
    score: str = text(
        "scaled_dot",
        "How queries and keys are compared, in all attention: a name that `zoo.layers.scores.get_score` knows. "
        "cosine has a learned temperature, which begins at 0.1, as cosines alone cannot separate keys well.",
        synonyms=unique(SCORES),
    )
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
    scale_embeddings: bool = flag(
        True, "Whether embeddings are multiplied by √D before positions, as in the paper; else by 1: E + P."
    )
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

    @property
    def hidden_dim(self) -> int:
        """Size of the activations: D, or D + P with concatenated positions that no map leads back."""
        return self.model_dim if self.concat_projection else self.model_dim + (self.position_dim or self.model_dim)

    alibi_slope: float = number(
        0.0,
        "Slope of the first head of alibi in an encoder, with the others in proportion; 0 for the paper's, which is "
        "next to nothing for a single head: 1/256.",
        minimum=0,
    )

    @property
    def embedding_factor(self) -> float:
        """What embeddings are multiplied by: √D or 1."""
        return float(self.model_dim**0.5) if self.scale_embeddings else 1.0

    def check(self) -> None:
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


@dataclass(frozen=True, kw_only=True)
class TransformerOptions(AttentionOptions):
    """Options of a stack of Transformer blocks; without `share_score`, head i has a `score_i` of its own."""

    num_layers: int = size(6, "Number of blocks; in an encoder-decoder, of each side.")
    intermediate_dim: int = size(2048, "Size inside the feed-forward networks.")
    num_heads: int = size(
        8, "Heads of each attention, N; divides the size of the activations, unless `key_dim` is set."
    )
    share_positions: bool = flag(
        True, "Whether all layers share the biases of t5 and learned_t5; if not, each has its own, as in UMT5."
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
    feed_forward_dropout: float = rate(0.0, "Rate of dropout inside the feed-forward networks.")
    normalize_first: bool = flag(False, "Whether blocks normalise before each part (pre-norm) and not after it.")
    normalization: str = choice("layer_norm", NORMALIZATIONS, "Kind of normalisation.")
    epsilon: float = number(1e-5, "ε of the normalisations of blocks.")
    activation: str = text(
        "relu", "Nonlinearity of the feed-forward networks, as Keras knows it by name; or gelu_tanh, GPT-2's GELU."
    )
    gated: bool = flag(False, "Whether the feed-forward networks have a gate; SwiGLU has the activation silu as well.")
    use_bias: bool = flag(True, "Whether attention and feed-forward networks have biases.")
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
    visibility: str = choice(
        "full",
        VISIBILITIES,
        f"Which positions self-attention sees, if it is {', '.join(WITH_VISIBILITY[:-1])} or {WITH_VISIBILITY[-1]}: "
        "all; window: those up to `window` away; dilated: every `dilation`-th one, `window` on each side; global: a "
        "window, and the first `global_tokens`, which see all (Longformer); block_sparse: those in its block, and the "
        "last `summary_tokens` of each block (Sparse Transformer); top_blocks: its block, and those of `num_blocks` in "
        "all that suit it best (MoBA). Language models and decoders keep no more of a window or of global than that: "
        "the first tokens are attention sinks there.",
    )
    window: int = size(
        8, "How far local attention and `visibility` see on each side; the size of a block of block_local attention."
    )
    dilation: int = size(2, "Step between the positions that dilated shows.")
    global_tokens: int = size(1, "How many of the first positions see all and are seen by all with global.")
    block_size: int = size(64, "Size of the blocks of block_sparse and top_blocks.")
    summary_tokens: int = size(8, "How many positions of each block all see with block_sparse.")
    num_blocks: int = size(4, "How many blocks a position sees with top_blocks, its own included.")
    latent_dim: int = count(
        0, "Size of the vectors of latent attention, C; 0: four times that of a head, as in the paper."
    )
    num_features: int = size(128, "Number of random features of performer.")
    num_key_value_heads: int = count(
        0, "Heads that keys and values have, shared by groups of heads; 0: as many as `num_heads`."
    )

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
        if not self.share_positions and self.positions not in T5_POSITIONS:
            raise InputError(
                f"`share_positions=false` is for the positions {' and '.join(T5_POSITIONS)}. "
                f"Received: share_positions={self.share_positions}, positions={self.positions!r}."
            )
        self._check_heads()
        self._check_head_sizes()
        self.check_self_attention("self_attention")
        self._check_visibility()
        self._check_widths()

    def visible_to(self) -> dict[str, tuple[str, str]]:
        """Returns each kind of self-attention with its visibility, by the name of the option of the latter."""
        return {"visibility": (self.self_attention, self.visibility)}

    def _check_visibility(self) -> None:
        used = {name for _, visibility in self.visible_to().values() for name in VISIBILITY_SIZES[visibility]}
        for name, (kind, visibility) in self.visible_to().items():
            if visibility != "full" and kind not in WITH_VISIBILITY:
                raise InputError(
                    f"`{name}` must be full with {kind} self-attention, which says by itself what it sees. "
                    f"Received: {name}={visibility!r}."
                )
        for name in {each: None for sizes in VISIBILITY_SIZES.values() for each in sizes}:
            if name not in used and getattr(self, name) != type(self).declared()[name].default:
                wanted = " or ".join(each for each, sizes in VISIBILITY_SIZES.items() if name in sizes)
                raise InputError(f"`{name}` is for visibility={wanted}. Received: {name}={getattr(self, name)}.")
        if "summary_tokens" in used and self.summary_tokens > self.block_size:
            raise InputError(
                f"`summary_tokens` must be at most `block_size`, {self.block_size}. "
                f"Received: summary_tokens={self.summary_tokens}."
            )

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
