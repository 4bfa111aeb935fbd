"""Tokenizers: the contract between text and a model's integer ids.

Each tokenizer has two halves that agree line for line: this one, plain Python for training and
evaluation on any Keras backend, and `export.graph.tokenizers`, TensorFlow ops that go into a SavedModel.
"""

import abc
import hashlib
import io
import itertools
import json
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import sentencepiece

from zoo.errors import InputError, unknown_name
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN, UNKNOWN_SURFACE
from zoo.workdir import WorkDir, replacing

# Typeset text has these where a keyboard writes a space.
_SPACES = ("\u00a0", "\u2009", "\u202f")
_SPACE_MARK = "\u2581"
_SURROGATES = re.compile("[\ud800-\udfff]")
# Scores are multiples of 1/64, whose float32 sums are exact up to 2**24 / 64; see `_round_scores`.
_SCORE_STEPS = 64
# SentencePiece samples the lines of a larger corpus, to bound its memory.
_MAX_TRAINING_LINES = 2_000_000
# Its largest bound on a line; by default it would silently drop lines above 4 kB.
_MAX_TRAINING_BYTES = 1 << 30
# What it takes to learn from a word grows faster than the word; no piece is nearly as long.
_LONGEST_WORD = 1000
_LONG_WORD = re.compile(rf"\S{{{_LONGEST_WORD}}}(?=\S)")


Replace = Callable[[Path], AbstractContextManager[Path]]


class Tokenizer(abc.ABC):
    """Turns strings into rows of ids and back. `kind` names the class in files and configurations.

    Args:
        lowercase: Whether text is read in lower case (Unicode's mapping of letters; ß stays ß).
    """

    kind: str

    def __init__(self, lowercase: bool = False):
        self.lowercase = lowercase

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, the four special ones included."""

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special ids around them."""

    def decode(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """Returns the text of each row of ids.

        A row ends at its first `END`; `PAD`, `START` and ids outside the vocabulary are skipped.
        """
        return self._decode([self._text_ids(row) for row in rows])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns one printable string per id, such as `"▁the"`; `""` for `PAD` and ids outside the vocabulary."""
        table = self.piece_table()
        return [table[i] if PAD < i < len(table) else "" for i in ids]

    @abc.abstractmethod
    def piece_table(self) -> tuple[str, ...]:
        """Returns the printable piece of every id in order."""

    def save(self, path: str | os.PathLike[str], replace: Replace = replacing) -> None:
        """Writes the tokenizer beside a model, to temporary names that are then renamed.

        At a path without suffix, `PATH.json` (and `PATH.model` for subwords) are written.

        Args:
            path: The path without suffix.
            replace: Yields the temporary path for a path, such as a work directory's own `replacing`.
        """
        path = Path(path)
        # The JSON file comes last: when it exists, the tokenizer is complete.
        for suffix, data in self._files().items():
            with replace(path.with_name(f"{path.name}{suffix}")) as temporary:
                temporary.write_bytes(data)

    def identity(self) -> str:
        """Returns a hash of all that the ids of a text depend on, the same for every copy of the tokenizer."""
        state = hashlib.sha256()
        for suffix, data in self._files().items():
            state.update(f"{suffix} {len(data)} ".encode() + data)
        return state.hexdigest()

    @abc.abstractmethod
    def _decode(self, rows: list[list[int]]) -> list[str]:
        """Returns the text of rows that hold ordinary and unknown ids only."""

    @abc.abstractmethod
    def _files(self) -> dict[str, bytes]:
        """Returns what to save by suffix, the JSON file last."""

    def _text_ids(self, row: Iterable[int]) -> list[int]:
        until_end = itertools.takewhile(lambda i: i != END, map(int, row))
        return [i for i in until_end if UNKNOWN <= i < self.vocab_size]


class SubwordTokenizer(Tokenizer):
    """SentencePiece unigram subwords; text is NFKC-normalised and spaces are squeezed.

    Args:
        model: A serialized SentencePiece model whose first four pieces are the special ones.
        lowercase: See `Tokenizer`.

    Raises:
        InputError: The bytes are no such model.
    """

    kind = "subword"
    model_type = "unigram"

    def __init__(self, model: bytes, lowercase: bool = False):
        super().__init__(lowercase)
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise InputError(f"Not a SentencePiece model ({len(model)} bytes).") from error
        size = self._processor.get_piece_size()
        self._pieces = tuple(self._processor.id_to_piece(i) for i in range(size))
        if self._pieces[:4] != SPECIAL_PIECES:
            raise InputError(f"A model's ids 0-3 must be {SPECIAL_PIECES}. Received: {self._pieces[:4]}.")

    @classmethod
    def train(
        cls, lines: Iterable[str], vocab_size: int = 8000, lowercase: bool = False, seed: int = 0
    ) -> "SubwordTokenizer":
        """Learns a vocabulary; the same lines, size and seed give the same model.

        Args:
            lines: Training text.
            vocab_size: Ids wanted. A corpus too small for them gives fewer; see `vocab_size` of the result.
            lowercase: See `Tokenizer`.
            seed: Draws the sample when there are more than two million lines.

        Raises:
            InputError: There is no text, or `vocab_size` is too small for the characters in it.
        """
        lines = [_with_short_words(line) for line in (_clean(line, lowercase) for line in lines) if line.strip()]
        if vocab_size <= len(SPECIAL_PIECES):
            raise InputError(f"`vocab_size` must exceed {len(SPECIAL_PIECES)}. Received: vocab_size={vocab_size}.")
        if not lines:
            raise InputError("A subword vocabulary needs at least one line of text. Received: none.")
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
                pad_piece=SPECIAL_PIECES[PAD],
                input_sentence_size=_MAX_TRAINING_LINES,
                max_sentence_length=_MAX_TRAINING_BYTES,
                # A constant: the number of threads changes the sums, and so the model.
                num_threads=2,
                minloglevel=2,
            )
        except RuntimeError as error:
            needed = re.search(r"required_chars. \d+ vs (\d+)", str(error))
            fix = f"needs a vocab_size of at least {needed[1]}" if needed else f"gives no subword vocabulary ({error})"
            raise InputError(f"This text {fix}. Received: vocab_size={vocab_size}.") from error
        return cls(_round_scores(model.getvalue()), lowercase)

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows: list[list[int]] = self._processor.encode([_clean(text, self.lowercase) for text in texts])
        return rows

    def piece_table(self) -> tuple[str, ...]:
        return self._pieces

    def _decode(self, rows: list[list[int]]) -> list[str]:
        return self._processor.decode(rows) if rows else []

    def _files(self) -> dict[str, bytes]:
        return {".model": self.model, ".json": json.dumps({"kind": self.kind, "lowercase": self.lowercase}).encode()}


def _with_short_words(line: str) -> str:
    """Returns a line with a space after every so many characters of a word."""
    return _LONG_WORD.sub(r"\g<0> ", line) if len(line) > _LONGEST_WORD else line


class WordTokenizer(SubwordTokenizer):
    """Words between spaces, the most frequent ones; text is NFKC-normalised. A run of other words is one unknown id.

    Args:
        model: A serialized SentencePiece model of words.
        lowercase: See `Tokenizer`.

    Raises:
        InputError: The bytes are no such model.
    """

    kind = "words"
    model_type = "word"


class CharTokenizer(Tokenizer):
    """One id per Unicode code point; the non-breaking, narrow and thin spaces are read as a space.

    Args:
        characters: The vocabulary without the special ids: id 4 is the first.
        lowercase: See `Tokenizer`.

    Raises:
        InputError: An entry is not one character, or is repeated.
    """

    kind = "chars"

    def __init__(self, characters: Sequence[str], lowercase: bool = False):
        super().__init__(lowercase)
        wrong = [c for c in characters if not isinstance(c, str) or len(c) != 1]
        if wrong or len(set(characters)) != len(characters):
            raise InputError(f"A vocabulary holds distinct single characters. Received: {wrong or 'a repeated one'}.")
        self.characters = tuple(characters)
        self.ids = {c: i for i, c in enumerate(self.characters, start=len(SPECIAL_PIECES))}
        if " " in self.ids:
            self.ids.update(dict.fromkeys(_SPACES, self.ids[" "]))

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int | None = None, lowercase: bool = False) -> "CharTokenizer":
        """Collects the characters of `lines`, the most frequent first, ties by code point.

        Args:
            lines: Training text.
            vocab_size: Ids at most, the four special ones included; the rarest characters then become
                unknown. `None` keeps all.
            lowercase: See `Tokenizer`.

        Raises:
            InputError: There is no text, or `vocab_size` leaves no room for a character.
        """
        if vocab_size is not None and vocab_size <= len(SPECIAL_PIECES):
            raise InputError(f"`vocab_size` must exceed {len(SPECIAL_PIECES)}. Received: vocab_size={vocab_size}.")
        spaces = str.maketrans(dict.fromkeys(_SPACES, " "))
        counts = Counter(itertools.chain.from_iterable(_clean(line, lowercase).translate(spaces) for line in lines))
        if not counts:
            raise InputError("A character vocabulary needs at least one character of text. Received: none.")
        ranked = sorted(counts, key=lambda c: (-counts[c], c))
        return cls(ranked if vocab_size is None else ranked[: vocab_size - len(SPECIAL_PIECES)], lowercase)

    @property
    def vocab_size(self) -> int:
        return len(SPECIAL_PIECES) + len(self.characters)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self.ids.get(c, UNKNOWN) for c in _clean(text, self.lowercase)] for text in texts]

    def piece_table(self) -> tuple[str, ...]:
        """See `Tokenizer`; a space shows as ▁ and other invisible characters by code point, `"U+200C"`."""
        return SPECIAL_PIECES + tuple(map(_printable, self.characters))

    def surfaces(self) -> tuple[str, ...]:
        """Returns what every id decodes to, in order; nothing for padding, start and end."""
        return ("", "", "", UNKNOWN_SURFACE, *self.characters)

    def _decode(self, rows: list[list[int]]) -> list[str]:
        surfaces = self.surfaces()
        return ["".join(surfaces[i] for i in row) for row in rows]

    def _files(self) -> dict[str, bytes]:
        state = {"kind": self.kind, "lowercase": self.lowercase, "characters": self.characters}
        return {".json": json.dumps(state).encode()}


_KINDS: dict[str, type[SubwordTokenizer] | type[CharTokenizer]] = {
    cls.kind: cls for cls in (SubwordTokenizer, WordTokenizer, CharTokenizer)
}


def train_tokenizer(
    kind: str, lines: Iterable[str], vocab_size: int | None = None, lowercase: bool = False
) -> Tokenizer:
    """Learns a tokenizer of a kind, `"subword"`, `"words"` or `"chars"`; with `vocab_size=None` of its usual size.

    Raises:
        InputError: The kind is unknown, or the text does not suffice.
    """
    if kind not in _KINDS:
        raise unknown_name("tokenizer", kind, _KINDS)
    sizes = {} if vocab_size is None else {"vocab_size": vocab_size}
    return _KINDS[kind].train(lines, lowercase=lowercase, **sizes)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Reads a tokenizer that `Tokenizer.save` wrote; the path is without suffix.

    Raises:
        InputError: A file is missing or does not hold a tokenizer.
    """
    path = Path(path)
    described = path.with_name(f"{path.name}.json")
    content = _read(described)
    try:
        state = json.loads(content)
    except ValueError as error:
        raise InputError(f"{described}: not a tokenizer (invalid JSON).") from error
    kind = state.get("kind") if isinstance(state, dict) else None
    if kind not in _KINDS:
        raise InputError(f"{described}: {unknown_name('tokenizer', str(kind), _KINDS)}")
    lowercase = state.get("lowercase", False)
    tokenizer = _KINDS[kind]
    if issubclass(tokenizer, SubwordTokenizer):
        return tokenizer(_read(path.with_name(f"{path.name}.model")), lowercase)
    characters = state.get("characters")
    if not isinstance(characters, list):
        raise InputError(f"{described}: a character tokenizer needs a list 'characters'. Received: {characters!r}.")
    return tokenizer(characters, lowercase)


def load_tokenizers(workdir: WorkDir, names: Iterable[str], options: Mapping[str, Any]) -> dict[str, Tokenizer]:
    """Returns the tokenizers of a work directory by name; `options` are those of its model.

    Raises:
        InputError: If one is missing or damaged, or does not fit the model.
    """
    workdir.check("tokenizers")
    tokenizers = {name: load_tokenizer(workdir.tokenizer(name)) for name in names}
    for name, tokenizer in tokenizers.items():
        expected = options.get("vocab_size" if name == "text" else f"{name}_vocab_size")
        if expected not in (None, tokenizer.vocab_size):
            raise InputError(
                f"{workdir.tokenizer(name)}.json is not the tokenizer of this model: it has {tokenizer.vocab_size} "
                f"symbols, and the model reads {expected}."
            )
    return tokenizers


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which no UTF-8 can hold, as TensorFlow replaces invalid bytes."""
    return _SURROGATES.sub("\ufffd", text)


def _clean(text: str, lowercase: bool = False) -> str:
    """Returns a text as TensorFlow would read it, if asked for in lower case.

    TensorFlow's lower case ends at a NUL, which is therefore replaced as well.
    """
    text = without_surrogates(text)
    return text.replace("\0", "\ufffd").lower() if lowercase else text


def _round_scores(model: bytes) -> bytes:
    """Rounds the scores of a serialized SentencePiece model, so that all its readers segment alike.

    "..." is "." + ".." or ".." + ".", whose scores differ only by rounding; the SentencePiece inside
    TensorFlow Text adds in double precision where the newer one of the Python package adds in single, and
    then they choose differently. With exact sums, both choose the first.

    The fields are read here because the generated protobuf code of the `sentencepiece` package refuses
    the older protobuf that TensorFlow needs. A model is a sequence of length-delimited fields; number 1 is
    a piece, which begins with its text (tag 0x0a) and its score (tag 0x15, a float).
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


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads protobuf's variable-length integer; returns it and the offset after it."""
    value, shift = 0, 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


def _printable(character: str) -> str:
    if character == " ":
        return _SPACE_MARK
    return character if character.isprintable() else f"U+{ord(character):04X}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a saved tokenizer.") from error
