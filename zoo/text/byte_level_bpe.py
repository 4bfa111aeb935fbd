"""Byte-level BPE, the tokenizer of GPT-2 and later models."""

import functools
import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from zoo.errors import InputError
from zoo.text.base import Tokenizer, saved_list, without_surrogates
from zoo.text.composition import composed
from zoo.text.word_splits import GPT2, WORD_RULES, word_pattern
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START

_MAX_CACHED_WORDS = 1 << 16
# Bytes that are printable in Latin-1, which a vocabulary file contains unchanged.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_NEVER_IN_UTF8 = (0xC0, 0xC1, *range(0xF5, 0x100))


def byte_alphabet() -> tuple[str, ...]:
    """Returns the character for each byte in a vocabulary; unprintable bytes are mapped to U+0100 and above."""
    others = [byte for byte in range(256) if byte not in _PRINTABLE]
    return tuple(chr(byte) if byte in _PRINTABLE else chr(0x100 + others.index(byte)) for byte in range(256))


_ALPHABET = byte_alphabet()


class AddedToken(NamedTuple):
    """A token that was added to a vocabulary.

    Attributes:
        text: Its text.
        token_id: Its id.
        is_composed: Whether it is found after texts are composed, instead of before.
    """

    text: str
    token_id: int
    is_composed: bool


class ByteLevelBPETokenizer(Tokenizer):
    """Splits words into UTF-8 bytes, and repeatedly merges the adjacent pair of the earliest learned merge.

    Every text has distinct ids; there is no unknown token, and id 3 is an ordinary token. See `zoo.text.word_splits`
    for the words. Texts of the `added` tokens are separated from their surroundings first; of two that begin at one
    place, the longer.

    Args:
        pieces: The vocabulary: a piece for each id, its bytes encoded by `byte_alphabet`. The first three are those of
            padding, start and end.
        merges: The pairs of pieces that are merged, in the order in which they were learned.
        controls: Ids of further pieces that are not text: no text is encoded to them, and they decode to nothing.
        original_ids: The id of each piece in the original vocabulary, −1 for none. Default: the same ids.
        added: The tokens that were added to the vocabulary; their pieces are empty unless they were pieces before.
        compose: Whether text is composed first (`zoo.text.composition`); different texts may then have the same ids.
        words: The name of the rule for words, one of `zoo.text.word_splits.WORD_RULES`.
        whole_words: Whether a word that is a piece is that token, even if its merges lead to others (Llama 3).

    Raises:
        InputError: A byte or the result of a merge has no piece, a piece is repeated or not a sequence of bytes, or
            there is no such rule.

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
        added: Iterable[AddedToken] = (),
        compose: bool = False,
        words: str = GPT2,
        whole_words: bool = False,
    ):
        super().__init__()
        self.added, self.compose, self.words, self.whole_words = tuple(added), compose, words, whole_words
        if words not in WORD_RULES:
            raise InputError(f"`words` must be one of {', '.join(WORD_RULES)}. Received: {words!r}.")
        self.added_ids = {token.text: token.token_id for token in self.added}
        """The id of each added token, by its text."""
        self.controls = frozenset(controls) | {PAD, START, END}
        self._saved_pieces = tuple(pieces)
        self.original_ids = tuple(range(len(self._saved_pieces)) if original_ids is None else original_ids)
        if len(self.original_ids) != len(self._saved_pieces):
            raise InputError(
                f"`original_ids` must contain one id for each of {len(self._saved_pieces)} pieces. "
                f"Received: {len(self.original_ids)}."
            )
        self.ids = ids = self._ids_of_text()
        """The id of each piece that occurs in texts, without `added` ones that were no pieces before."""
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
            if index in self.controls or not piece:
                continue
            if ids.setdefault(piece, index) != index:
                raise InputError(f"The pieces of a vocabulary must be distinct. Received: {piece!r} twice.")
        return ids

    def _bytes_of_pieces(self) -> tuple[bytes, ...]:
        values = {character: byte for byte, character in enumerate(byte_alphabet())}
        try:
            surfaces = [
                b"" if index in self.controls else bytes(values[character] for character in piece)
                for index, piece in enumerate(self._saved_pieces)
            ]
        except KeyError as error:
            raise InputError(f"A piece of a byte-level vocabulary contains {error}, which encodes no byte.") from None
        for token in self.added:  # decoded like pieces where possible, as in the reference
            is_piece = all(character in values for character in token.text)
            surface = bytes(values[character] for character in token.text) if is_piece else token.text.encode()
            surfaces[token.token_id] = surface
        return tuple(surfaces)

    @staticmethod
    def _id(ids: dict[str, int], piece: str, of: str) -> int:
        if piece not in ids:
            raise InputError(f"The vocabulary has no piece {piece!r}, which {of} requires.")
        return ids[piece]

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        merges = [pair.split(" ") for pair in saved_list(state, "merges")]
        controls, original_ids = (saved_list(state, name) for name in ("controls", "original_ids"))
        pieces, runs = saved_list(state, "pieces"), state.get("runs", ())  # older files have only runs of spaces
        added = [AddedToken(" " * length, index, True) for length, index in enumerate(runs, start=2)]
        pieces = ["" if index in runs else piece for index, piece in enumerate(pieces)]
        added += [AddedToken(*token) for token in state.get("added", ())]
        options = {name: state[name] for name in ("compose", "words", "whole_words") if name in state}
        return cls(pieces, merges, controls, original_ids, added, **options)

    @property
    def vocab_size(self) -> int:
        return len(self._saved_pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(self._ids(without_surrogates(text))) for text in texts]

    def _ids(self, text: str) -> Iterator[int]:
        find = word_pattern(self.words).findall
        for part, index in self._parts(text, is_composed=False):
            if index is not None:
                yield index
                continue
            for inner, inner_index in self._parts(composed(part) if self.compose else part, is_composed=True):
                if inner_index is not None:
                    yield inner_index
                    continue
                for word in find(inner):
                    yield from self._word_ids(word)

    def _parts(self, text: str, is_composed: bool) -> Iterator[tuple[str, int | None]]:
        """Yields the parts of a text between added tokens, and the tokens with their ids."""
        pattern = self._patterns[is_composed]
        for place, part in enumerate(pattern.split(text) if pattern else [text]):
            yield part, self.added_ids[part] if place % 2 else None

    @property
    def is_basic(self) -> bool:
        """Whether it is a tokenizer of GPT-2, whose files have only pieces and merges."""
        return self.words == GPT2 and not (self.added or self.compose or self.whole_words)

    @functools.cached_property
    def _patterns(self) -> dict[bool, re.Pattern[str] | None]:
        """Regular expressions of the added tokens that are found before composing, and after it."""
        return {
            is_composed: re.compile(f"({'|'.join(map(re.escape, texts))})") if texts else None
            for is_composed in (False, True)
            for texts in [self.added_texts(is_composed)]
        }

    def added_texts(self, is_composed: bool) -> list[str]:
        """Returns the texts of added tokens that are found before composing, or after it, the longest first."""
        texts = [token.text for token in self.added if token.is_composed == is_composed]
        return sorted(texts, key=len, reverse=True)

    def _word_ids(self, word: str) -> tuple[int, ...]:
        ids = self._cache.get(word)
        if ids is None:
            ids = self.word_ids(word.encode())
            if len(self._cache) >= _MAX_CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def word_ids(self, word: bytes) -> tuple[int, ...]:
        """Returns the ids of a word, given its bytes in UTF-8."""
        whole = self.ids.get("".join(map(_ALPHABET.__getitem__, word))) if self.whole_words else None
        return self.merged(word) if whole is None else (whole,)

    def merged(self, word: bytes) -> tuple[int, ...]:
        """Returns the ids to which the bytes of a word are merged.

        The ids form a linked list, and the pairs a heap, which takes O(n log n); words may be as long as the text.
        """
        tokens = [self.byte_ids[byte] for byte in word]
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

        `added` tokens that were no pieces before are excluded. If one token both begins and ends texts, it has the
        name of the end.
        """
        excluded = self.controls - {START, END}
        pieces = [(piece, i) for i, piece in enumerate(self._saved_pieces) if i not in excluded and piece]
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
            "added": self.added,
            "compose": self.compose,
            "words": self.words,
            "whole_words": self.whole_words,
        }
        return {".json": json.dumps(state, ensure_ascii=False).encode()}


def _printable(surface: bytes) -> str:
    try:
        text = surface.decode()
    except UnicodeDecodeError:
        return "".join(f"<0x{byte:02X}>" for byte in surface)
    return "".join("▁" if c == " " else c if c.isprintable() else f"U+{ord(c):04X}" for c in text)
