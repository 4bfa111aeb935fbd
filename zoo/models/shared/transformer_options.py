"""The options that the Transformers of all tasks share, and which of them go together.

No Keras here, so that the catalog can read the defaults; `zoo.models.shared.transformer_parts` makes layers of them.
"""

import dataclasses

from zoo.errors import InputError
from zoo.models.shared.checks import check_choice, check_dropout, check_sizes

SELF_ATTENTIONS = ("full", "local", "block_local", "linear", "performer")
# They replace the weights by sums, so that there is nothing to score, to drop or to add a bias to.
WITHOUT_SCORES = ("linear", "performer")
INPUT_POSITIONS = ("sinusoidal", "learned", "concat", "learned_concat")
SCORE_POSITIONS = ("alibi", "relative", "t5")
POSITIONS = (*INPUT_POSITIONS, "rotary", *SCORE_POSITIONS, "none")
NORMALIZATIONS = ("layer_norm", "rms_norm")
# Distances that the papers tell apart: Shaw et al. 2018, section 4.1; Raffel et al. 2020, section 2.1.
MAX_DISTANCES = {"relative": 16, "t5": 128}
# With the 32 buckets of T5, as many distances of a decoder have a bucket of their own.
T5_EXACT = 16


@dataclasses.dataclass(frozen=True)
class AttentionOptions:
    """Options of a stack of Transformer blocks.

    Args:
        num_layers: Number of blocks.
        model_dim: Size of the activations, D.
        intermediate_dim: Size inside the feed-forward networks.
        num_heads: Heads of each attention, N; divides `model_dim`.
        dropout: Rate of dropout on embeddings and on the result of each part of a block.
        attention_dropout: Rate of dropout on the attention weights; none with linear attention.
        feed_forward_dropout: Rate of dropout inside the feed-forward networks.
        normalize_first: Pre-norm instead of post-norm blocks.
        normalization: `"layer_norm"` or `"rms_norm"`.
        activation: Nonlinearity of the feed-forward networks, as Keras knows it by name.
        gated: Whether the feed-forward networks have a gate; SwiGLU has the activation `"silu"` as well.
        use_bias: Whether attention and feed-forward networks have biases.
        score: How queries and keys are compared, in all attention: a name that `zoo.layers.scores.get_score` knows.
            `"cosine"` has a learned temperature, which begins at 0.1, as cosines alone cannot tell keys far apart.
        self_attention: `"full"`; `"local"`: a window around each position; `"block_local"`: within blocks; `"linear"`;
            `"performer"`: random features.
        window: How far local attention sees on each side; the size of a block of block-local attention.
        num_features: Number of random features of `"performer"`.
        num_key_value_heads: Heads that keys and values have, shared by groups of heads; 0: as many as `num_heads`.
        positions: At the embeddings `"sinusoidal"` or `"learned"`, which are added, or `"concat"` (sinusoids) or
            `"learned_concat"`, which are put beside them, and a linear map leads back to D. In self-attention
            `"rotary"`, `"alibi"` (in an encoder one side counts double), `"relative"` (Shaw) or `"t5"`. Or
            `"none"`, with which an encoder knows no order.
        max_distance: From which distance on all keys are alike to `"relative"` and `"t5"`; 0: the paper's, 16 and 128.

    Raises:
        InputError: If an option is wrong, or two do not go together.
    """

    num_layers: int = 6
    model_dim: int = 512
    intermediate_dim: int = 2048
    num_heads: int = 8
    dropout: float = 0.1
    attention_dropout: float = 0.0
    feed_forward_dropout: float = 0.0
    normalize_first: bool = False
    normalization: str = "layer_norm"
    activation: str = "relu"
    gated: bool = False
    use_bias: bool = True
    score: str = "scaled_dot"
    self_attention: str = "full"
    window: int = 8
    num_features: int = 128
    num_key_value_heads: int = 0
    positions: str = "sinusoidal"
    max_distance: int = 0

    def __post_init__(self):
        for name in ("dropout", "attention_dropout", "feed_forward_dropout"):
            check_dropout(getattr(self, name), name)
        names = ("num_layers", "model_dim", "intermediate_dim", "num_heads", "window", "num_features")
        check_sizes(**{name: getattr(self, name) for name in names})
        check_choice("normalization", self.normalization, NORMALIZATIONS)
        check_choice("self_attention", self.self_attention, SELF_ATTENTIONS)
        check_choice("positions", self.positions, POSITIONS)
        self._check_heads()
        self._check_distance()
        self._check_self_attention()

    def _check_heads(self):
        if self.model_dim % self.num_heads or self.model_dim % 2:
            raise InputError(
                f"`model_dim` must be even and a multiple of `num_heads`. "
                f"Received: model_dim={self.model_dim}, num_heads={self.num_heads}."
            )
        if self.positions == "rotary" and self.head_dim < 2:
            raise InputError(
                "`positions='rotary'` turns pairs of features: heads need at least two. "
                f"Received: model_dim={self.model_dim}, num_heads={self.num_heads}."
            )
        if not self.num_key_value_heads and type(self.num_key_value_heads) is int:
            return
        check_sizes(num_key_value_heads=self.num_key_value_heads)
        if self.num_heads % self.num_key_value_heads:
            raise InputError(
                "`num_heads` must be a multiple of `num_key_value_heads`. "
                f"Received: num_heads={self.num_heads}, num_key_value_heads={self.num_key_value_heads}."
            )

    def _check_distance(self):
        if not self.max_distance and type(self.max_distance) is int:
            return
        check_sizes(max_distance=self.max_distance)
        if self.positions == "t5" and self.max_distance <= T5_EXACT:
            raise InputError(
                f"`max_distance` must be above {T5_EXACT} with positions='t5', which tell nearer ones apart. "
                f"Received: max_distance={self.max_distance}."
            )

    def _check_self_attention(self):
        refused = {"num_key_value_heads": self.num_key_value_heads} if self.self_attention != "full" else {}
        if self.self_attention != "full" and self.score == "location":
            refused["score"] = self.score
        if self.self_attention in WITHOUT_SCORES:
            refused |= {} if self.score == "scaled_dot" else {"score": self.score}
            refused |= {"positions": self.positions} if self.positions in SCORE_POSITIONS else {}
            refused["attention_dropout"] = self.attention_dropout
        for name, value in refused.items():
            if value:
                raise InputError(
                    f"`{name}` does not go together with self_attention={self.self_attention!r}: leave one of them "
                    f"at its default. Received: {name}={value!r}."
                )

    @property
    def head_dim(self):
        """Size of a head, H."""
        return self.model_dim // self.num_heads

    @classmethod
    def take(cls, arguments):
        """Returns the options among the arguments of a model, and the other arguments.

        Args:
            arguments: Keyword arguments, a dict.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        own = {name: value for name, value in arguments.items() if name in names}
        return cls(**own), {name: value for name, value in arguments.items() if name not in names}

    def config(self):
        """Returns the options as a dict."""
        return dataclasses.asdict(self)
