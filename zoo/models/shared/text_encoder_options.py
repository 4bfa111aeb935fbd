"""The options of the models that pool the vectors of a Transformer's encoder."""

from dataclasses import dataclass

from zoo.models.shared.options import TextEncoderOptions
from zoo.models.shared.transformer_options import MAX_LENGTH, TransformerOptions
from zoo.options import choice, count, flag, rate, size

PROJECTION_ACTIVATIONS = ("tanh", "linear", "relu", "gelu")


@dataclass(frozen=True, kw_only=True)
class TransformerTextEncoderOptions(TransformerOptions, TextEncoderOptions):
    """Options of `TransformerTextEncoder`."""

    dropout: float = rate(
        0.1, "Rate of dropout on embeddings, on the result of each part of a block and on the vector of the text."
    )
    max_length: int = size(512, MAX_LENGTH)
    embedding_norm: bool = flag(False, "Whether embeddings with their positions are normalised, as in BERT.")
    num_segments: int = count(
        0,
        "Segments of a text, each of which ends with an end token, that have a vector of their own, added to all its "
        "embeddings; 0: none. BERT has two.",
    )
    projection_dim: int = count(
        0, "Size of a map g(W x + b) of the vector of the text, such as BERT's pooler; 0: no such map."
    )
    projection_activation: str = choice("tanh", PROJECTION_ACTIVATIONS, "g, the nonlinearity of that map.")
