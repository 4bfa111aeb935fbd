"""Trains and loads tokenizers by kind."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import InputError, unknown_name
from zoo.text.base import Around, Tokenizer
from zoo.text.byte_level_bpe import ByteLevelBPETokenizer
from zoo.text.characters import CharTokenizer
from zoo.text.mapped_subwords import MappedSubwordTokenizer
from zoo.text.reordered_subwords import ReorderedSubwordTokenizer
from zoo.text.subwords import SubwordTokenizer, WordTokenizer
from zoo.text.wordpiece import WordPieceTokenizer
from zoo.workdir import WorkDir

_LEARNED: dict[str, type[SubwordTokenizer] | type[CharTokenizer]] = {
    cls.kind: cls for cls in (SubwordTokenizer, WordTokenizer, CharTokenizer)
}
# These kinds come only with imported checkpoints.
_IMPORTED: tuple[type[Tokenizer], ...] = (
    ByteLevelBPETokenizer,
    MappedSubwordTokenizer,
    ReorderedSubwordTokenizer,
    WordPieceTokenizer,
)
_KINDS: dict[str, type[Tokenizer]] = {**_LEARNED, **{cls.kind: cls for cls in _IMPORTED}}


def train_tokenizer(
    kind: str,
    lines: Iterable[str],
    vocab_size: int | None = None,
    lowercase: bool = False,
    normalization: str = "auto",
) -> Tokenizer:
    """Trains a tokenizer of a kind, `"subword"`, `"words"` or `"chars"`; `vocab_size=None` is the kind's default.

    Raises:
        InputError: The kind is unknown, or there is too little text.
    """
    if kind not in _LEARNED:
        raise unknown_name("tokenizer", kind, _LEARNED)
    options: dict[str, Any] = {} if vocab_size is None else {"vocab_size": vocab_size}
    if issubclass(_LEARNED[kind], SubwordTokenizer):
        options["normalization"] = normalization
    elif normalization != "auto":
        raise InputError(f"`normalization` is only for subwords and words. Received: {normalization!r} for {kind}.")
    return _LEARNED[kind].train(lines, lowercase=lowercase, **options)


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Reads a tokenizer that `Tokenizer.save` wrote; the path has no suffix.

    Raises:
        InputError: A file is missing or is not that of a tokenizer.
    """
    path = Path(path)
    json_path = path.with_name(f"{path.name}.json")
    content = _read(json_path)
    try:
        state = json.loads(content)
    except ValueError as error:
        raise InputError(f"{json_path}: not a tokenizer (invalid JSON).") from error
    kind = state.get("kind") if isinstance(state, dict) else None
    if kind not in _KINDS:
        raise InputError(f"{json_path}: {unknown_name('tokenizer', str(kind), _KINDS)}")
    try:
        tokenizer = _KINDS[kind].from_saved(state, lambda suffix: _read(path.with_name(f"{path.name}{suffix}")))
        tokenizer = tokenizer if state.get("ends", True) else tokenizer.without_end()
        starts = state.get("starts", tokenizer.has_start)
        tokenizer = tokenizer.with_start() if starts else tokenizer.without_start()
        return tokenizer.with_around(Around.from_saved(state["around"])) if "around" in state else tokenizer
    except InputError as error:
        raise InputError(f"{json_path}: {error}") from error


def load_tokenizers(workdir: WorkDir, names: Iterable[str], options: Mapping[str, Any]) -> dict[str, Tokenizer]:
    """Returns the tokenizers of a work directory by name; `options` are those of its model.

    Raises:
        InputError: If one is missing or damaged, or does not match the model.
    """
    workdir.check("tokenizers")
    tokenizers = {name: load_tokenizer(workdir.tokenizer(name)) for name in names}
    for name, tokenizer in tokenizers.items():
        expected = options.get("vocab_size" if name == "text" else f"{name}_vocab_size")
        if expected not in (None, tokenizer.vocab_size):
            raise InputError(
                f"{workdir.tokenizer(name)}.json is not the tokenizer of this model: it has {tokenizer.vocab_size} "
                f"tokens, and the model has {expected}."
            )
    return tokenizers


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a saved tokenizer.") from error
