"""The tokenizers as TensorFlow graphs: strings to ids and back.

Only ops of core TensorFlow and TensorFlow Text are used, which the stock model server links. No text or id makes a
request fail: invalid UTF-8 is read as U+FFFD, and ids outside the vocabulary are skipped.
"""

from export.graph.tokenizers import (  # noqa: F401 (they register their classes)
    byte_level_bpe,
    characters,
    subwords,
    wordpiece,
)
from export.graph.tokenizers.base import TokenizerGraph, tokenizer_graph

__all__ = ["TokenizerGraph", "tokenizer_graph"]
