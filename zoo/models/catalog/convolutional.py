"""Convolutional sequence-to-sequence models: options and names."""

from dataclasses import dataclass

from zoo.errors import InputError
from zoo.models.shared.options import Seq2SeqOptions
from zoo.models.shared.position_options import INPUT_POSITIONS, MAX_LENGTH
from zoo.options import choice, rate, size, text
from zoo.registry import ModelSpec, Paper, register_model

GEHRING = Paper("Convolutional Sequence to Sequence Learning", 2017, "https://arxiv.org/abs/1705.03122")


@dataclass(frozen=True, kw_only=True)
class ConvS2SOptions(Seq2SeqOptions):
    """Options of `ConvS2S`; the defaults are the paper's for English to Romanian."""

    embedding_dim: int = size(512, "Size of the embeddings, of the encoder's output z, and of queries and keys, f.")
    units: int = size(512, "Size of the hidden states, d.")
    encoder_layers: int = size(20, "Number of blocks in the encoder.")
    decoder_layers: int = size(20, "Number of blocks in the decoder.")
    width: int = size(3, "Width of the convolutions, k.")
    dropout: float = rate(
        0.2, "Rate of dropout on the embeddings, on the input of each convolution, and before the output layer."
    )
    score: str = text("dot", "Score of queries and keys, a name for `zoo.layers.scores.get_score`.")
    positions: str = choice(
        "learned",
        (*INPUT_POSITIONS, "none"),
        "Kind of positions at the embeddings: sinusoidal (fairseq_sinusoidal as in fairseq), learned, integer or "
        "integer_normalized, which are added, or concat (sinusoids) or learned_concat, which are concatenated.",
    )
    max_length: int = size(256, MAX_LENGTH)

    def check(self) -> None:
        if self.embedding_dim % 2 and self.positions in ("sinusoidal", "fairseq_sinusoidal", "concat"):
            raise InputError(
                f"`embedding_dim` must be even with positions={self.positions!r}. "
                f"Received: embedding_dim={self.embedding_dim}."
            )


register_model(
    ModelSpec(
        name="convs2s_small",
        task="seq2seq",
        paper=GEHRING,
        summary="Gated convolutions with attention in every layer of the decoder, 4 + 3 layers. The paper's sizes for "
        "English to Romanian are embedding_dim 512, units 512, encoder_layers 20, decoder_layers 20, width 3.",
        config={"embedding_dim": 256, "units": 256, "encoder_layers": 4, "decoder_layers": 3},
        model_class="zoo.models.seq2seq.convs2s:ConvS2S",
        options=ConvS2SOptions,
    )
)
