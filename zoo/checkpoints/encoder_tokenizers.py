"""The tokenizers of RoBERTa, XLM-RoBERTa and BART, which add `<s>` before and `</s>` after texts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.checkpoints.byte_level_tokenizers import byte_level, byte_level_files
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.multilingual_tokenizers import Subwords, check_ids, described_pieces, description_of
from zoo.checkpoints.tokenizers import (
    added_token_error,
    added_tokens_of,
    check_special,
    check_special_name,
    content_of,
    model_of,
    tokenizer_config,
)
from zoo.checkpoints.vocabulary import NEW, Arrangement, arrange
from zoo.errors import InputError, unknown_name
from zoo.text import Around, ByteLevelBPETokenizer, ReorderedSubwordTokenizer, Tokenizer
from zoo.text.subwords import read_model
from zoo.vocabulary import END, PAD, START

NAMES = {
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
"""Their special pieces."""
_MODEL, _DESCRIBED = "sentencepiece.bpe.model", "tokenizer.json"
_SHIFT = 1
"""Difference between the ids of fairseq, which has padding before the pieces, and those of SentencePiece."""
_SPECIAL = (1, 0, 2, 3)
"""The ids of padding, start, end and unknown in fairseq."""
_SENTENCEPIECE_IDS = {"unk": 0, "bos": 1, "eos": 2}


def roberta_tokenizer(checkpoint: Checkpoint, size: int) -> tuple[ByteLevelBPETokenizer, Arrangement]:
    """Returns the byte-level tokenizer of `tokenizer.json`, or of `vocab.json` and `merges.txt`, and the order of ids.

    Args:
        checkpoint: The checkpoint.
        size: The number of tokens of the model.

    Raises:
        InputError: If the files are missing or contradict each other, or split text differently from GPT-2.
    """
    pad, start, end, unknown, _ = ids = special_ids(checkpoint, size)
    order = arrange(size, start, end, pad, unknown)
    return byte_level(checkpoint, order, ids).with_start(), order


def special_ids(checkpoint: Checkpoint, size: int) -> list[int]:
    """Returns the ids of the special pieces in the order of `NAMES`; raises InputError as `roberta_tokenizer` does."""
    config = _check_prefix(checkpoint, False)
    names = {key: content_of(config.get(key) or name) for key, name in NAMES.items()}
    for key, name in names.items():
        check_special_name(checkpoint, key, name)
    path, vocabulary = _vocabulary(checkpoint, names)
    for key, name in names.items():
        if name not in vocabulary:
            raise InputError(
                f"{path}: {key}: {unknown_name('piece', name, vocabulary)} Expected the special pieces of RoBERTa."
            )
    ids = [vocabulary[name] for name in names.values()]
    if max(ids) >= size:
        raise InputError(f"{path}: the vocabulary has special pieces for which the model has no token.")
    return ids


def bart_tokenizers(
    checkpoint: Checkpoint, size: int, start: int, forced: int | None
) -> tuple[dict[str, Tokenizer], Arrangement]:
    """Returns the tokenizers of sources and targets, and the order of ids; see `roberta_tokenizer`.

    Both kinds of texts have `<s>` before them and `</s>` after them.

    Args:
        checkpoint: The checkpoint.
        size: The number of tokens of the model.
        start: The id of the start token of the decoder.
        forced: The id of a forced first token of targets, or `None`.

    Raises:
        InputError: See `roberta_tokenizer`; or if the forced token is not `<s>`.
    """
    pad, first, end, unknown, _ = ids = special_ids(checkpoint, size)
    if (pad, first, end) != _SPECIAL[:3]:
        raise InputError(
            f"{checkpoint.path}: padding, start and end must have the ids {_SPECIAL[:3]}. "
            f"Received: {(pad, first, end)}."
        )
    if forced not in (None, first):
        raise InputError(
            f"{checkpoint.generation_file}: forced_bos_token_id must be {first}, {NAMES['cls_token']}, or null. "
            f"Received: {forced!r}."
        )
    order = arrange(size, start, end, pad, unknown)
    ours = order.original_ids.index(first)
    tokenizer = byte_level(checkpoint, order, ids)
    kinds = {"source": Around((ours,)), "target": Around((ours,), forced=forced is not None)}
    return {side: tokenizer.with_around(around) for side, around in kinds.items()}, order


def _check_prefix(checkpoint: Checkpoint, expected: bool) -> dict[str, Any]:
    """Checks whether texts begin with a space, and returns the content of `tokenizer_config.json`; null is no."""
    config = tokenizer_config(checkpoint)
    received = config.get("add_prefix_space", expected)
    if bool(received) is not expected:
        raise InputError(
            f"{checkpoint.path / 'tokenizer_config.json'}: add_prefix_space must be {str(expected).lower()} to be "
            f"imported. Received: {json.dumps(received)}."
        )
    return config


def _vocabulary(checkpoint: Checkpoint, names: Mapping[str, str]) -> tuple[Path, dict[str, int]]:
    """Returns the file with the ids of pieces, and these ids."""
    if not (checkpoint.path / _DESCRIBED).is_file():
        return checkpoint.path / "vocab.json", checkpoint.json("vocab.json")
    path, described = checkpoint.path / _DESCRIBED, checkpoint.json(_DESCRIBED)
    check_special(path, described.get("post_processor") or {}, names["cls_token"], names["sep_token"])
    added = {token["content"]: token["id"] for token in described.get("added_tokens") or []}
    return path, {**(described.get("model") or {}).get("vocab", {}), **added}


def roberta_files(tokenizer: ByteLevelBPETokenizer) -> tuple[dict[str, Any], Arrangement]:
    """Returns the files of RoBERTa's tokenizer by name, and the order of their ids.

    Raises:
        InputError: If padding, start and end have no ids of their own.
    """
    order = Arrangement(tokenizer.original_ids)
    pad, start, end = (order.original_ids[ours] for ours in (PAD, START, END))
    if NEW in (pad, start, end) or len({pad, start, end}) < 3:
        raise InputError(
            "RoBERTa needs different tokens for padding, start and end, which the vocabulary of this tokenizer lacks. "
            f"Received: the ids {pad}, {start} and {end}."
        )
    names = {PAD: NAMES["pad_token"], START: NAMES["cls_token"], END: NAMES["sep_token"]}
    return _with_ends(byte_level_files(tokenizer, order, names), start, end), order


def bart_files(tokenizers: Mapping[str, Tokenizer]) -> dict[str, Any]:
    """Returns the files of BART's tokenizer by name.

    Raises:
        InputError: If BART does not support them.
    """
    source, target = (tokenizers[side] for side in ("source", "target"))
    first = source.around.before
    if (
        not isinstance(source, ByteLevelBPETokenizer)
        or source.with_around(Around()).identity() != target.with_around(Around()).identity()
        or len(first) != 1
        or (first, ()) != (target.around.before, source.around.after)
        or source.around.languages
    ):
        raise InputError(
            f"BART needs one byte-level tokenizer for both sides, with {NAMES['cls_token']} before texts. "
            f"Received: tokenizer={source.kind!r} and {target.kind!r}."
        )
    order = Arrangement(source.original_ids)
    names = {PAD: NAMES["pad_token"], START: NAMES["sep_token"], END: NAMES["sep_token"]}
    return _with_ends(byte_level_files(source, order, names), order.original_ids[first[0]], order.original_ids[END])


def _with_ends(files: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    """Returns the files of a byte-level tokenizer, changed to add `<s>` and `</s>` with these ids to texts."""
    files[_DESCRIBED]["post_processor"] = _around(start, end)
    files["tokenizer_config.json"] |= {"tokenizer_class": "RobertaTokenizer", **_token_names(NAMES)}
    return files


def _around(start: int, end: int) -> dict[str, Any]:
    """Returns the `post_processor` that adds `<s>` and `</s>` with these ids to texts."""
    around = {"sep": [NAMES["sep_token"], end], "cls": [NAMES["cls_token"], start]}
    return {"type": "RobertaProcessing", **around, "trim_offsets": True, "add_prefix_space": False}


def _token_names(names: Mapping[str, str]) -> dict[str, Any]:
    return {"bos_token": names["cls_token"], "eos_token": names["sep_token"], **names}


def xlm_roberta_tokenizer(checkpoint: Checkpoint, size: int) -> tuple[ReorderedSubwordTokenizer, Arrangement]:
    """Returns the tokenizer of `sentencepiece.bpe.model`, or otherwise of `tokenizer.json`, and the order of ids.

    Args:
        checkpoint: The checkpoint.
        size: The number of tokens of the model.

    Raises:
        InputError: If both files are missing, special pieces differ, or ordinary tokens were added.
    """
    config = _check_prefix(checkpoint, True)
    for key, name in NAMES.items():
        if (received := content_of(config.get(key) or name)) != name:
            raise InputError(
                f"{checkpoint.path / 'tokenizer_config.json'}: {key} must be {name}. Received: {received}."
            )
    pad, start, end, unknown = _SPECIAL
    order = arrange(size, start, end, pad, unknown)
    if not (checkpoint.path / _MODEL).is_file():
        return _described_xlm_roberta(checkpoint, order), order
    model = model_of(checkpoint, _MODEL)
    processor = read_model(model)
    pieces = [processor.id_to_piece(index) for index in range(processor.vocab_size())]
    special = {"unk": processor.unk_id(), "bos": processor.bos_id(), "eos": processor.eos_id()}
    if special != _SENTENCEPIECE_IDS:
        raise InputError(
            f"{checkpoint.path / _MODEL}: the special pieces must be {_SENTENCEPIECE_IDS}. Received: {special}."
        )
    if size < len(pieces) + _SHIFT:
        raise InputError(
            f"{checkpoint.path / _MODEL} has {len(pieces)} pieces: vocab_size must be at least {len(pieces) + _SHIFT}. "
            f"Received: {size}."
        )
    _check_pieces(checkpoint, pieces)
    model_ids = _shifted(len(order.original_ids), len(pieces))
    return ReorderedSubwordTokenizer(model, model_ids, original_ids=order.original_ids).with_start(), order


def _described_xlm_roberta(checkpoint: Checkpoint, order: Arrangement) -> ReorderedSubwordTokenizer:
    path = checkpoint.path / _DESCRIBED
    model, pieces, names = described_pieces(checkpoint)
    check_ids(checkpoint, path, pieces, names, max(order.original_ids) + 1)
    check_special(path, checkpoint.json(_DESCRIBED).get("post_processor") or {}, NAMES["cls_token"], NAMES["sep_token"])
    return Subwords(model, pieces, {}, names, tidy=False).tokenizer(order).with_start()


def _shifted(size: int, count: int) -> tuple[int, ...]:
    """Returns the id in SentencePiece of each of our ids, from the number of our ids and that of its pieces."""
    others = range(len(_SPECIAL) - _SHIFT, size - _SHIFT)
    special = (NEW, *(_SENTENCEPIECE_IDS[name] for name in ("bos", "eos", "unk")))
    return (*special, *(index if index < count else NEW for index in others))


def _check_pieces(checkpoint: Checkpoint, pieces: list[str]) -> None:
    """Checks that a `tokenizer.json` beside the model has the same pieces, and that none were added."""
    names = [NAMES[key] for key in ("cls_token", "pad_token", "sep_token", "unk_token")]
    expected = [*names, *pieces[len(names) - _SHIFT :], NAMES["mask_token"]]
    ids = {name: index for index, name in enumerate(expected) if name in NAMES.values()}
    for path, token, index, special in added_tokens_of(checkpoint):
        if ids.get(token, index) != index or not special:
            raise added_token_error(path, token)
    path = checkpoint.path / _DESCRIBED
    if path.is_file():
        model = checkpoint.json(_DESCRIBED).get("model") or {}
        described = [piece for piece, _ in model["vocab"]] if model.get("type") == "Unigram" else []
        if described not in (expected, expected[:-1]):
            raise InputError(f"{path} must be Unigram with the {len(pieces)} pieces of {_MODEL} in their order.")


def xlm_roberta_files(tokenizer: ReorderedSubwordTokenizer) -> tuple[dict[str, Any], Arrangement]:
    """Returns the files of XLM-RoBERTa's tokenizer by name, and the order of their ids.

    They have a SentencePiece model if its ids are those of fairseq, less 1, and otherwise a `tokenizer.json`.

    Raises:
        InputError: If the special tokens do not have the ids of fairseq.
    """
    pad, start, end, unknown = _SPECIAL
    order = arrange(size := tokenizer.vocab_size, start, end, pad, unknown)
    config = {"tokenizer_class": "XLMRobertaTokenizer", **_token_names(NAMES)}
    if tokenizer.model_ids == _shifted(size, read_model(tokenizer.model).vocab_size()):
        return {_MODEL: tokenizer.model, "tokenizer_config.json": config}, order
    if tokenizer.original_ids != order.original_ids:
        raise InputError("XLM-RoBERTa needs the ids of fairseq; this tokenizer has others.")
    described = description_of(tokenizer) | {"post_processor": _around(start, end)}
    return {_DESCRIBED: described, "tokenizer_config.json": config}, order
