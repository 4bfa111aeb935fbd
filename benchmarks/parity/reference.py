"""What is asked of models of other software."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Rows = Sequence[Sequence[int]]
LAYERS, HEADS, DIM, INNER = 2, 4, 64, 128
"""The sizes of models whose folder has no configuration of its own."""
MAX_LENGTH = 20
"""Tokens in what models write, of language models the prompt included."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer of other software.

    Attributes:
        software: Its name and version.
        encode: Function from texts to ids, without what stands before and after a text.
        decode: Function from ids to texts.
    """

    software: str
    encode: Callable[[Sequence[str]], list[list[int]]]
    decode: Callable[[Rows], list[str]]


@dataclass(frozen=True)
class Reference:
    """A model of other software.

    Attributes:
        size: The number of its tokens.
        vocabulary: Its tokenizer; of a translator, `encode` is that of sources and `decode` that of what it writes.
        logits: Function from rows of ids, each without padding, to the logits of each row, or of each token of it. Of
            a translator it takes what was written as well, without start and end.
        write: Function from rows of ids and a number of beams to what is written, without start and end; of a language
            model after the row itself.
        rules: Whose rules its beam search follows; empty if it has none.
        max_length: The most tokens of a text that it writes, the end included; of a language model of the whole text.
        order: The id there of each of our ids, where our tokenizer does not say.
        force_end: Whether the last token of an answer that reaches that length is the end.
        log_probs: Whether `logits` gives log probabilities of the tokens alone, those of a translator and its end.
    """

    size: int
    vocabulary: Vocabulary
    logits: Callable[..., list[np.ndarray]]
    write: Callable[[Rows, int], list[list[int]]] | None = None
    rules: str = ""
    max_length: int = 0
    order: Sequence[int] = ()
    log_probs: bool = False
    force_end: bool = False
