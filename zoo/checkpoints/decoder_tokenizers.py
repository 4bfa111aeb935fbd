"""Reads the tokenizers of decoders, and writes them: SentencePiece or byte-level."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.checkpoints.byte_level_tokenizers import DESCRIBED, END_NAME, START_NAME, byte_level, byte_level_files
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.tokenizers import adding_step, reordered_subwords, template_parts, tokenizer_config
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer, ReorderedSubwordTokenizer, Tokenizer
from zoo.text.subwords import read_model
from zoo.vocabulary import END, START, UNKNOWN

_MODEL = "tokenizer.model"
_AS_THEY_ARE = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def text_tokenizer(checkpoint: Checkpoint, order: Arrangement) -> Tokenizer:
    """Returns the tokenizer of a decoder: SentencePiece of `tokenizer.model`, or byte-level of `tokenizer.json`.

    Raises:
        InputError: If both are missing, or the second splits text in an unsupported way.
    """
    if (checkpoint.path / _MODEL).is_file():
        return reordered_subwords(checkpoint, _MODEL, order)
    return byte_level(checkpoint, order)


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
        return (checkpoint.path / _MODEL).is_file() if configured is None else bool(configured)
    begins = _described_start(checkpoint, start)
    if configured not in (None, begins):
        raise InputError(
            f"{path}: add_bos_token must be {str(begins).lower()}, like post_processor of {DESCRIBED}. "
            f"Received: {configured!r}."
        )
    return begins


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
        order = Arrangement(tokenizer.model_ids).complete(pad=False).with_start(tables)
        pieces, ids = read_model(tokenizer.model).id_to_piece, tokenizer.model_ids
        names = {START: START_NAME, END: END_NAME, **tokenizer.names}
        special = {ours: names[ours] if ids[ours] < 0 else pieces(ids[ours]) for ours in (START, END)}
        added = {
            str(order.original_ids[ours]): {"content": name, "special": True, **_AS_THEY_ARE}
            for ours, name in special.items()
            if ids[ours] < 0
        }
        config = {
            "tokenizer_class": "LlamaTokenizer",
            "add_bos_token": begins,
            "add_eos_token": False,
            "bos_token": special[START],
            "eos_token": special[END],
            "unk_token": pieces(ids[UNKNOWN]),
            "clean_up_tokenization_spaces": False,
            **({"added_tokens_decoder": added} if added else {}),
        }
        return {_MODEL: tokenizer.model, "tokenizer_config.json": config}, order
    if isinstance(tokenizer, ByteLevelBPETokenizer):
        order = Arrangement(tokenizer.original_ids).with_start(tables)
        return byte_level_files(tokenizer, order, begins=begins), order
    kinds = " or ".join(kind.kind for kind in (ReorderedSubwordTokenizer, ByteLevelBPETokenizer))
    raise InputError(f"The tokenizer of {family} must be {kinds}. Received: tokenizer={tokenizer.kind!r}.")
