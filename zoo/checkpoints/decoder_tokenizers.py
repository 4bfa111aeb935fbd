"""Reads the tokenizers of decoders, and writes them: SentencePiece or byte-level."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.checkpoints.byte_level_tokenizers import (
    DESCRIBED,
    END_NAME,
    START_NAME,
    byte_level,
    byte_level_files,
    starting,
)
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.sentencepiece_writer import described_sentencepiece, space_before, spaced_description
from zoo.checkpoints.tokenizers import (
    added_tokens_decoder,
    adding_step,
    check_same_pieces,
    config_files,
    content_of,
    has_byte_pieces,
    model_of,
    names_beyond,
    names_of_id,
    reordered_subwords,
    special_names,
    template_parts,
    tokenizer_config,
    unknown_of,
)
from zoo.checkpoints.vocabulary import NEW, Arrangement
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer, ReorderedSubwordTokenizer, Tokenizer
from zoo.text.subwords import read_model
from zoo.vocabulary import END, PAD, START, UNKNOWN

_MODEL = "tokenizer.model"
_SPACE_OF = {"LlamaTokenizer": True, "GemmaTokenizer": False}
"""Whether classes of tokenizers put a space before texts by default."""
_STARTS = ("<s>", "<bos>")
"""The start tokens of these classes by default."""


def text_tokenizer(checkpoint: Checkpoint, order: Arrangement) -> Tokenizer:
    """Returns the tokenizer of a decoder: SentencePiece of `tokenizer.model`, or SentencePiece or byte-level of
    `tokenizer.json`.

    Raises:
        InputError: If both are missing, or the second splits text in an unsupported way.
    """
    if (checkpoint.path / _MODEL).is_file():
        tokenizer = reordered_subwords(checkpoint, _MODEL, order)
        if (checkpoint.path / DESCRIBED).is_file():
            check_same_pieces(checkpoint, _MODEL, tokenizer.model)
            if space_before(checkpoint.path / DESCRIBED, checkpoint.json(DESCRIBED)) == "Metaspace":
                return _described_subwords(checkpoint, order)  # whose spaces SentencePiece cannot have
        return tokenizer
    return _described_subwords(checkpoint, order) if _has_bytes(checkpoint) else byte_level(checkpoint, order)


def unknown_id(checkpoint: Checkpoint) -> int | None:
    """Returns the id of the unknown token of a decoder, which byte-level tokenizers lack."""
    if (checkpoint.path / _MODEL).is_file():
        return unknown_of(model_of(checkpoint, _MODEL))
    if not _has_bytes(checkpoint):
        return None
    model = checkpoint.json(DESCRIBED)["model"]
    unknown = model.get("unk_token") or _unknown_name(checkpoint)
    return next((index for piece, index in model["vocab"].items() if piece == unknown), None)


def _has_bytes(checkpoint: Checkpoint) -> bool:
    """Returns whether `tokenizer.json` is SentencePiece with pieces for bytes."""
    return (checkpoint.path / DESCRIBED).is_file() and has_byte_pieces(checkpoint.json(DESCRIBED))


def _unknown_name(checkpoint: Checkpoint) -> str:
    return content_of(tokenizer_config(checkpoint).get("unk_token") or "<unk>")


def _described_subwords(checkpoint: Checkpoint, order: Arrangement) -> ReorderedSubwordTokenizer:
    tokenizer = reordered_subwords(checkpoint, DESCRIBED, order, _described_model(checkpoint))
    before, config = space_before(checkpoint.path / DESCRIBED, checkpoint.json(DESCRIBED)), tokenizer_config(checkpoint)
    default = _SPACE_OF.get(str(config.get("tokenizer_class") or "").removesuffix("Fast"))
    configured = default if config.get("add_prefix_space") is None else bool(config["add_prefix_space"])
    if configured not in (None, bool(before)):
        raise InputError(
            f"{checkpoint.path / 'tokenizer_config.json'}: add_prefix_space (of tokenizer_class, if null) must be "
            f"{str(bool(before)).lower()}, like {DESCRIBED}. Received: {configured}."
        )
    tokenizer.spaced = before == "Metaspace"
    return tokenizer


def _described_model(checkpoint: Checkpoint) -> bytes:
    """Returns the SentencePiece model that `tokenizer.json` describes."""
    path, described = checkpoint.path / DESCRIBED, checkpoint.json(DESCRIBED)
    controls = special_names(checkpoint) | {"<s>", "</s>"}  # which Phi-3 does not mark as special
    try:
        return described_sentencepiece(path, described, controls, _unknown_name(checkpoint))
    except InputError as error:
        raise error if str(checkpoint.path) in str(error) else InputError(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is damaged, or not a tokenizer.json ({type(error).__name__}: {error}).") from None


def begins_texts(checkpoint: Checkpoint, start: int) -> bool:
    """Returns whether the tokenizer of a decoder adds the start token before texts.

    The `post_processor` of `tokenizer.json` describes it, or otherwise `add_bos_token` of `tokenizer_config.json`.

    Args:
        checkpoint: The checkpoint.
        start: The original id of the start token.

    Raises:
        InputError: If it adds other tokens, or the files contradict each other.
    """
    config, path = tokenizer_config(checkpoint), checkpoint.path / "tokenizer_config.json"
    if config.get("add_eos_token"):
        raise InputError(f"{path}: add_eos_token must be false to be imported. Received: true.")
    configured = config.get("add_bos_token")
    if not (checkpoint.path / DESCRIBED).is_file():
        begins = (checkpoint.path / _MODEL).is_file() if configured is None else bool(configured)
        if begins:
            _check_start(checkpoint, start)
        return begins
    begins = _described_start(checkpoint, start)
    if configured not in (None, begins):
        raise InputError(
            f"{path}: add_bos_token must be {str(begins).lower()}, like post_processor of {DESCRIBED}. "
            f"Received: {configured!r}."
        )
    return begins


def _check_start(checkpoint: Checkpoint, start: int) -> None:
    """Checks that the start token of a model is the one that a tokenizer without `tokenizer.json` adds."""
    written = [content_of(content["bos_token"]) for _, content in config_files(checkpoint) if content.get("bos_token")]
    names = names_of_id(checkpoint, start)
    if (checkpoint.path / _MODEL).is_file():
        processor = read_model(model_of(checkpoint, _MODEL))
        names |= {processor.id_to_piece(start)} if 0 <= start < processor.vocab_size() else set()
        written = written or [*_STARTS]
    if written and not names.intersection(written):
        raise InputError(
            f"{checkpoint.config_file}: bos_token_id must be the id of {' or '.join(written)}, which the tokenizer "
            f"adds before texts. Received: {start}, {' or '.join(sorted(names)) or 'a token without a name'}."
        )


def _described_start(checkpoint: Checkpoint, start: int) -> bool:
    """Returns whether `tokenizer.json` adds the start token; raises InputError if it adds other tokens."""
    processor: Mapping[str, Any] = checkpoint.json(DESCRIBED).get("post_processor") or {}
    step = adding_step(processor)
    if not step:
        return False
    parts = template_parts(step)
    ids = {name: token["ids"] for name, token in step.get("special_tokens", {}).items()}
    added = [index for _, name in parts[:-1] for index in ids.get(name, [None])]
    if parts[-1:] != [("Sequence", "A")] or added not in ([], [start]):
        raise InputError(
            f"{checkpoint.path / DESCRIBED}: post_processor must add nothing to a text, or the start token before it. "
            f"Received: {str(processor):.200}."
        )
    return bool(added)


def _unused_name(name: str, used: Collection[str]) -> str:
    """Returns the name of a token, changed if another token has it."""
    names = itertools.chain([name], (f"{name[:-2]}_{number}|>" for number in itertools.count(1)))
    return next(other for other in names if other not in used)


def decoder_files(
    tokenizer: Tokenizer, tables: Sequence[np.ndarray], family: str, begins: bool
) -> tuple[dict[str, Any], Arrangement]:
    """Returns the files of a decoder's tokenizer by name, and the order of ids.

    Args:
        tokenizer: A tokenizer of one of the kinds that `text_tokenizer` returns.
        tables: The matrices with a row for each token, see `Arrangement.with_start`.
        family: The name of the family, for the error.
        begins: Whether the start token is added before texts.

    Raises:
        InputError: If the tokenizer is of another kind.
    """
    if isinstance(tokenizer, ReorderedSubwordTokenizer):
        complete = Arrangement(tokenizer.original_ids).complete(pad=False)
        order = complete.with_start(tables)
        processor, ids = read_model(tokenizer.model), list(tokenizer.model_ids)
        pieces, names = processor.id_to_piece, {**tokenizer.names}
        if order != complete:  # the start token got an id and a row of its own
            ids[START] = NEW
            names.pop(START, None)
        for ours, name in ((START, START_NAME), (END, END_NAME)):
            if ids[ours] < 0 and ours not in names:
                names[ours] = _unused_name(name, {*names.values(), *tokenizer.piece_table()})
        special = {ours: names[ours] if ids[ours] < 0 else pieces(ids[ours]) for ours in (START, END)}
        if order.original_ids[PAD] != NEW and (ids[PAD] >= 0 or PAD in names):
            special[PAD] = pieces(ids[PAD]) if ids[PAD] >= 0 else names[PAD]
        further = {
            order.original_ids[ours]: name
            for ours, name in names.items()
            if ids[ours] < 0 and order.original_ids[ours] != NEW
        }
        further = names_beyond(further, processor.vocab_size())
        config = {
            "tokenizer_class": "LlamaTokenizer",
            "add_bos_token": begins,
            "add_eos_token": False,
            "bos_token": special[START],
            "eos_token": special[END],
            "unk_token": pieces(ids[UNKNOWN]),
            "clean_up_tokenization_spaces": False,
            **({"pad_token": special[PAD]} if PAD in special else {}),
            **added_tokens_decoder(further),
        }
        if not tokenizer.spaced:
            return {_MODEL: tokenizer.model, "tokenizer_config.json": config}, order
        first = starting(special[START], order.original_ids[START]) if begins else None
        described = spaced_description(tokenizer.model, further, first)
        return {DESCRIBED: described, "tokenizer_config.json": config}, order
    if isinstance(tokenizer, ByteLevelBPETokenizer):
        order = Arrangement(tokenizer.original_ids).with_start(tables)
        return byte_level_files(tokenizer, order, begins=begins), order
    kinds = " or ".join(kind.kind for kind in (ReorderedSubwordTokenizer, ByteLevelBPETokenizer))
    raise InputError(f"The tokenizer of {family} must be {kinds}. Received: tokenizer={tokenizer.kind!r}.")
