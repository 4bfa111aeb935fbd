"""Sentence encoders: their options and their names."""

from dataclasses import dataclass

from zoo.models.shared.text_encoder_options import TransformerTextEncoderOptions
from zoo.options import flag, size
from zoo.registry import ModelSpec, Paper, register_model


@dataclass(frozen=True, kw_only=True)
class SentenceEncoderOptions(TransformerTextEncoderOptions):
    """Options of `SentenceEncoder`."""

    normalize: bool = flag(True, "Whether the vectors of texts have length 1, so that products are cosines.")
    text_length: int = size(512, "Tokens of a text that are read, start and end included; the rest is cut off.")


register_model(
    ModelSpec(
        name="sentence_bert",
        task="sentence_encoder",
        paper=Paper(
            "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks", 2019, "https://arxiv.org/abs/1908.10084"
        ),
        summary="BERT whose vectors are pooled to one for a text, in the size of MiniLM: 6 layers, 12 heads, d 384. "
        "Checkpoints of all sizes are read by training.import_model; there is no training of them here.",
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
