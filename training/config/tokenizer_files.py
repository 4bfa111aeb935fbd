"""Reads the tokenizers of a user, from the files in `data.tokenizer`, without Keras."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.checkpoints.tokenizer_file import read_tokenizer_file, saved_tokenizer
from zoo.errors import InputError
from zoo.text import Tokenizer
from zoo.vocabulary import SPECIAL_PIECES
from zoo.workdir import checksum

_PREFIX = "file:"
_SIDES = ("source", "target")


def tokenizer_files(setting: str) -> list[Path]:
    """Returns the files in `data.tokenizer`; an empty list if it is a kind of tokenizer.

    Example:
        >>> [str(path) for path in tokenizer_files("file:a,b.model,file:c d.json")]
        ['a,b.model', 'c d.json']
    """
    if not setting.startswith(_PREFIX):
        return []
    return [Path(part.removeprefix(_PREFIX)) for part in re.split(f",(?={_PREFIX}.)", setting)]


def checksums(setting: str) -> str:
    """Returns `data.tokenizer_sha256` of the files in `data.tokenizer`; empty for none.

    Raises:
        InputError: If one cannot be read.
    """
    return ",".join(map(_checksum, tokenizer_files(setting)))


def read_tokenizers(values: Mapping[str, Any], task: str) -> dict[str, Tokenizer]:
    """Returns the tokenizers in settings of data, by the name of their file in a work directory.

    Args:
        values: The settings; `tokenizer` contains files.
        task: The task of the data. Only in classifiers, texts begin with the tokenizer's start token, such as
            BERT's `[CLS]`; the other models have their own.

    Raises:
        InputError: If there are too many files, or one cannot be read, does not match `tokenizer_sha256`, or has more
            tokens than `vocab_size`.
    """
    names = _SIDES if task == "seq2seq" else ("text",)
    files = tokenizer_files(values["tokenizer"])
    if len(files) > len(names):
        raise InputError(
            f"data.tokenizer: a {task} model takes at most {len(names)} files, not {len(files)}. "
            f"Received: data.tokenizer={values['tokenizer']}."
        )
    _check_sums(files, values["tokenizer_sha256"])
    tokenizers = [_read(path, values["vocab_size"]) for path in files]
    if task != "classifier":
        tokenizers = [tokenizer.without_start() for tokenizer in tokenizers]
    return {name: tokenizers[min(index, len(files) - 1)] for index, name in enumerate(names)}


def _read(path: Path, limit: int | None) -> Tokenizer:
    try:
        tokenizer = read_tokenizer_file(path)
    except InputError as error:
        raise InputError(f"data.tokenizer: {error}") from None
    # Special tokens that the file lacks are added.
    if limit is not None and tokenizer.vocab_size > limit + len(SPECIAL_PIECES):
        raise InputError(
            f"data.tokenizer: {path} has {tokenizer.vocab_size:,} tokens, none of which can be removed. Received: "
            f"data.vocab_size={limit}. Do not set it."
        )
    return tokenizer


def _check_sums(files: list[Path], expected: str) -> None:
    """Raises InputError if the files differ from those that the run was begun with."""
    sums = [_checksum(path) for path in files]
    for index, path in enumerate(files):
        if expected and [*expected.split(","), ""][index] != sums[index]:
            raise InputError(
                f"data.tokenizer: {path} has changed: its SHA-256 sum is {sums[index]}. Received: "
                f"data.tokenizer_sha256={expected}. Restore the file, or use the new one: --set data.tokenizer_sha256="
            )


def _checksum(path: Path) -> str:
    """Returns the SHA-256 sum of a file, or that of all files of a tokenizer of a work directory."""
    try:
        saved = saved_tokenizer(path)
        return checksum(path) if saved is None else saved.identity()
    except OSError as error:
        raise InputError(f"data.tokenizer: {path} cannot be read ({error.strerror}).") from None
