"""Recurrent sequence-to-sequence models."""

from zoo.models.catalog.options import SEQ2SEQ
from zoo.registry import ModelSpec, Paper, register_model

register_model(
    ModelSpec(
        name="rnnsearch",
        task="seq2seq",
        paper=Paper(
            "Neural Machine Translation by Jointly Learning to Align and Translate",
            2015,
            "https://arxiv.org/abs/1409.0473",
        ),
        summary="Bidirectional GRU encoder, GRU decoder with additive attention, maxout readout. The paper's sizes are "
        "embedding_dim 620, units 1000, attention_units 1000, readout_units 500.",
        config={
            "embedding_dim": 256,
            "units": 256,
            "attention_units": 256,
            "readout_units": 256,
            "dropout": 0.3,
        },
        model_class="zoo.models.rnnsearch:RNNSearch",
        required=SEQ2SEQ,
    )
)
