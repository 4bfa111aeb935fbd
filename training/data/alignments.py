"""Reads word alignments in Pharaoh's format and converts them to links between tokens."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.data.dataset import Pairs
from training.data.files import read_lines
from zoo.errors import InputError
from zoo.text.base import Tokenizer
from zoo.vocabulary import UNKNOWN

Links = list[tuple[int, int]]
Spans = list[range]


def read_alignments(path: Path, pairs: Pairs) -> list[Links]:
    """Reads the links between the words of each pair, from lines such as `0-0 1-2`, SOURCE-TARGET.

    Words are separated by spaces and counted from 0; a blank line is for a pair without links.

    Raises:
        InputError: With file and line: the number of lines differs from the number of pairs, a link is malformed, or
            its word is outside the sentence.
    """
    lines = read_lines(path)
    if len(lines) != len(pairs):
        raise InputError(f"{path}: alignments need a line for each of the {len(pairs)} pairs. Received: {len(lines)}.")
    rows = zip(lines, pairs.source, pairs.target, strict=True)
    return [_links(line, (source, target), f"{path}:{number}") for number, (line, source, target) in enumerate(rows, 1)]


def _links(line: str, texts: tuple[str, str], where: str) -> Links:
    sizes, links = [len(text.split()) for text in texts], []
    for link in line.split():
        ends = link.split("-")
        if len(ends) != 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise InputError(f"{where}: a link is SOURCE-TARGET, two word numbers, such as 0-0. Received: {link!r}.")
        source, target = map(int, ends)
        for word, size, side in ((source, sizes[0], "source"), (target, sizes[1], "target")):
            if word >= size:
                raise InputError(f"{where}: {link} links word {word} of a {side} of {size} words, counted from 0.")
        links.append((source, target))
    return links


def word_spans(tokenizer: Tokenizer, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> list[Spans | None]:
    """Returns the span of tokens of each word, for each text; `None` where words and tokens do not match.

    The tokens of a word are its encoding, alone or with a space before it. Tokens of only spaces belong to no word, and
    an unknown token that covers several words belongs to all of them.

    Args:
        tokenizer: The tokenizer.
        texts: The texts.
        rows: Their ids.
    """
    words = sorted({word for text in texts for word in text.split()})
    spelled = zip(tokenizer.encode(words), tokenizer.encode([f" {word}" for word in words]), strict=True)
    encodings = dict(zip(words, spelled, strict=True))
    blank = {i for i, piece in enumerate(tokenizer.piece_table()) if i > UNKNOWN and not piece.strip(" ▁")}
    return [
        _spans([encodings[word] for word in text.split()], list(row), blank)
        for text, row in zip(texts, rows, strict=True)
    ]


def _spans(words: list[tuple[list[int], list[int]]], row: list[int], blank: set[int]) -> Spans | None:
    spans, position = [], 0
    for forms in words:
        candidates = _candidates(forms, row, position)
        while not candidates and position < len(row) and row[position] in blank:
            position += 1
            candidates = _candidates(forms, row, position)
        if not candidates:
            return None
        spans.append(candidates[0])
        position = max(position, candidates[0].stop)
    return spans


def _candidates(forms: tuple[list[int], list[int]], row: list[int], start: int) -> Spans:
    """Returns the possible spans of a word that begins at `start`, or at the unknown token before it."""
    spans = [range(start, start + len(ids)) for ids in forms if ids and row[start : start + len(ids)] == ids]
    if not spans and start and row[start - 1] == UNKNOWN:
        joined = [ids for ids in forms if ids[:1] == [UNKNOWN] and row[start - 1 : start - 1 + len(ids)] == ids]
        spans = [range(start - 1, start - 1 + len(ids)) for ids in joined]
    return spans


def token_links(links: Links, source: Spans | None, target: Spans | None) -> NDArray[np.int32]:
    """Returns the pairs of tokens of linked words, [links, 2]."""
    if source is None or target is None:
        return np.zeros((0, 2), np.int32)
    pairs = sorted({(s, t) for first, second in links for s in source[first] for t in target[second]})
    return np.array(pairs, np.int32).reshape(-1, 2)
