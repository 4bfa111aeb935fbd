"""Tokenizers: the contract between text and a model's integer ids.

Each tokenizer has two halves that agree line for line: this one, plain Python for training and
evaluation on any Keras backend, and `export.graph.tokenizers`, TensorFlow ops that go into a SavedModel.
"""

from zoo.text.base import Around, Tokenizer, without_surrogates
from zoo.text.byte_level_bpe import ByteLevelBPETokenizer
from zoo.text.characters import CharTokenizer
from zoo.text.mapped_subwords import MappedSubwordTokenizer
from zoo.text.reordered_subwords import ReorderedSubwordTokenizer
from zoo.text.saved import load_tokenizer, load_tokenizers, train_tokenizer
from zoo.text.sentences import sentence_ends
from zoo.text.subwords import SubwordTokenizer, WordTokenizer
from zoo.text.wordpiece import WordPieceTokenizer

__all__ = [
    "Around",
    "ByteLevelBPETokenizer",
    "CharTokenizer",
    "MappedSubwordTokenizer",
    "ReorderedSubwordTokenizer",
    "SubwordTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "load_tokenizers",
    "sentence_ends",
    "train_tokenizer",
    "without_surrogates",
]
