"""The interface of models of other software."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Rows = Sequence[Sequence[int]]
LAYERS, HEADS, DIM, INNER = 2, 4, 64, 128
"""The sizes of models without a public configuration."""
MAX_LENGTH = 20
"""The largest number of tokens of a generated text, including the prompt of language models."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer of other software.

    Attributes:
        software: Its name and version.
        encode: Function from texts to ids, without special tokens before and after a text.
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
        vocabulary: Its tokenizer; a translator encodes sources and decodes targets.
        logits: Function from rows of ids, each without padding, to the logits of each row, or of each token of it. A
            translator also takes targets, without start and end.
        write: Function from rows of ids and a number of beams to generated ids, without start and end; a language model
            returns them after the row itself.
        rules: The rules of its beam search (`zoo.translate(rules=…)`); empty if it has none.
        max_length: The largest number of tokens of a generated text, including the end, or the prompt.
        order: Its id of each of our ids, if our tokenizer does not contain it.
        force_end: Whether a text of the largest length ends with the end.
        log_probs: Whether `logits` returns the log probabilities of the target's tokens and its end alone.
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
