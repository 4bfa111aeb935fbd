"""Subwords and words by SentencePiece."""

import io
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import sentencepiece

from zoo.errors import InputError, unknown_name
from zoo.text.base import Tokenizer, clean
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN

# Scores are multiples of 1/64, whose float32 sums are exact up to 2**24 / 64; see `_round_scores`.
_SCORE_STEPS = 64
# SentencePiece samples this many lines of a larger corpus, to limit its memory.
_MAX_TRAINING_LINES = 2_000_000
# SentencePiece's maximum length of a line; by default it would silently drop lines above 4 kB.
_MAX_TRAINING_BYTES = 1 << 30
# The time to learn from a word grows faster than its length; no piece is nearly as long.
_LONGEST_WORD = 1000
_LONG_WORD = re.compile(rf"\S{{{_LONGEST_WORD}}}(?=\S)")


NORMALIZATIONS = ("auto", "nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
"""SentencePiece's normalization rules by name, and `auto`: `nmt_nfkc` without its rules for joiners."""
# The joiner and the non-joiner are needed in Persian, Telugu and others; `nmt_nfkc` replaces them by spaces. During
# training, they are replaced by code points of equal length in bytes that occur in no text.
_JOINERS: dict[str, str] = {"\u200c": "\ufdd0", "\u200d": "\ufdd1"}


class SubwordTokenizer(Tokenizer):
    """SentencePiece unigram subwords; text is normalized, see `NORMALIZATIONS`, and spaces are merged.

    Args:
        model: A serialized SentencePiece model whose first four pieces are the special ones.
        lowercase: See `Tokenizer`.

    Raises:
        InputError: The bytes are not such a model.
    """

    kind = "subword"
    model_type = "unigram"

    def __init__(self, model: bytes, lowercase: bool = False):
        super().__init__(lowercase)
        self.model, self._processor = model, read_model(model)
        self._pieces = self._read_pieces()
        if self._pieces[:4] != SPECIAL_PIECES:
            raise InputError(f"A model's ids 0-3 must be {SPECIAL_PIECES}. Received: {self._pieces[:4]}.")

    def _read_pieces(self) -> tuple[str, ...]:
        """Returns the piece of each id."""
        return tuple(map(self._processor.id_to_piece, range(self._processor.get_piece_size())))

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocab_size: int = 8000,
        lowercase: bool = False,
        seed: int = 0,
        normalization: str = "auto",
    ) -> "SubwordTokenizer":
        """Learns a vocabulary; the same lines, size and seed give the same model.

        Args:
            lines: Training text.
            vocab_size: Number of ids. A corpus that is too small gives fewer; see `vocab_size` of the result.
            lowercase: See `Tokenizer`.
            seed: Seed for sampling lines if there are more than two million.
            normalization: One of `NORMALIZATIONS`.

        Raises:
            InputError: There is no text, `vocab_size` is too small for its characters, or `normalization` is unknown.
        """
        if normalization not in NORMALIZATIONS:
            raise unknown_name("normalization", normalization, NORMALIZATIONS)
        lines = [_with_short_words(line) for line in (clean(line, lowercase) for line in lines) if line.strip()]
        if keeps_joiners := normalization == "auto":
            joiners = [*_JOINERS.items()]
            lines = [line.replace(*joiners[0]).replace(*joiners[1]) for line in lines]
        if vocab_size <= len(SPECIAL_PIECES):
            raise InputError(f"`vocab_size` must exceed {len(SPECIAL_PIECES)}. Received: vocab_size={vocab_size}.")
        if not lines:
            raise InputError("A subword vocabulary requires at least one line of text. Received: none.")
        model = io.BytesIO()
        sentencepiece.set_random_generator_seed(seed)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type=cls.model_type,
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                character_coverage=1.0,
                pad_id=PAD,
                bos_id=START,
                eos_id=END,
                unk_id=UNKNOWN,
                normalization_rule_name="nmt_nfkc" if keeps_joiners else normalization,
                pad_piece=SPECIAL_PIECES[PAD],
                input_sentence_size=_MAX_TRAINING_LINES,
                max_sentence_length=_MAX_TRAINING_BYTES,
                # A constant, because the number of threads changes sums and thus the model.
                num_threads=2,
                minloglevel=2,
            )
        except RuntimeError as error:
            needed = re.search(r"required_chars. \d+ vs (\d+)", str(error))
            fix = f"requires a vocab_size of at least {needed[1]}" if needed else f"gives no vocabulary ({error})"
            raise InputError(f"This text {fix}. Received: vocab_size={vocab_size}.") from error
        learned = _round_scores(model.getvalue())
        return cls(_with_joiners(learned) if keeps_joiners else learned, lowercase)

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        return cls(read(".model"), state.get("lowercase", False))

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows: list[list[int]] = self._processor.encode([clean(text, self.lowercase) for text in texts])
        return rows

    @property
    def is_unigram(self) -> bool:
        """Whether the model is a unigram model, with several segmentations per word and their probabilities."""
        try:
            return bool(self._processor.nbest_encode("a", nbest_size=1))
        except RuntimeError:  # raised for other models, such as BPE
            return False

    def segmentations(self, word: str, count: int) -> list[tuple[tuple[int, ...], float]]:
        """Returns the most probable segmentations of a word, which is written as in `piece_table`.

        Args:
            word: The word; a `▁` before it is optional, because SentencePiece adds it.
            count: Maximum number of segmentations.

        Returns:
            The ids of each segmentation and its log probability, best first.
        """
        segmentations = self._processor.nbest_encode(word.removeprefix("▁"), nbest_size=count, out_type=int)
        return [(tuple(ids), sum(map(self._processor.get_score, ids))) for ids in segmentations]

    def piece_table(self) -> tuple[str, ...]:
        return self._pieces

    def _decode(self, rows: list[list[int]]) -> list[str]:
        return self._processor.decode(rows) if rows else []

    def _files(self) -> dict[str, bytes]:
        return {".model": self.model, ".json": json.dumps({"kind": self.kind, "lowercase": self.lowercase}).encode()}


def read_model(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """Deserializes a SentencePiece model.

    Raises:
        InputError: The bytes are not such a model.
    """
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise InputError(f"Not a SentencePiece model ({len(model)} bytes).") from error
    return processor


def _with_short_words(line: str) -> str:
    """Returns a line with spaces in words that are too long for training."""
    return _LONG_WORD.sub(r"\g<0> ", line) if len(line) > _LONGEST_WORD else line


class WordTokenizer(SubwordTokenizer):
    """The most frequent words of texts with spaces between words; text is normalized as for subwords.

    Consecutive words that are not among them are one unknown id.

    Args:
        model: A serialized SentencePiece model of words.
        lowercase: See `Tokenizer`.

    Raises:
        InputError: The bytes are not such a model.
    """

    kind = "words"
    model_type = "word"


def _round_scores(model: bytes) -> bytes:
    """Rounds the scores of a serialized SentencePiece model, so that all implementations segment equally.

    "..." is "." + ".." or ".." + ".", whose scores differ only by rounding. The SentencePiece inside TensorFlow Text
    adds in double precision, the newer Python package in single precision, so they choose differently. With exact
    sums, both choose the first.

    The fields are parsed here because the generated protobuf code of the `sentencepiece` package is incompatible with
    the older protobuf that TensorFlow requires. A model is a sequence of length-delimited fields; number 1 is a piece,
    which begins with its text (tag 0x0a) and its score (tag 0x15, a float).
    """
    rounded, at = bytearray(model), 0
    while at < len(model):
        is_piece = model[at] == 0x0A
        size, start = _varint(model, at + 1)
        at = start + size
        if is_piece:
            text_size, text_start = _varint(model, start + 1)
            tag = text_start + text_size
            if tag < at and model[tag] == 0x15:
                (score,) = struct.unpack_from("<f", model, tag + 1)
                struct.pack_into("<f", rounded, tag + 1, round(score * _SCORE_STEPS) / _SCORE_STEPS)
    return bytes(rounded)


def _with_joiners(model: bytes) -> bytes:
    """Returns a model with the joiners back in its pieces, and without the rules that normalize joiners.

    The normalization rules are field 2 of field 3 of the model: a double-array trie of their keys (Yata's darts-clone)
    and then the replacements. A key without the mark of a leaf never matches.
    """
    changed = bytearray(model)
    for number, start, end in fields(model, 0, len(model)):
        if number == 1:  # a piece
            for joiner, other in _JOINERS.items():
                changed[start:end] = changed[start:end].replace(other.encode(), joiner.encode())
        elif number == 3:
            for inner, first, last in fields(model, start, end):
                if inner == 2 and last - first > 4:
                    (size,) = struct.unpack_from("<I", model, first)
                    for joiner in _JOINERS:
                        _remove_rule(changed, first + 4, size // 4, joiner.encode())
    return bytes(changed)


def _remove_rule(model: bytearray, start: int, count: int, key: bytes) -> None:
    """Removes the mark of a leaf from a key, if it exists, in a double array with `count` units."""

    def unit(place: int) -> int:
        return int(struct.unpack_from("<I", model, start + 4 * place)[0])

    def offset(value: int) -> int:
        return (value >> 10) << ((value & (1 << 9)) >> 6)

    place = offset(unit(0))
    for number, byte in enumerate(key, start=1):
        place ^= byte
        if place >= count or unit(place) & (1 << 31 | 0xFF) != byte:
            return
        if number == len(key):
            struct.pack_into("<I", model, start + 4 * place, unit(place) & ~(1 << 8))
        else:
            place ^= offset(unit(place))


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields number, start and end of the length-delimited fields of a protobuf message."""
    sizes = {1: 8, 5: 4}
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 2:
            size, at = _varint(data, at)
            yield tag >> 3, at, at + size
            at += size
        else:
            at = _varint(data, at)[1] if kind == 0 else at + sizes[kind]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a variable-length integer of protobuf; returns it and the offset after it."""
    value, shift = 0, 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1
