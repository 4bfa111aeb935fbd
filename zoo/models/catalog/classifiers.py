"""Classifiers of text."""

from zoo.models.catalog.options import CLASSIFIER
from zoo.models.shared.transformer_options import AttentionOptions
from zoo.registry import ModelSpec, Paper, register_model

VASWANI = Paper("Attention Is All You Need", 2017, "https://arxiv.org/abs/1706.03762")
_DROPPED = {"embedding_dropout": 0.0, "word_dropout": 0.0}


def _register(name, paper, summary, model_class, **config):
    register_model(ModelSpec(name, "classifier", paper, summary, config, model_class, required=CLASSIFIER))


_register(
    "self_attention_classifier",
    VASWANI,
    "One layer of self-attention with a single head: the smallest model that reads a word in its context.",
    "zoo.models.classifiers.self_attention:SelfAttentionClassifier",
    model_dim=64,
    score="scaled_dot",
    positions="relative",
    max_distance=0,
    max_length=512,
    pooling="max",
    dropout=0.1,
    attention_dropout=0.0,
    embedding_dropout=0.0,
    word_dropout=0.1,
)
_register(
    "transformer_classifier",
    VASWANI,
    "Encoder of a Transformer, 2 layers of d 128, whose vectors are pooled.",
    "zoo.models.classifiers.transformer:TransformerClassifier",
    **AttentionOptions(num_layers=2, model_dim=128, intermediate_dim=256, num_heads=4, dropout=0.2).config(),
    max_length=512,
    pooling="mean",
    **_DROPPED,
)
_register(
    "birnn_classifier",
    Paper(
        "Supervised Learning of Universal Sentence Representations from Natural Language Inference Data",
        2017,
        "https://arxiv.org/abs/1705.02364",
    ),
    "Bidirectional GRU, pooled by the largest value of each feature. The paper's has LSTM cells of 2048 units.",
    "zoo.models.classifiers.birnn:BiRNNClassifier",
    embedding_dim=200,
    units=100,
    num_layers=1,
    cell_type="gru",
    pooling="max",
    dropout=0.5,
    **_DROPPED,
)
_register(
    "birnn_attention_classifier",
    Paper("Hierarchical Attention Networks for Document Classification", 2016, "https://aclanthology.org/N16-1174"),
    "Bidirectional GRU, pooled by additive attention: the word level of the paper's hierarchy, with its sizes.",
    "zoo.models.classifiers.birnn:BiRNNClassifier",
    embedding_dim=200,
    units=50,
    num_layers=1,
    cell_type="gru",
    pooling="attention",
    dropout=0.5,
    **_DROPPED,
)
_register(
    "cnn_classifier",
    Paper("Convolutional Neural Networks for Sentence Classification", 2014, "https://aclanthology.org/D14-1181"),
    "Convolutions over 3, 4 and 5 words, 100 filters each, pooled by the largest value of each: the paper's CNN-rand.",
    "zoo.models.classifiers.cnn:CNNClassifier",
    embedding_dim=300,
    filter_widths="3,4,5",
    num_filters=100,
    pooling="max",
    dropout=0.5,
    **_DROPPED,
)
