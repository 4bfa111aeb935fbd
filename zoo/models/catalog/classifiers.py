"""Classifiers of text: options and names."""

from dataclasses import dataclass
from typing import Any

from zoo.errors import InputError
from zoo.models.catalog.transformers import VASWANI
from zoo.models.shared.attention_options import AttentionOptions
from zoo.models.shared.options import ClassifierOptions
from zoo.models.shared.position_options import MAX_LENGTH
from zoo.models.shared.transformer_options import TransformerOptions, TransformerTextEncoderOptions
from zoo.options import Options, choice, rate, size, text
from zoo.registry import ModelSpec, Paper, register_model

YANG = Paper("Hierarchical Attention Networks for Document Classification", 2016, "https://aclanthology.org/N16-1174")


@dataclass(frozen=True, kw_only=True)
class SelfAttentionClassifierOptions(AttentionOptions, ClassifierOptions):
    """Options of `SelfAttentionClassifier`."""

    model_dim: int = AttentionOptions.with_default("model_dim", 64)
    positions: str = AttentionOptions.with_default("positions", "relative")
    max_length: int = size(512, MAX_LENGTH)
    pooling: str = ClassifierOptions.with_default("pooling", "max")
    dropout: float = rate(0.1, "Rate of dropout on the result of the attention and on the vector of the text.")
    word_dropout: float = ClassifierOptions.with_default("word_dropout", 0.1)

    def single_layer(self) -> TransformerOptions:
        """Returns the options of the only layer, with a single head."""
        shared = {name: getattr(self, name) for name in AttentionOptions.declared()}
        return TransformerOptions(num_layers=1, num_heads=1, **shared)

    def check(self) -> None:
        self.single_layer()


@dataclass(frozen=True, kw_only=True)
class TransformerClassifierOptions(TransformerTextEncoderOptions, ClassifierOptions):
    """Options of `TransformerClassifier`."""


@dataclass(frozen=True, kw_only=True)
class BiRNNClassifierOptions(ClassifierOptions):
    """Options of `BiRNNClassifier`; the defaults are the sizes of Yang et al. 2016."""

    embedding_dim: int = size(200, "Size of the embeddings.")
    units: int = size(50, "Size of the state of each direction.")
    num_layers: int = size(1, "Number of stacked recurrent layers.")
    cell_type: str = choice("gru", ("gru", "lstm"), "Kind of the recurrent cells.")
    pooling: str = ClassifierOptions.with_default("pooling", "attention")
    dropout: float = rate(0.0, "Rate of dropout between the recurrent layers and on the vector of the text.")


@dataclass(frozen=True, kw_only=True)
class HierarchicalClassifierOptions(ClassifierOptions):
    """Options of `HierarchicalClassifier`; the defaults are the sizes of Yang et al. 2016."""

    embedding_dim: int = size(200, "Size of the embeddings.")
    units: int = size(50, "Size of the state of each direction, of words and of sentences.")
    cell_type: str = choice("gru", ("gru", "lstm"), "Kind of the recurrent cells.")
    max_sentences: int = size(16, "Largest number of sentences; the last one contains the rest of the text.")
    sentence_ends: str = text(
        "auto",
        "Ids of the tokens that end a sentence, separated by commas; none: the text is one sentence. Training replaces "
        "auto by the ids that `zoo.text.sentence_ends` determines; elsewhere auto means none.",
    )
    pooling: str = ClassifierOptions.with_default("pooling", "attention")

    @property
    def end_ids(self) -> list[int]:
        """The ids of the tokens that end a sentence."""
        ids = "" if self.sentence_ends in ("auto", "none") else self.sentence_ends
        return [int(number) for number in ids.split(",") if ids]

    def check(self) -> None:
        try:
            valid = all(0 <= number < self.vocab_size for number in self.end_ids)
        except ValueError:
            valid = False
        if not valid:
            raise InputError(
                f"`sentence_ends` must be auto, none or ids below vocab_size={self.vocab_size}, such as '7,12'. "
                f"Received: sentence_ends={self.sentence_ends!r}."
            )
        if self.pooling != "attention":
            raise InputError(f"`pooling` must be attention. Received: pooling={self.pooling!r}.")


@dataclass(frozen=True, kw_only=True)
class CNNClassifierOptions(ClassifierOptions):
    """Options of `CNNClassifier`; the defaults are the paper's."""

    embedding_dim: int = size(300, "Size of the embeddings.")
    filter_widths: str = text("3,4,5", "Width of each kind of filter in tokens, separated by commas.")
    num_filters: int = size(100, "Number of filters of each width.")
    pooling: str = ClassifierOptions.with_default("pooling", "max")
    dropout: float = ClassifierOptions.with_default("dropout", 0.5)

    def __post_init__(self) -> None:
        widths: Any = self.filter_widths
        if isinstance(widths, list | tuple):  # in configurations of the first version
            object.__setattr__(self, "filter_widths", ",".join(map(str, widths)))
        super().__post_init__()

    @property
    def widths(self) -> list[int]:
        """The widths of the filters."""
        return [int(width) for width in self.filter_widths.split(",")]

    def check(self) -> None:
        try:
            valid = min(self.widths) > 0 and len(set(self.widths)) == len(self.widths)
        except ValueError:
            valid = False
        if not valid:
            raise InputError(
                "`filter_widths` must be different positive integers, such as '3,4,5'. "
                f"Received: filter_widths={self.filter_widths!r}."
            )


def _register(name: str, paper: Paper, summary: str, model_class: str, options: type[Options], **config: Any) -> None:
    register_model(
        ModelSpec(name, "classifier", paper, summary, config, f"zoo.models.classifiers.{model_class}", options=options)
    )


_register(
    "self_attention_classifier",
    VASWANI,
    "One layer of self-attention with a single head: the smallest model that reads words in context.",
    "self_attention:SelfAttentionClassifier",
    SelfAttentionClassifierOptions,
)
_register(
    "transformer_classifier",
    VASWANI,
    "Transformer encoder, 2 layers of d 128, with pooled vectors.",
    "transformer:TransformerClassifier",
    TransformerClassifierOptions,
    num_layers=2,
    model_dim=128,
    intermediate_dim=256,
    num_heads=4,
    dropout=0.2,
)
_register(
    "birnn_classifier",
    Paper(
        "Supervised Learning of Universal Sentence Representations from Natural Language Inference Data",
        2017,
        "https://arxiv.org/abs/1705.02364",
    ),
    "Bidirectional GRU with max pooling. The model of the paper has LSTM cells of 2048 units.",
    "birnn:BiRNNClassifier",
    BiRNNClassifierOptions,
    units=100,
    pooling="max",
    dropout=0.5,
)
_register(
    "birnn_attention_classifier",
    YANG,
    "Bidirectional GRU, pooled by additive attention: the word level of the paper, in its sizes.",
    "birnn:BiRNNClassifier",
    BiRNNClassifierOptions,
    dropout=0.5,
)
_register(
    "han_classifier",
    YANG,
    "Bidirectional GRUs over the words of each sentence and over the sentences, both pooled by additive attention, in "
    "the paper's sizes.",
    "hierarchical:HierarchicalClassifier",
    HierarchicalClassifierOptions,
    dropout=0.5,
)
_register(
    "cnn_classifier",
    Paper("Convolutional Neural Networks for Sentence Classification", 2014, "https://aclanthology.org/D14-1181"),
    "Convolutions over 3, 4 and 5 words, 100 filters each, with max pooling: CNN-rand of the paper.",
    "cnn:CNNClassifier",
    CNNClassifierOptions,
)
