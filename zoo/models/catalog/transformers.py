"""Encoder-decoder Transformers: options and names."""

from dataclasses import dataclass
from typing import Any

from zoo.models.catalog.convolutional import GEHRING
from zoo.models.catalog.language_models import MODERN, QWEN
from zoo.models.catalog.recurrent import BAHDANAU
from zoo.models.shared.attention_options import CAUSAL_SELF_ATTENTIONS, SELF_ATTENTIONS, VISIBILITIES
from zoo.models.shared.options import Seq2SeqOptions
from zoo.models.shared.position_options import MAX_LENGTH
from zoo.models.shared.transformer_options import Stack, TransformerOptions
from zoo.options import choice, count, flag, size
from zoo.registry import ModelSpec, Paper, register_model

TINY = {"num_layers": 4, "model_dim": 128, "intermediate_dim": 256, "num_heads": 4, "dropout": 0.3}
SMALL = {"num_layers": 6, "model_dim": 512, "intermediate_dim": 1024, "num_heads": 4, "dropout": 0.3}
BASE = {"num_layers": 6, "model_dim": 512, "intermediate_dim": 2048, "num_heads": 8, "dropout": 0.1}
BIG = {"num_layers": 6, "model_dim": 1024, "intermediate_dim": 4096, "num_heads": 16, "dropout": 0.3}
STUDENT = {"num_layers": 6, "decoder_layers": 2, "decoder_self_attention": "ssru"}
KIM = Paper(
    "From Research to Production and Back: Ludicrously Fast Neural Machine Translation",
    2019,
    "https://aclanthology.org/D19-5632",
)
VASWANI = Paper("Attention Is All You Need", 2017, "https://arxiv.org/abs/1706.03762")


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderOptions(TransformerOptions, Seq2SeqOptions):
    """Options of `Transformer`; the defaults are those of the base model of the paper."""

    tied_embeddings: str = choice(
        "auto",
        ("auto", "all", "target", "none"),
        "Layers that share a matrix: source and target embeddings and output (all), for a shared vocabulary; target "
        "embeddings and output (target); none; or auto: all if the vocabularies have the same size, otherwise target, "
        "and none with `concat_projection=false`, because the output then differs in size from the embeddings.",
    )
    embedding_norm: bool = flag(
        False, "Whether embeddings with their positions are normalised (layer norm), as in BART and mBART."
    )
    output_bias: bool = flag(False, "Whether logits have a bias: W_oᵀ Decoder(Y) + b_o.")
    decoder_layers: int = count(0, "Number of blocks of the decoder; 0: as many as `num_layers`.")
    decoder_self_attention: str = choice(
        "same",
        ("same", *SELF_ATTENTIONS, *CAUSAL_SELF_ATTENTIONS),
        "Kind of self-attention in the decoder, if it differs from `self_attention`; also with a recurrent state "
        "(retention, gated_linear, delta_rule), the mean of the previous positions (average), or a simple recurrence "
        "(ssru).",
    )
    decoder_visibility: str = choice(
        "same",
        ("same", *VISIBILITIES),
        "Visibility in the decoder, if it differs from `visibility`; full, with global in the encoder, is the "
        "encoder-decoder of Longformer.",
    )
    max_length: int = size(256, MAX_LENGTH)

    @property
    def decoder_stack(self) -> Stack:
        """The blocks of the decoder."""
        return Stack(
            self.decoder_layers or self.num_layers,
            self.self_attention if self.decoder_self_attention == "same" else self.decoder_self_attention,
            self.visibility if self.decoder_visibility == "same" else self.decoder_visibility,
        )

    @property
    def stacks(self) -> dict[str, Stack]:
        """See `TransformerOptions`."""
        return {**super().stacks, "decoder_": self.decoder_stack}

    def check(self) -> None:
        """See `Options`; replaces `tied_embeddings="auto"` by its meaning for these vocabularies."""
        super().check()
        grown = self.hidden_dim != self.model_dim
        if grown and self.tied_embeddings in ("all", "target"):
            raise self.untied_only("tied_embeddings", "none")
        if self.tied_embeddings == "all":
            self.check_shared_vocabulary()
        if self.tied_embeddings == "auto":
            shared = self.source_vocab_size == self.target_vocab_size
            tied = "none" if grown else "all" if shared else "target"
            object.__setattr__(self, "tied_embeddings", tied)


def _register(name: str, paper: Paper, summary: str, **config: Any) -> None:
    model_class = "zoo.models.seq2seq.transformer:Transformer"
    register_model(ModelSpec(name, "seq2seq", paper, summary, config, model_class, options=EncoderDecoderOptions))


def _register_variant(name: str, paper: Paper, summary: str, **changed: Any) -> None:
    _register(f"transformer_tiny_{name}", paper, f"transformer_tiny with {summary}", **{**TINY, **changed})


_register(
    "transformer_tiny",
    VASWANI,
    "Transformer of 4+4 layers, d 128, for small corpora; sizes of Wu et al. 2021 (https://arxiv.org/abs/2105.14462).",
    **TINY,
)
_register(
    "transformer_small",
    VASWANI,
    "Transformer of 6+6 layers, d 512, with half of the feed-forward size and heads of the paper, for corpora of about "
    "100,000 sentences; sizes of Wu et al. 2021 (https://arxiv.org/abs/2105.14462).",
    **SMALL,
)
_register(
    "transformer_base",
    VASWANI,
    "The base model of the paper: 6+6 layers, d 512, 8 heads; 63.1 million weights with a shared vocabulary of 37,000 "
    "(65 in the paper).",
    **BASE,
)
_register(
    "transformer_big",
    VASWANI,
    "The big model of the paper: 6+6 layers, d 1024, 16 heads; 214.2 million weights with a shared vocabulary of "
    "37,000 (213 in the paper).",
    **BIG,
)
_register(
    "transformer_modern",
    QWEN,
    "transformer_tiny with the parts of current language models: pre-norm with RMS norm, rotary positions, SwiGLU, "
    "normalised queries and keys, and two heads of keys and values in the decoder. Because of the gate, "
    "intermediate_dim is a third smaller.",
    **{**TINY, **MODERN, "intermediate_dim": 168},
)
_register(
    "dynamic_conv_nmt",
    Paper("Pay Less Attention with Lightweight and Dynamic Convolutions", 2019, "https://arxiv.org/abs/1901.10430"),
    "transformer_tiny with dynamic convolutions of 3, 7, 15 and 31 positions instead of self-attention. The sizes of "
    "the paper are model_dim 1024, num_heads 16, 7 blocks in the encoder and 6 in the decoder.",
    **{**TINY, "self_attention": "dynamic_conv", "kernel_widths": "3,7,15,31"},
)
_register(
    "student_tiny",
    KIM,
    "A student for fast decoding: 6 encoder blocks, d 128, and 2 decoder blocks with SSRUs instead of self-attention, "
    "so that the cost of a step does not depend on the length. With one vocabulary all embeddings are tied.",
    **{**TINY, **STUDENT},
)
_register(
    "student_base",
    KIM,
    "student_tiny with the sizes of transformer_base, for teachers of this size or larger.",
    **{**BASE, **STUDENT},
)

# Each of these changes one option.
_register_variant(
    "additive",
    BAHDANAU,
    "Bahdanau's additive score in each head.",
    score="additive",
)
_register_variant(
    "unscaled",
    Paper("Massive Exploration of Neural Machine Translation Architectures", 2017, "https://arxiv.org/abs/1703.03906"),
    "dot products without the scale 1 / √d_k.",
    score="dot",
)
_register_variant(
    "cosine",
    Paper("Swin Transformer V2: Scaling Up Capacity and Resolution", 2022, "https://arxiv.org/abs/2111.09883"),
    "cosines of queries and keys, divided by a learned temperature, as scores.",
    score="cosine",
)
_register_variant(
    "learned_positions",
    GEHRING,
    "learned positions, a table of max_length rows for each side.",
    positions="learned",
)
_register_variant(
    "concat_positions",
    Paper("Perceiver: General Perception with Iterative Attention", 2021, "https://arxiv.org/abs/2103.03206"),
    "sinusoids that are concatenated with the embeddings instead of added.",
    positions="concat",
)
_register_variant(
    "rotary",
    Paper("RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, "https://arxiv.org/abs/2104.09864"),
    "rotary positions in self-attention.",
    positions="rotary",
)
_register_variant(
    "alibi",
    Paper(
        "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
        2022,
        "https://arxiv.org/abs/2108.12409",
    ),
    "a bias in self-attention that decreases with the distance, with a slope for each head.",
    positions="alibi",
)
_register_variant(
    "relative",
    Paper("Self-Attention with Relative Position Representations", 2018, "https://arxiv.org/abs/1803.02155"),
    "learned vectors for distances in self-attention, added to keys and values.",
    positions="relative",
)
_register_variant(
    "grouped_query",
    Paper(
        "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
        2023,
        "https://arxiv.org/abs/2305.13245",
    ),
    "two heads of keys and values in the decoder, each shared by two heads of queries.",
    num_key_value_heads=2,
)
_register_variant(
    "local",
    Paper("Longformer: The Long-Document Transformer", 2020, "https://arxiv.org/abs/2004.05150"),
    "self-attention to a sliding window of 8 positions on each side.",
    self_attention="local",
)
_register_variant(
    "linear",
    Paper(
        "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
        2020,
        "https://arxiv.org/abs/2006.16236",
    ),
    "linear self-attention; the cost of a decoding step does not depend on the length.",
    self_attention="linear",
)
_register_variant(
    "single_head",
    Paper("Are Sixteen Heads Really Better than One?", 2019, "https://arxiv.org/abs/1905.10650"),
    "a single head in each attention layer.",
    num_heads=1,
)
