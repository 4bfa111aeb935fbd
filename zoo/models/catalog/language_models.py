"""Causal language models: options and names."""

from dataclasses import dataclass
from typing import Any

from zoo.errors import InputError
from zoo.models.shared.attention_options import CAUSAL_SELF_ATTENTIONS, SELF_ATTENTIONS
from zoo.models.shared.options import LanguageModelOptions
from zoo.models.shared.position_options import ROTARY_POSITIONS
from zoo.models.shared.transformer_options import Stack, TransformerOptions
from zoo.options import choice, count, flag, number, rate, size, text
from zoo.registry import ModelSpec, Paper, register_model

GPT = Paper(
    "Language Models are Unsupervised Multitask Learners",
    2019,
    "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)
FIRST_PIECE = 3
"""The first id of ordinary tokens, after padding, start and end."""
TIED = "Whether the input and output layers share one matrix."


@dataclass(frozen=True, kw_only=True)
class CausalLMOptions(TransformerOptions, LanguageModelOptions):
    """Options of `CausalLM`."""

    tied_embeddings: bool = flag(True, TIED)
    output_bias: bool = flag(False, "Whether logits have a bias: W_oᵀ h + b_o.")
    parallel_residual: bool = flag(
        False,
        "Whether both parts of a block have the same inputs, and the sum of their results is added, as in GPT-NeoX; "
        "requires `normalize_first`.",
    )
    sandwich_norm: bool = flag(
        False,
        "Whether the result of each part of a block is normalised as well before it is added, as in Gemma 2; requires "
        "`normalize_first`.",
    )
    res_post_norm: bool = flag(
        False,
        "Whether blocks normalise only the result of each part before it is added, as in OLMo 2; without "
        "`normalize_first`.",
    )
    qk_norm_across_heads: bool = flag(
        False, "Whether `qk_norm` normalises all heads of a position together, as in OLMo 2, instead of each head."
    )
    output_softcap: float = number(
        0.0, "c, the limit of all logits, as in Gemma 2: c · tanh(logit / c); 0 for no limit.", minimum=0
    )
    full_attention_every: int = count(
        0,
        "n: every n-th block attends to all positions despite `visibility`, like every second block of Gemma 2; 0: "
        "none does.",
    )
    no_positions_every: int = count(
        0, "n: every n-th block has no positions in its attention, like every fourth block of SmolLM3; 0: none."
    )
    window_wavelength: float = number(
        0.0,
        "w of rotary positions, without `rope_scaling`, in blocks with a `visibility`, as in Gemma 3; 0: "
        "`max_wavelength` and `rope_scaling` apply to all blocks.",
        minimum=0,
    )
    self_attention: str = choice(
        "full",
        (*SELF_ATTENTIONS, *CAUSAL_SELF_ATTENTIONS),
        f"{TransformerOptions.declared()['self_attention'].meaning} With a recurrent state: retention, "
        "gated_linear, delta_rule; without attention weights: average, ssru.",
    )
    other_ends: str = text(
        "", "Ids of further tokens that end a text, separated by commas, such as those of imported chat models."
    )

    @property
    def other_end_ids(self) -> tuple[int, ...]:
        """The ids of `other_ends`."""
        return tuple(int(token) for token in self.other_ends.split(",") if token)

    @property
    def stacks(self) -> dict[str, Stack]:
        """See `TransformerOptions`."""
        (stack,) = super().stacks.values()
        stack = stack._replace(
            full_attention_every=self.full_attention_every,
            parallel_residual=self.parallel_residual,
            sandwich_norm=self.sandwich_norm,
            res_post_norm=self.res_post_norm,
            qk_norm_across_heads=self.qk_norm_across_heads,
            no_positions_every=self.no_positions_every,
            window_wavelength=self.window_wavelength,
        )
        return {"": stack}

    def check(self) -> None:
        super().check()
        ends = self.other_ends.split(",") if self.other_ends else []
        if not all(token.isdecimal() and FIRST_PIECE <= int(token) < self.vocab_size for token in ends):
            raise InputError(
                f"`other_ends` must be ids from {FIRST_PIECE} to {self.vocab_size - 1}, separated by commas. "
                f"Received: other_ends={self.other_ends!r}."
            )
        for name in ("parallel_residual", "sandwich_norm"):
            if getattr(self, name) and not self.normalize_first:
                raise InputError(f"`{name}` requires `normalize_first`. Received: {name}=true, normalize_first=false.")
        if self.res_post_norm and self.normalize_first:
            raise InputError("`res_post_norm` requires normalize_first=false. Received: normalize_first=true.")
        if self.qk_norm_across_heads and not self.qk_norm:
            raise InputError("`qk_norm_across_heads` requires `qk_norm`. Received: qk_norm=false.")
        if self.window_wavelength and (self.positions not in ROTARY_POSITIONS or self.visibility == "full"):
            raise InputError(
                f"`window_wavelength` requires positions={' or '.join(ROTARY_POSITIONS)} and a `visibility` such as "
                f"window. Received: positions={self.positions!r}, visibility={self.visibility!r}."
            )
        if 0 < self.window_wavelength <= 1:
            raise InputError(
                f"`window_wavelength` must be above 1, or 0. Received: window_wavelength={self.window_wavelength}."
            )
        if self.full_attention_every and self.visibility == "full":
            raise InputError(
                "`full_attention_every` requires a `visibility` such as window. "
                f"Received: full_attention_every={self.full_attention_every}, visibility='full'."
            )
        if self.tied_embeddings and self.hidden_dim != self.model_dim:
            raise self.untied_only("tied_embeddings", "false")


@dataclass(frozen=True, kw_only=True)
class LSTMLanguageModelOptions(LanguageModelOptions):
    """Options of `LSTMLanguageModel`; the defaults are those of the paper's medium model."""

    embedding_dim: int = size(650, "Size of the embeddings; with `tied_embeddings` it must equal `units`.")
    units: int = size(650, "Size of the state of each layer.")
    num_layers: int = size(2, "Number of layers.")
    dropout: float = rate(0.5, "Rate of dropout on the embeddings, between the layers and before the output layer.")
    tied_embeddings: bool = flag(False, TIED)

    def check(self) -> None:
        if self.tied_embeddings and self.embedding_dim != self.units:
            raise InputError(
                "`tied_embeddings` requires equal `embedding_dim` and `units`. "
                f"Received: embedding_dim={self.embedding_dim}, units={self.units}."
            )


QWEN = Paper("Qwen3 Technical Report", 2025, "https://arxiv.org/abs/2505.09388")
RETNET = "https://arxiv.org/abs/2307.08621"

TINY = {"num_layers": 4, "model_dim": 128, "intermediate_dim": 512, "num_heads": 4, "dropout": 0.0}
SMALL = {"num_layers": 6, "model_dim": 384, "intermediate_dim": 1536, "num_heads": 6, "dropout": 0.2}
LIKE_GPT = {"normalize_first": True, "activation": "gelu", "positions": "learned", "use_bias": False}
GPT2 = {
    "num_layers": 12,
    "model_dim": 768,
    "intermediate_dim": 3072,
    "num_heads": 12,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation": "gelu_tanh",
    "use_bias": True,
    "scale_embeddings": False,
    "max_length": 1024,
    "start_symbol": False,
}
# Section 2 of the Qwen3 report.
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
RETENTION = {"self_attention": "retention", "positions": "rotary", "value_dim": 64, "intermediate_dim": 256}


def _register_transformer(name: str, paper: Paper, summary: str, **config: Any) -> None:
    model_class = "zoo.models.language_models.causal_transformer:CausalLM"
    register_model(ModelSpec(name, "language_model", paper, summary, config, model_class, options=CausalLMOptions))


_register_transformer(
    "causal_lm_tiny", GPT, "Decoder-only Transformer of 4 layers, 4 heads, d 128.", **{**LIKE_GPT, **TINY}
)
_register_transformer(
    "causal_lm_small", GPT, "Decoder-only Transformer of 6 layers, 6 heads, d 384.", **{**LIKE_GPT, **SMALL}
)
_register_transformer(
    "gpt2",
    GPT,
    "The smallest model of the paper: 12 layers, 12 heads, d 768; 124.4 million weights with its vocabulary. "
    "training.import_model reads checkpoints of all sizes.",
    **{**LIKE_GPT, **GPT2},
)
_register_transformer(
    "causal_lm_modern",
    QWEN,
    "causal_lm_tiny with the parts of current language models: RMS norm, rotary positions, SwiGLU, normalised queries "
    "and keys, two heads of keys and values. Because of the gate, intermediate_dim is a third smaller.",
    **{**TINY, **MODERN, "intermediate_dim": 344},
)
_register_transformer(
    "retnet_lm",
    Paper("Retentive Network: A Successor to Transformer for Large Language Models", 2023, RETNET),
    "Retention instead of attention, with a state of constant size: 4 layers, 4 heads, d 128; values are twice and "
    "feed-forward networks half as large as usual, as in section 3.1 of the paper.",
    **{**LIKE_GPT, **TINY, **RETENTION},
)
register_model(
    ModelSpec(
        name="lstm_lm",
        task="language_model",
        paper=Paper("Recurrent Neural Network Regularization", 2014, "https://arxiv.org/abs/1409.2329"),
        summary="Two LSTM layers with dropout between layers, not between steps. The medium model of the paper has "
        "embedding_dim 650, units 650, tied_embeddings false.",
        config={"embedding_dim": 256, "units": 256, "tied_embeddings": True},
        model_class="zoo.models.language_models.lstm:LSTMLanguageModel",
        options=LSTMLanguageModelOptions,
    )
)
