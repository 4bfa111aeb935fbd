"""Reads and writes the WordPiece tokenizers of BERT and its successors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.sentencepiece_writer import special_tokens
from zoo.checkpoints.tokenizers import (
    FOLLOWING,
    added_token_error,
    check_added,
    check_special,
    check_special_name,
    content_of,
    model_kind,
    tokenizer_config,
)
from zoo.checkpoints.vocabulary import Arrangement, arrange
from zoo.errors import InputError, unknown_name
from zoo.text import WordPieceTokenizer
from zoo.text.bert_characters import Reading
from zoo.text.reordered_subwords import UNUSED
from zoo.vocabulary import SPECIAL_PIECES

BERT_NAMES = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
"""The special pieces of BERT: padding, start, end and unknown."""
_WORDPIECE: dict[str, dict[str, object]] = {
    "model": {"type": "WordPiece", "continuing_subword_prefix": "##"},
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
_NORMALIZER = (
    ("do_lower_case", "lowercase", True),
    ("strip_accents", "strip_accents", None),
    ("tokenize_chinese_chars", "handle_chinese_chars", True),
)
"""Keys of `tokenizer_config.json`, options of the normalizer in `tokenizer.json` that they override, and defaults."""


def wordpiece(
    checkpoint: Checkpoint, size: int, names: Mapping[str, str] = BERT_NAMES
) -> tuple[WordPieceTokenizer, Arrangement]:
    """Returns the tokenizer of `tokenizer.json`, or of `vocab.txt` and `tokenizer_config.json`, and the order of ids.

    Args:
        checkpoint: The checkpoint.
        size: The number of tokens of the model.
        names: The special pieces, unless `tokenizer_config.json` names others.

    Raises:
        InputError: If the files are missing, are not a WordPiece tokenizer like BERT's, or do not match the model.
    """
    written = tokenizer_config(checkpoint)
    config = {**names, **written}
    for key in names:
        check_special_name(checkpoint, key, config[key])
    if (checkpoint.path / "tokenizer.json").is_file():
        described = checkpoint.json("tokenizer.json")
        kind = str(written.get("tokenizer_class") or "").removesuffix("Fast")
        if written and kind not in FOLLOWING and described.get("normalizer"):  # other classes have their own steps
            options = {ours: written.get(key, default) for key, ours, default in _NORMALIZER}
            described = {**described, "normalizer": {**described["normalizer"], **options}}
        return described_wordpiece(checkpoint.path / "tokenizer.json", described, config, size)
    path = checkpoint.file("vocab.txt")
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")
    vocabulary = {line.removesuffix("\r"): index for index, line in enumerate(lines) if line or index + 1 < len(lines)}
    check_added(checkpoint, vocabulary)
    reading = _reading(config, ("do_lower_case", "strip_accents", "tokenize_chinese_chars"))
    return _wordpiece(path, vocabulary, config, size, reading)


def described_wordpiece(
    path: Path, described: Mapping[str, Any], config: Mapping[str, Any], size: int | None = None
) -> tuple[WordPieceTokenizer, Arrangement]:
    """Returns the tokenizer that a `tokenizer.json` describes, and the order of ids.

    Args:
        path: The file, for the error.
        described: Its content.
        config: The content of `tokenizer_config.json`.
        size: The number of tokens of the model. Default: that of the tokenizer.

    Raises:
        InputError: If it is not a WordPiece tokenizer like BERT's, or does not match the model.
    """
    model = described.get("model") or {}
    described = {**described, "model": {"type": model_kind(model), **model}}
    for part, expected in _WORDPIECE.items():
        received = {key: (described.get(part) or {}).get(key) for key in expected}
        if received != expected:
            raise InputError(f"{path}: {part} must be {expected} to be imported. Received: {received}.")
    start, end = (content_of(config.get(key, BERT_NAMES[key])) for key in ("cls_token", "sep_token"))
    check_special(path, described.get("post_processor") or {}, start, end)
    unknown = content_of(config.get("unk_token", BERT_NAMES["unk_token"]))
    if (received := described["model"].get("unk_token", unknown)) != unknown:
        raise InputError(f"{path}: model.unk_token must be {unknown} to be imported. Received: {received}.")
    vocabulary, longest = described["model"]["vocab"], described["model"].get("max_input_chars_per_word", 100)
    for token in described.get("added_tokens") or []:
        if not token["special"] or vocabulary.get(token["content"]) != token["id"]:
            raise added_token_error(path, token["content"])
    reading = _reading(described["normalizer"], ("lowercase", "strip_accents", "handle_chinese_chars"))
    size = max(vocabulary.values(), default=-1) + 1 if size is None else size
    return _wordpiece(path, vocabulary, config, size, reading, longest)


def _reading(options: Mapping[str, Any], names: tuple[str, str, str]) -> Reading:
    """Returns how characters are read; the names are the keys of lower case, accents and ideographs in the options."""
    defaults = dict(zip(names, (True, None, True), strict=True))
    lowercase, accents, ideographs = ({**defaults, **options}[name] for name in names)
    return Reading(bool(lowercase), bool(lowercase if accents is None else accents), bool(ideographs))


def _wordpiece(
    path: Path,
    vocabulary: Mapping[str, int],
    config: Mapping[str, Any],
    size: int,
    reading: Reading,
    longest: int = 100,
) -> tuple[WordPieceTokenizer, Arrangement]:
    names = {key: content_of(config.get(key, name)) for key, name in BERT_NAMES.items()}
    for key, name in names.items():
        if name not in vocabulary:
            raise InputError(
                f"{path}: {key}: {unknown_name('piece', name, vocabulary)} Expected the special pieces of BERT."
            )
    if beyond := [piece for piece, index in vocabulary.items() if index >= size]:
        raise InputError(f"{path}: the model has no token for {beyond[0]!r} of the vocabulary.")
    pad, start, end, unknown = (vocabulary[name] for name in names.values())
    order = arrange(size, start, end, pad, unknown)
    pieces = {index: piece for piece, index in vocabulary.items()}
    texts = order.pieces([pieces.get(index, UNUSED) for index in range(size)])
    return WordPieceTokenizer([*SPECIAL_PIECES, *texts[4:]], order.original_ids, reading, longest), order


def wordpiece_files(
    tokenizer: WordPieceTokenizer, names: Mapping[str, str] = BERT_NAMES, kind: str = "BertTokenizer"
) -> tuple[dict[str, Any], Arrangement]:
    """Returns the files of a WordPiece tokenizer by name, and the order of their ids.

    Args:
        tokenizer: The tokenizer.
        names: The names of the special pieces.
        kind: The class of the tokenizer in `transformers`.
    """
    order = Arrangement(tokenizer.original_ids)
    special = dict(zip(names.values(), order.original_ids, strict=False))
    rows = list(zip(tokenizer.piece_table(), order.original_ids, strict=True))[len(special) :]
    vocabulary = {piece: i for piece, i in rows if piece != UNUSED} | special
    start, end = ([name, special[name]] for name in (names["cls_token"], names["sep_token"]))
    unknown, reading = names["unk_token"], tokenizer.reading
    model = {"unk_token": unknown, "max_input_chars_per_word": tokenizer.max_word_length}
    normalizer = {
        "lowercase": reading.lowercase,
        "strip_accents": reading.strip_accents,
        "handle_chinese_chars": reading.split_ideographs,
    }
    described = {
        "version": "1.0",
        "added_tokens": special_tokens({i: name for name, i in special.items()}),
        "normalizer": {**_WORDPIECE["normalizer"], **normalizer},
        "pre_tokenizer": _WORDPIECE["pre_tokenizer"],
        "post_processor": {"type": "BertProcessing", "sep": end, "cls": start},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {**_WORDPIECE["model"], **model, "vocab": dict(sorted(vocabulary.items(), key=lambda item: item[1]))},
    }
    config = {"tokenizer_class": kind, "do_lower_case": reading.lowercase, **names}
    return {"tokenizer.json": described, "tokenizer_config.json": config}, order
