"""Sentence encoders: options and names."""

from dataclasses import dataclass

from zoo.models.shared.transformer_options import TransformerTextEncoderOptions
from zoo.options import flag, size
from zoo.registry import ModelSpec, Paper, register_model


@dataclass(frozen=True, kw_only=True)
class SentenceEncoderOptions(TransformerTextEncoderOptions):
    """Options of `SentenceEncoder`."""

    normalize: bool = flag(True, "Whether the vectors of texts have length 1, so that dot products are cosines.")
    text_length: int = size(
        512, "Largest number of tokens of a text, start and end included; longer texts are truncated."
    )


register_model(
    ModelSpec(
        name="sentence_bert",
        task="sentence_encoder",
        paper=Paper(
            "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", 2019, "https://arxiv.org/abs/1908.10084"
        ),
        summary="BERT with pooled vectors, in the size of MiniLM: 6 layers, 12 heads, d 384. training.import_model "
        "reads checkpoints of all sizes; sentence encoders cannot be trained here.",
        config={
            "num_layers": 6,
            "num_heads": 12,
            "model_dim": 384,
            "intermediate_dim": 1536,
            "positions": "learned",
            "scale_embeddings": False,
            "embedding_norm": True,
            "num_segments": 2,
            "activation": "gelu",
            "epsilon": 1e-12,
            "attention_dropout": 0.1,
        },
        model_class="zoo.models.sentence_encoders.transformer:SentenceEncoder",
        options=SentenceEncoderOptions,
    )
)
