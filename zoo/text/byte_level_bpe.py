"""Byte-level BPE, the tokenizer of GPT-2 and later models."""

import heapq
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from zoo.errors import InputError
from zoo.text.base import Tokenizer, saved_list, without_surrogates
from zoo.text.composition import composed
from zoo.text.word_splits import word_pattern
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START

_MAX_CACHED_WORDS = 1 << 16
# Bytes that are printable in Latin-1, which a vocabulary file contains unchanged.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_NEVER_IN_UTF8 = (0xC0, 0xC1, *range(0xF5, 0x100))


def byte_alphabet() -> tuple[str, ...]:
    """Returns the character for each byte in a vocabulary; unprintable bytes are mapped to U+0100 and above."""
    others = [byte for byte in range(256) if byte not in _PRINTABLE]
    return tuple(chr(byte) if byte in _PRINTABLE else chr(0x100 + others.index(byte)) for byte in range(256))


class ByteLevelBPETokenizer(Tokenizer):
    """Splits words into UTF-8 bytes, and repeatedly merges the adjacent pair of the earliest learned merge.

    Every text has distinct ids; there is no unknown token, and id 3 is an ordinary token. See `zoo.text.word_splits`
    for the words. With `runs`, runs of spaces are tokens, separate from the words around them.

    Args:
        pieces: The vocabulary: a piece for each id, its bytes encoded by `byte_alphabet`. The first three are those of
            padding, start and end.
        merges: The pairs of pieces that are merged, in the order in which they were learned.
        controls: Ids of further pieces that are not text: no text is encoded to them, and they decode to nothing.
        original_ids: The id of each piece in the original vocabulary, −1 for none. Default: the same ids.
        runs: Ids of the tokens for runs of two spaces, three, and so on.
        compose: Whether text is composed first (`zoo.text.composition`); different texts may then have the same ids.

    Raises:
        InputError: A byte or the result of a merge has no piece, or a piece is repeated or not a sequence of bytes.

    Reference:
        Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units", section 3.2 (merges),
        https://arxiv.org/abs/1508.07909; Radford et al. 2019, "Language Models are Unsupervised Multitask Learners",
        section 2.2 (bytes)
    """

    kind = "byte_bpe"

    def __init__(
        self,
        pieces: Sequence[str],
        merges: Iterable[Sequence[str]],
        controls: Iterable[int] = (),
        original_ids: Sequence[int] | None = None,
        runs: Sequence[int] = (),
        compose: bool = False,
    ):
        super().__init__()
        self.runs, self.compose = tuple(runs), compose
        self._run_ids = {" " * length: index for length, index in enumerate(self.runs, start=2)}
        self.controls = frozenset(controls) | {PAD, START, END}
        self._saved_pieces = tuple(pieces)
        self.original_ids = tuple(range(len(self._saved_pieces)) if original_ids is None else original_ids)
        if len(self.original_ids) != len(self._saved_pieces):
            raise InputError(
                f"`original_ids` must contain one id for each of {len(self._saved_pieces)} pieces. "
                f"Received: {len(self.original_ids)}."
            )
        ids = self._ids_of_text()
        self._surfaces = self._bytes_of_pieces()
        self.byte_ids = tuple(
            PAD if byte in _NEVER_IN_UTF8 and character not in ids else self._id(ids, character, "a byte")
            for byte, character in enumerate(byte_alphabet())
        )
        self._saved_merges = tuple((left, right) for left, right in merges)
        self.merges = tuple(
            (self._id(ids, left, "a merge"), self._id(ids, right, "a merge"), self._id(ids, left + right, "a merge"))
            for left, right in self._saved_merges
        )
        """The ids of each merge and of its result, in order."""
        self._ranks = {(left, right): (rank, merged) for rank, (left, right, merged) in enumerate(self.merges)}
        self._cache: dict[str, tuple[int, ...]] = {}

    def _ids_of_text(self) -> dict[str, int]:
        ids: dict[str, int] = {}
        for index, piece in enumerate(self._saved_pieces):
            if index in self.controls or index in self.runs:
                continue
            if ids.setdefault(piece, index) != index:
                raise InputError(f"The pieces of a vocabulary must be distinct. Received: {piece!r} twice.")
        return ids

    def _bytes_of_pieces(self) -> tuple[bytes, ...]:
        values = {character: byte for byte, character in enumerate(byte_alphabet())}
        try:
            return tuple(
                b"" if index in self.controls else bytes(values[character] for character in piece)
                for index, piece in enumerate(self._saved_pieces)
            )
        except KeyError as error:
            raise InputError(f"A piece of a byte-level vocabulary contains {error}, which encodes no byte.") from None

    @staticmethod
    def _id(ids: dict[str, int], piece: str, of: str) -> int:
        if piece not in ids:
            raise InputError(f"The vocabulary has no piece {piece!r}, which {of} requires.")
        return ids[piece]

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        merges = [pair.split(" ") for pair in saved_list(state, "merges")]
        controls, original_ids = (saved_list(state, name) for name in ("controls", "original_ids"))
        runs, compose = state.get("runs", ()), bool(state.get("compose"))
        return cls(saved_list(state, "pieces"), merges, controls, original_ids, runs, compose)

    @property
    def vocab_size(self) -> int:
        return len(self._saved_pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        valid = map(without_surrogates, texts)
        return [
            [i for word in self._words(composed(text) if self.compose else text) for i in self._word_ids(word)]
            for text in valid
        ]

    def _words(self, text: str) -> list[str]:
        find = word_pattern().findall
        if not self.runs:
            return find(text)
        parts = re.split(f"( {{2,{len(self.runs) + 1}}})", text)
        return [word for part in parts for word in ([part] if part in self._run_ids else find(part))]

    def _word_ids(self, word: str) -> tuple[int, ...]:
        if word in self._run_ids:
            return (self._run_ids[word],)
        ids = self._cache.get(word)
        if ids is None:
            ids = self._merged([self.byte_ids[byte] for byte in word.encode()])
            if len(self._cache) >= _MAX_CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def _merged(self, tokens: list[int]) -> tuple[int, ...]:
        """Returns the ids of a word, given the ids of its bytes.

        The ids form a linked list, and the pairs a heap, which takes O(n log n); words may be as long as the text.
        """
        end = len(tokens)
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        candidates = [
            (self._ranks[pair][0], place, pair)
            for place, pair in enumerate(zip(tokens, tokens[1:], strict=False))
            if pair in self._ranks
        ]
        heapq.heapify(candidates)

        def push(place: int) -> None:
            if place >= 0 and after[place] < end:
                pair = tokens[place], tokens[after[place]]
                if pair in self._ranks:
                    heapq.heappush(candidates, (self._ranks[pair][0], place, pair))

        while candidates:
            _, place, pair = heapq.heappop(candidates)
            right = after[place]
            if tokens[place] < 0 or right >= end or (tokens[place], tokens[right]) != pair:
                continue  # one of the two was merged with another
            tokens[place], tokens[right] = self._ranks[pair][1], -1
            after[place] = after[right]
            if after[place] < end:
                before[after[place]] = place
            push(before[place])
            push(place)
        return tuple(token for token in tokens if token >= 0)

    def piece_table(self) -> tuple[str, ...]:
        """See `Tokenizer`; a space is printed as ▁, and incomplete characters as bytes, `"<0xE2>"`."""
        printable = map(_printable, self._surfaces)
        special = dict(enumerate(SPECIAL_PIECES[:3])) | {i: self._saved_pieces[i] for i in self.controls if i > END}
        return tuple(special.get(index, text) for index, text in enumerate(printable))

    def vocabulary(self) -> tuple[dict[str, int], list[str]]:
        """Returns the original ids of the pieces for text and of start and end, and the merges.

        Runs of spaces are excluded, because a piece of the same spaces may have another id, as in Pythia. If one token
        both begins and ends texts, it has the name of the end.
        """
        excluded = self.controls - {START, END} | set(self.runs)
        pieces = [(piece, i) for i, piece in enumerate(self._saved_pieces) if i not in excluded]
        names = {self.original_ids[index]: piece for piece, index in pieces}
        return {names[index]: index for index in sorted(names)}, [" ".join(pair) for pair in self._saved_merges]

    def surfaces(self) -> tuple[bytes, ...]:
        """Returns the decoded bytes of every id, in order."""
        return self._surfaces

    def _decode(self, rows: list[list[int]]) -> list[str]:
        return [b"".join(self._surfaces[i] for i in row).decode("utf-8", "replace") for row in rows]

    def _files(self) -> dict[str, bytes]:
        state = {
            "kind": self.kind,
            "pieces": self._saved_pieces,
            "merges": [" ".join(pair) for pair in self._saved_merges],
            "controls": sorted(self.controls),
            "original_ids": self.original_ids,
            "runs": self.runs,
            "compose": self.compose,
        }
        return {".json": json.dumps(state, ensure_ascii=False).encode()}


def _printable(surface: bytes) -> str:
    try:
        text = surface.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in surface)
    return "".join("▁" if c == " " else c if c.isprintable() else f"U+{ord(c):04X}" for c in text)
