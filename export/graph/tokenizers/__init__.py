"""The TensorFlow half of the tokenizers: strings in, ids out and back, inside a graph.

Only ops of core TensorFlow and TensorFlow Text are used, which the stock model server links. A request never fails on
its content: invalid UTF-8 reads as U+FFFD, and ids outside the vocabulary are skipped.
"""

from export.graph.tokenizers import (  # noqa: F401 (they register their classes)
    byte_level_bpe,
    characters,
    mapped_subwords,
    subwords,
    wordpiece,
)
from export.graph.tokenizers.base import TokenizerGraph, tokenizer_graph

__all__ = ["TokenizerGraph", "tokenizer_graph"]
