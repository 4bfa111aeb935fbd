"""The named models: a class, its options, its paper. No logic."""

from zoo.registry import ModelSpec, Paper, register_model

VOCABULARIES = ("source_vocab_size", "target_vocab_size")

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
        required=VOCABULARIES,
    )
)

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
        required=VOCABULARIES,
    )
)
