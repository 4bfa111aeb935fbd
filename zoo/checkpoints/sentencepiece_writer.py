"""Converts a `tokenizer.json` to a SentencePiece model, for folders that have no model, and back.

The model has the pieces of the file with their ids, and splits text in the same way. Steps that SentencePiece lacks are
refused.
"""

import base64
import binascii
import itertools
import struct
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import sentencepiece

from zoo.errors import InputError
from zoo.text.mapped_subwords import SPACE
from zoo.text.subwords import fields, read_model

_UNIGRAM, _BPE = 1, 2
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_SPACES = " {2,}"
# Unicode's White_Space, at which `WhitespaceSplit` splits text.
_WHITE = (*range(0x09, 0x0E), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)

# `nmt_nfkc`, the rules of most models, do not replace these two by spaces.
_NEVER_WHITE = (0x0B, 0x85)


def described_sentencepiece(path: Path, described: Mapping[str, Any], controls: Collection[str]) -> bytes:
    """Returns the SentencePiece model that a `tokenizer.json` describes, whose pieces have the ids of the file.

    Args:
        path: The file, for errors.
        described: The content of the file.
        controls: Special pieces, besides those that the file marks as special.

    Raises:
        InputError: If it is neither Unigram nor BPE, or has steps that SentencePiece lacks.
    """
    model = described.get("model") or {}
    controls = {*controls, *(token["content"] for token in described.get("added_tokens") or [] if token["special"])}
    kind = model.get("type")
    if kind == "Unigram":
        pieces = [(str(piece), float(score)) for piece, score in model["vocab"]]
        unknown = model.get("unk_id")
    elif kind == "BPE":
        pieces = _ranked(path, model)
        unknown = model["vocab"].get(model.get("unk_token"))
    else:
        raise InputError(f"{path}: model.type must be Unigram or BPE. Received: model.type={kind!r}.")
    for name, only in (("byte_fallback", False), ("dropout", None), ("ignore_merges", False)):
        if received := model.get(name):
            raise InputError(f"{path}: model.{name} must be {only} to be imported. Received: {received!r}.")
    if unknown is None or not 0 <= unknown < len(pieces):
        raise InputError(f"{path} must have an unknown piece. Received: {unknown!r}.")
    if any(SPACE in piece[1:].lstrip(SPACE) for piece, _ in pieces if piece not in controls):
        raise InputError(f"{path} has a piece of two words; pieces must be within words.")
    kinds = [_UNKNOWN if i == unknown else _CONTROL if p in controls else _NORMAL for i, (p, _) in enumerate(pieces)]
    written = b"".join(
        _field(1, _field(1, piece.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, piece_kind))
        for (piece, score), piece_kind in zip(pieces, kinds, strict=True)
    )
    trainer = _number(3, _UNIGRAM if kind == "Unigram" else _BPE) + _number(4, len(pieces)) + _number(40, unknown)
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


def _ranked(path: Path, model: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Returns the pieces of a BPE in the order of their ids with scores, which fall with their rank in the merges.

    SentencePiece merges the pair with the best result, `tokenizers` the first pair in a list. Both are the same if all
    pairs with one result follow each other in the list.
    """
    vocabulary = model["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise InputError(f"{path}: the ids of a vocabulary must be 0, 1, 2 and so on.")
    merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    groups = [(piece, set(pairs)) for piece, pairs in itertools.groupby(merges, "".join)]
    ranks = {piece: rank for rank, (piece, _) in enumerate(groups)}
    mergeable = {*ranks, *(piece for piece in pieces if len(piece) == 1)}
    for piece, pairs in groups:
        cuts = ((piece[:place], piece[place:]) for place in range(1, len(piece)))
        missing = next((cut for cut in cuts if cut not in pairs and mergeable.issuperset(cut)), None)
        if len(ranks) != len(groups) or missing or piece not in vocabulary:
            raise InputError(
                f"{path}: model.merges must have all pairs that result in a piece, one after another. "
                f"Received: {piece!r} without {missing!r}."
            )
    # A piece without a pair is a single character, or is never used: its score does not matter.
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
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": names[i], **flags, "special": True} for i in sorted(names)],
        "normalizer": None if splits_at_white else normalizer,
        "pre_tokenizer": splits if splits_at_white else metaspace,
        "post_processor": None,
        "decoder": metaspace,
        "model": written,
    }


def _merges(scores: Mapping[str, float]) -> list[list[str]]:
    """Returns all pairs of pieces that result in another piece, those of the best piece first."""
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    cuts = ((piece[:place], piece[place:]) for piece in ranked for place in range(1, len(piece)))
    return [list(cut) for cut in cuts if cut[0] in scores and cut[1] in scores]


def charsmap_of(model: bytes) -> bytes:
    """Returns the rules by which a SentencePiece model replaces characters, which may be empty."""
    specs = (model[first:last] for number, first, last in fields(model, 0, len(model)) if number == 3)
    rules = (spec[first:last] for spec in specs for number, first, last in fields(spec, 0, len(spec)) if number == 2)
    return next(rules, b"")
