"""Tokenizers: conversion between text and a model's integer ids.

Each tokenizer is implemented twice, with equal results: here in plain Python, for training and evaluation on any Keras
backend, and in `export.graph.tokenizers` by TensorFlow ops, for SavedModels.
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
