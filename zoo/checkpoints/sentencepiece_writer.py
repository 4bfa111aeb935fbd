"""Converts a `tokenizer.json` to a SentencePiece model, for folders that have no model, and back.

The model has the pieces of the file with their ids, and splits text in the same way. Steps that SentencePiece lacks are
refused.
"""

import base64
import binascii
import itertools
import struct
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from zoo.errors import InputError
from zoo.text.mapped_subwords import SPACE
from zoo.text.subwords import fields, read_model

_UNIGRAM, _BPE = 1, 2
AS_THEY_ARE = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
"""Flags of an added token that is found in texts as it is written, and nowhere else."""
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_SPACES = " {2,}"
# Unicode's White_Space, at which `WhitespaceSplit` splits text.
_WHITE = (*range(0x09, 0x0E), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)

# `nmt_nfkc`, the rules of most models, do not replace these two by spaces.
_NEVER_WHITE = (0x0B, 0x85)


# Steps of decoders, which keep all spaces.
_PREPENDED = {"type": "Prepend", "prepend": SPACE}
_REPLACED = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
_METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": False}
_JOINED = (
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
)
_STRIPPED = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def described_sentencepiece(
    path: Path, described: Mapping[str, Any], controls: Collection[str], unknown: str | None = None
) -> bytes:
    """Returns the SentencePiece model that a `tokenizer.json` describes, whose pieces have the ids of the file.

    Args:
        path: The file, for errors.
        described: The content of the file.
        controls: Special pieces, besides those that the file marks as special.
        unknown: The unknown token of a decoder, whose BPE keeps all spaces and replaces unknown characters by bytes.
            Default: of other models.

    Raises:
        InputError: If it is neither Unigram nor BPE, or has steps that SentencePiece lacks.
    """
    model = described.get("model") or {}
    controls = {*controls, *(token["content"] for token in described.get("added_tokens") or [] if token["special"])}
    kind, has_bytes = model.get("type"), unknown is not None
    kinds = dict.fromkeys(controls, _CONTROL)
    if has_bytes:
        kinds |= _kinds_of_decoder(path, described, controls)
    if kind == "Unigram":
        pieces = [(str(piece), float(score)) for piece, score in model["vocab"]]
        unknown_id = model.get("unk_id")
    elif kind == "BPE":
        unknown = model.get("unk_token") or unknown
        unknown_id = model["vocab"].get(unknown)
        pieces = _ranked(path, model, kinds | {str(unknown): _UNKNOWN})
    else:
        raise InputError(f"{path}: model.type must be Unigram or BPE. Received: model.type={kind!r}.")
    for name in ("byte_fallback", "dropout", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix"):
        if bool(received := model.get(name)) != (expected := has_bytes and name == "byte_fallback"):
            raise InputError(
                f"{path}: model.{name} must be {'true' if expected else 'false or null'} to be imported. "
                f"Received: {received!r}."
            )
    if unknown_id is None or not 0 <= unknown_id < len(pieces):
        raise InputError(f"{path} must have an unknown piece. Received: {unknown_id!r}.")
    if not has_bytes and any(SPACE in piece[1:].lstrip(SPACE) for piece, _ in pieces if piece not in controls):
        raise InputError(f"{path} has a piece of two words; pieces must be within words.")
    kinds[pieces[unknown_id][0]] = _UNKNOWN
    written = b"".join(_written(piece, score, kinds.get(piece, _NORMAL)) for piece, score in pieces)
    trainer = _number(3, _UNIGRAM if kind == "Unigram" else _BPE) + _number(4, len(pieces)) + _number(40, unknown_id)
    if has_bytes:
        rules = _number(3, space_before(path, described) == "Prepend") + _number(4, 0)
        return written + _field(2, trainer + _number(35, 1)) + _field(3, _field(1, b"described") + rules)
    charsmap, splits_at_white = _rules(path, described)
    _check_decoder(path, described.get("decoder") or {})
    content = written + _field(2, trainer) + _field(3, _field(1, b"described") + _field(2, charsmap))
    if splits_at_white:
        _check_white(path, content)
    return content


def _check_white(path: Path, model: bytes) -> None:
    """Checks that white space characters become spaces; raises InputError if one does not."""
    processor = read_model(model)
    for code in {*_WHITE} - {*_NEVER_WHITE}:
        if processor.normalize(f"a{chr(code)}a") != processor.normalize("a a"):
            raise InputError(
                f"{path}: normalizer must replace all white space by spaces if pre_tokenizer splits text at it. "
                f"Received: rules that keep U+{code:04X}."
            )


def space_before(path: Path, described: Mapping[str, Any]) -> str:
    """Returns the type of the step by which a decoder puts a space before texts, empty if it puts none.

    `Prepend` puts it before all texts, `Metaspace` before those that begin without one.

    Raises:
        InputError: If other steps change or split texts, or join pieces.
    """
    steps, splits = list(steps_of(described.get("normalizer"))), list(steps_of(described.get("pre_tokenizer")))
    decoder = described.get("decoder")
    scheme = splits[0].get("prepend_scheme") if splits else None
    if not steps and splits == [{**_METASPACE, "prepend_scheme": scheme}] and scheme in ("first", "always", "never"):
        before = "" if scheme == "never" else "Metaspace"
    elif steps in ([_REPLACED], [_PREPENDED, _REPLACED]) and splits in ([], [_SPLIT]):
        before = "Prepend" if _PREPENDED in steps else ""
    else:
        raise InputError(
            f"{path}: normalizer and pre_tokenizer must replace spaces by {SPACE} (Replace, or Metaspace without "
            f"split). Received: normalizer={steps!r:.200}, pre_tokenizer={splits!r:.200}."
        )
    if decoder != (joined := {"type": "Sequence", "decoders": [*_JOINED, *([_STRIPPED] if before else [])]}):
        raise InputError(f"{path}: decoder must be {joined}. Received: {decoder!r:.300}.")
    return before


def _kinds_of_decoder(path: Path, described: Mapping[str, Any], controls: Collection[str]) -> dict[str, int]:
    """Returns the kinds of bytes and of added tokens that are not special.

    `tokenizers` finds added tokens with a space only in texts that contain the character ▁. They remain ordinary
    pieces, unless merges of spaces come first, as in files of Gemma.

    Raises:
        InputError: If bytes are missing, or SentencePiece finds added tokens elsewhere than `tokenizers`.
    """
    vocabulary = described["model"]["vocab"]
    if missing := [piece for piece in _BYTES if piece not in vocabulary]:
        raise InputError(f"{path}: model.vocab must have all 256 bytes. Received: none that is {missing[0]}.")
    kinds, runs = dict.fromkeys(_BYTES, _BYTE), set()
    for token in described.get("added_tokens") or []:
        piece, index = token["content"], token["id"]
        if vocabulary.get(piece, max(index, len(vocabulary))) != index:
            raise InputError(f"{path}: added_tokens must have their ids in model.vocab. Received: {piece!r}, {index}.")
        if piece in controls or piece not in vocabulary:
            continue
        moves = [key for key in ("single_word", "lstrip", "rstrip") if token.get(key)]
        if moves or " " in piece or (SPACE in piece and token.get("normalized", True)) or space_before(path, described):
            raise InputError(
                f"{path}: added_tokens must be special, or neither have spaces nor trim them, in texts without a space "
                f"before them. Received: {dict(token)!r:.200}."
            )
        if SPACE in piece:
            runs.add(piece)
        else:
            kinds[piece] = _USER_DEFINED
    others = kinds.keys() | {*controls}
    pairs = [pair for pair in _pairs(described["model"]) if "".join(pair) not in others]
    return kinds | (dict.fromkeys(runs, _USER_DEFINED) if runs and _begins_with_runs(pairs, runs) else {})


def _begins_with_runs(pairs: Sequence[tuple[str, ...]], runs: Collection[str]) -> bool:
    """Returns whether merges divide spaces first, from left to right, into the longest of several runs of spaces."""
    count = sum("".join(pair) in runs for pair in pairs)
    ranks = {pair: rank for rank, pair in enumerate(pairs[:count])}
    growing = [ranks.get((size * SPACE, SPACE), count) for size in range(len(runs), 0, -1)]
    return (
        {*runs} == {size * SPACE for size in range(2, len(runs) + 2)}
        and all("".join(pair) in runs for pair in ranks)
        and max(growing) == growing[-1] < count
        and not any(half in runs for pair in pairs[count:] for half in pair)
    )


def _pairs(model: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Returns the merges of a BPE, which older files write as texts."""
    return [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]


def _ranked(path: Path, model: Mapping[str, Any], kinds: Mapping[str, int]) -> list[tuple[str, float]]:
    """Returns the pieces of a BPE in the order of their ids with scores, which fall with their rank in the merges.

    SentencePiece merges the pair with the best result, `tokenizers` the first pair in a list. Both are the same if all
    pairs with one result follow each other in the list. Pieces that have a kind are not merged.
    """
    vocabulary = model["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise InputError(f"{path}: the ids of a vocabulary must be 0, 1, 2 and so on.")
    results = ((piece, set(pairs)) for piece, pairs in itertools.groupby(_pairs(model), "".join))
    groups = [(piece, pairs) for piece, pairs in results if kinds.get(piece, _BYTE) == _BYTE]
    ranks = {piece: rank for rank, (piece, _) in enumerate(groups)}
    unmerged: dict[str, set[tuple[str, ...]]] = {piece: set() for piece in pieces if piece not in kinds}
    for piece, pairs in (unmerged | dict(groups)).items():
        cuts = ((piece[:place], piece[place:]) for place in range(1, len(piece)))
        halves = ((cut, [half in ranks or len(half) == 1 and half not in kinds for half in cut]) for cut in cuts)
        missing = next((cut for cut, mergeable in halves if cut not in pairs and all(mergeable)), None)
        if len(ranks) != len(groups) or missing or piece not in vocabulary or piece in kinds:
            raise InputError(
                f"{path}: model.merges must have all pairs that result in a piece, one after another. "
                f"Received: {piece!r} without {missing!r}."
            )
    # A piece without a pair is a single character, or nothing merges to it: its score does not matter.
    return [(piece, -float(ranks.get(piece, len(ranks)))) for piece in pieces]


def _rules(path: Path, described: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Returns the rules that replace characters, and whether text is split at white space.

    All other steps must be those of SentencePiece: a space before texts, single spaces, and none around texts.
    """
    steps, splits = list(steps_of(described.get("normalizer"))), list(steps_of(described.get("pre_tokenizer")))
    charsmap, squeezes, splits_at_white = b"", False, False
    for step in steps:
        if step["type"] == "Precompiled" and not charsmap:
            try:
                charsmap = base64.b64decode(step["precompiled_charsmap"] or "", validate=True)
            except (binascii.Error, LookupError, TypeError):
                raise InputError(f"{path}: the rules of normalizer are damaged.") from None
        elif (
            step["type"] == "Replace" and step.get("pattern") == {"Regex": _SPACES} and step["content"] in (" ", SPACE)
        ):
            squeezes = True
        elif step != {"type": "Strip", "strip_left": False, "strip_right": True}:
            raise _unknown_step(path, "normalizer", step)
    if splits[:1] == [{"type": "WhitespaceSplit"}]:
        splits, squeezes, splits_at_white = splits[1:], True, True
        charsmap = charsmap or _white_as_spaces()
    for step in splits:
        prepends = step.get("prepend_scheme", "always") == "always" and step.get("add_prefix_space", True)
        if step["type"] != "Metaspace" or step.get("replacement", SPACE) != SPACE or not prepends:
            raise _unknown_step(path, "pre_tokenizer", step)
    if len(splits) != 1 or not squeezes:
        raise InputError(
            f"{path} must put a space before texts and merge spaces (Metaspace, and Replace or WhitespaceSplit). "
            f"Received: normalizer={steps!r:.200}, pre_tokenizer={splits!r:.200}."
        )
    return charsmap, splits_at_white


def _check_decoder(path: Path, decoder: Mapping[str, Any]) -> None:
    """Checks that pieces are joined as by SentencePiece, without the space before texts; raises InputError if not."""
    drops_space = decoder.get("prepend_scheme") != "never" and decoder.get("add_prefix_space") is not False
    if (decoder.get("type"), decoder.get("replacement"), drops_space) != ("Metaspace", SPACE, True):
        raise InputError(
            f"{path}: decoder must be Metaspace, which drops the space before a text. Received: {dict(decoder)!r:.200}."
        )


def _unknown_step(path: Path, part: str, step: Mapping[str, Any]) -> InputError:
    return InputError(f"{path}: {part} has a step that SentencePiece lacks. Received: {dict(step)!r:.200}.")


def steps_of(part: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yields the steps of a normalizer or pre-tokenizer."""
    if not part:
        return
    if part["type"] == "Sequence":
        for step in part.get("normalizers") or part.get("pretokenizers") or ():
            yield from steps_of(step)
    else:
        yield part


def _white_as_spaces() -> bytes:
    """Returns the rules that replace white space characters by spaces."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text("".join(f"{code:X}\t20\n" for code in _WHITE), encoding="utf-8")
        sentencepiece.set_min_log_level(2)
        compiled = sentencepiece.SentencePieceNormalizer(rule_tsv=str(rules)).serialized_normalizer_spec()
    return _content(compiled, 2)


def _content(message: bytes, number: int) -> bytes:
    return next(message[first:last] for field, first, last in fields(message, 0, len(message)) if field == number)


def _written(piece: str, score: float, kind: int) -> bytes:
    return _field(1, _field(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Returns protobuf's variable-length integer."""
    groups: list[int] = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def description(
    model: bytes, ids: Mapping[int, int], names: Mapping[int, str], unknown: str, is_unigram: bool
) -> dict[str, Any]:
    """Returns the `tokenizer.json` of a SentencePiece model, which `described_sentencepiece` reads.

    Args:
        model: The model.
        ids: The id in the model of each ordinary piece, by its id in the file.
        names: The names of special tokens by their ids in the file.
        unknown: The name of the unknown token, which is one of them.
        is_unigram: Whether the model is Unigram instead of BPE.

    Raises:
        InputError: If the ids have a gap.
    """
    processor = read_model(model)
    scores = {piece: processor.get_score(i) for piece, i in ((processor.id_to_piece(i), i) for i in ids.values())}
    pieces = {**{i: processor.id_to_piece(index) for i, index in ids.items()}, **names}
    # The vocabulary of a BPE does not include special tokens after the pieces.
    size = max(pieces if is_unigram else ids, default=-1) + 1
    if missing := next((i for i in range(size) if i not in pieces), None):
        raise InputError(f"The ids of a vocabulary must be 0, 1, 2 and so on. Received: none that is {missing}.")
    table = [pieces[i] for i in range(size)]
    charsmap = charsmap_of(model)
    squeezing = [{"type": "Replace", "pattern": {"Regex": _SPACES}, "content": " "}]
    precompiled = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    splits_at_white = charsmap == _white_as_spaces()
    normalizer = {"type": "Sequence", "normalizers": [*([precompiled] if charsmap else []), *squeezing]}
    splits = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
    written: dict[str, Any] = {"type": "Unigram", "unk_id": table.index(unknown), "byte_fallback": False}
    written |= {"vocab": [[piece, scores.get(piece, 0.0)] for piece in table]}
    if not is_unigram:
        written = {"type": "BPE", "unk_token": unknown, "fuse_unk": True, "byte_fallback": False}
        written |= {"vocab": {piece: i for i, piece in enumerate(table)}, "merges": _merges(scores)}
    return {
        "version": "1.0",
        "added_tokens": special_tokens(names),
        "normalizer": None if splits_at_white else normalizer,
        "pre_tokenizer": splits if splits_at_white else metaspace,
        "post_processor": None,
        "decoder": metaspace,
        "model": written,
    }


def special_tokens(names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Returns the `added_tokens` of a `tokenizer.json` for special tokens, from their names by id."""
    return [{"id": i, "content": names[i], **AS_THEY_ARE, "special": True} for i in sorted(names)]


def spaced_description(model: bytes, names: Mapping[int, str], start: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the `tokenizer.json` of a decoder that puts a space before texts that begin without one.

    Args:
        model: The SentencePiece model.
        names: The names of special tokens beyond its pieces, by their ids.
        start: The `post_processor`.
    """
    processor = read_model(model)
    pieces = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
    unknown = processor.unk_id()
    special = {i: piece for i, piece in enumerate(pieces) if i == unknown or processor.is_control(i)} | {**names}
    ordinary = (i for i in range(len(pieces)) if i not in special and not processor.is_byte(i))
    return {
        "version": "1.0",
        "added_tokens": special_tokens(special),
        "normalizer": None,
        "pre_tokenizer": _METASPACE,
        "post_processor": start,
        "decoder": {"type": "Sequence", "decoders": [*_JOINED, _STRIPPED]},
        "model": {
            "type": "BPE",
            "unk_token": pieces[unknown],
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": _merges({pieces[i]: processor.get_score(i) for i in ordinary}),
        },
    }


def _merges(scores: Mapping[str, float]) -> list[list[str]]:
    """Returns all pairs of pieces that result in another piece, those of the best piece first."""
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    cuts = ((piece[:place], piece[place:]) for piece in ranked for place in range(1, len(piece)))
    return [list(cut) for cut in cuts if cut[0] in scores and cut[1] in scores]


def single_tokens(model: bytes) -> set[str]:
    """Returns the pieces of a SentencePiece model that are one token wherever a text contains them, or in no text."""
    kinds = tuple(_number(3, kind) for kind in (_UNKNOWN, _CONTROL, _USER_DEFINED))
    pieces = (model[first:last] for number, first, last in fields(model, 0, len(model)) if number == 1)
    return {_content(piece, 1).decode() for piece in pieces if piece.endswith(kinds)}


def charsmap_of(model: bytes) -> bytes:
    """Returns the rules by which a SentencePiece model replaces characters, which may be empty."""
    specs = (model[first:last] for number, first, last in fields(model, 0, len(model)) if number == 3)
    rules = (spec[first:last] for spec in specs for number, first, last in fields(spec, 0, len(spec)) if number == 2)
    return next(rules, b"")
