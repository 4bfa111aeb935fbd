"""Transformers for sequence to sequence."""

from zoo.models.catalog.options import SEQ2SEQ
from zoo.registry import ModelSpec, Paper, register_model

register_model(
    ModelSpec(
        name="transformer_tiny",
        task="seq2seq",
        paper=Paper("Attention Is All You Need", 2017, "https://arxiv.org/abs/1706.03762"),
        summary="Transformer of 4+4 layers, d 128, for small corpora; sizes of Wu et al. 2021 "
        "(https://arxiv.org/abs/2105.14462).",
        config={
            "num_layers": 4,
            "model_dim": 128,
            "intermediate_dim": 256,
            "num_heads": 4,
            "dropout": 0.3,
            "normalize_first": False,
            "tied_embeddings": "auto",
        },
        model_class="zoo.models.transformer:Transformer",
        required=SEQ2SEQ,
    )
)
