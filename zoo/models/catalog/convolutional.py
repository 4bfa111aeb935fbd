"""Convolutional sequence-to-sequence models."""

from zoo.models.catalog.options import SEQ2SEQ
from zoo.registry import ModelSpec, Paper, register_model

register_model(
    ModelSpec(
        name="convs2s_small",
        task="seq2seq",
        paper=Paper("Convolutional Sequence to Sequence Learning", 2017, "https://arxiv.org/abs/1705.03122"),
        summary="Gated convolutions with attention in every layer of the decoder, 4 + 3 layers. The paper's sizes for "
        "English to Romanian are embedding_dim 512, units 512, encoder_layers 20, decoder_layers 20, width 3.",
        config={
            "embedding_dim": 256,
            "units": 256,
            "encoder_layers": 4,
            "decoder_layers": 3,
            "width": 3,
            "dropout": 0.2,
            "score": "dot",
            "positions": "learned",
            "max_length": 256,
        },
        model_class="zoo.models.seq2seq.convs2s:ConvS2S",
        required=SEQ2SEQ,
    )
)
