"""Causal language models."""

from zoo.models.catalog.options import LANGUAGE_MODEL
from zoo.models.shared.transformer_options import AttentionOptions
from zoo.registry import ModelSpec, Paper, register_model

GPT = Paper(
    "Language Models are Unsupervised Multitask Learners",
    2019,
    "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)
MAX_LENGTH = 257
"""The start symbol and 256 more."""


def _register(name, paper, summary, model_class, **config):
    config = {"max_length": MAX_LENGTH, **config}
    register_model(ModelSpec(name, "language_model", paper, summary, config, model_class, required=LANGUAGE_MODEL))


def _register_transformer(name, summary, **options):
    config = AttentionOptions(
        normalize_first=True, activation="gelu", positions="learned", use_bias=False, **options
    ).config()
    _register(
        name, GPT, summary, "zoo.models.language_models.causal_transformer:CausalLM", **config, tied_embeddings=True
    )


_register_transformer(
    "causal_lm_tiny",
    "Decoder-only Transformer of 4 layers, 4 heads, d 128.",
    num_layers=4,
    model_dim=128,
    intermediate_dim=512,
    num_heads=4,
    dropout=0.0,
)
_register_transformer(
    "causal_lm_small",
    "Decoder-only Transformer of 6 layers, 6 heads, d 384.",
    num_layers=6,
    model_dim=384,
    intermediate_dim=1536,
    num_heads=6,
    dropout=0.2,
)
_register(
    "lstm_lm",
    Paper("Recurrent Neural Network Regularization", 2014, "https://arxiv.org/abs/1409.2329"),
    "Two layers of LSTMs with dropout between them and none in time. The paper's medium model has embedding_dim 650, "
    "units 650, tied_embeddings false.",
    "zoo.models.language_models.lstm:LSTMLanguageModel",
    embedding_dim=256,
    units=256,
    num_layers=2,
    dropout=0.5,
    tied_embeddings=True,
)
