"""Types of the values in JSON files of checkpoints; a file is checked when it is read, so that errors name the key."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import InputError

_SURROGATES = re.compile("[\ud800-\udfff]")


def is_number(value: Any) -> bool:
    """Returns whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Returns whether a value is a whole number without a decimal point; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_unicode(value: Any) -> bool:
    """Returns whether a value is a text that UTF-8 can encode; JSON can contain lone surrogates, which it cannot."""
    return isinstance(value, str) and not _SURROGATES.search(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_size(value: Any) -> bool:
    return value is None or (is_integer(value) and value > 0)


def _is_length(value: Any) -> bool:
    return value is None or (is_number(value) and math.isfinite(value))


def _is_token(value: Any) -> bool:
    return is_unicode(value) or (_is_object(value) and is_unicode(value.get("content")))


def _is_id(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _are_tokens(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return value is None or (isinstance(value, list | dict) and all(map(_is_token, items)))


def _are_added(value: Any) -> bool:
    return value is None or (
        isinstance(value, list)
        and all(_is_object(token) and _is_token(token) and _is_id(token.get("id")) for token in value)
    )


def _are_added_by_id(value: Any) -> bool:
    return _is_object(value) and all(
        index.isdecimal() and _is_object(token) and _is_token(token) for index, token in value.items()
    )


def _are_rows(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(row, list) for row in value))


_Check = tuple[Callable[[Any], bool], str]
_ANY: _Check = (lambda value: True, "")
_TEXT: _Check = (_is_text, "a text or null")
_FLAG: _Check = (lambda value: value is None or isinstance(value, bool), "true, false or null")
_STEP: _Check = (lambda value: value is None or _is_object(value), "an object or null")
_UNICODE = "valid Unicode"
_TOKEN: _Check = (
    lambda value: value is None or _is_token(value),
    f"a text of {_UNICODE}, an object with such a content, or null",
)
_TOKENS: _Check = (_are_tokens, f"a list of tokens, each a text of {_UNICODE} or an object with such a content")
_ADDED: _Check = (_are_added_by_id, f"an object of objects with content of {_UNICODE}, by id")
_NAMED = {
    **{f"{name}_token": _TOKEN for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")},
    **{f"{name}_special_tokens": _TOKENS for name in ("additional", "extra", "model_specific")},
    "added_tokens_decoder": _ADDED,
}
_BY_ENDING: Mapping[str, _Check] = {
    "_special_tokens": (lambda value: not isinstance(value, list) or _are_tokens(value), _TOKENS[1]),
    "_token": (lambda value: not isinstance(value, str | dict) or _is_token(value), _TOKEN[1]),
}
"""Checks of the other keys of files that name special tokens; some of them are no tokens, such as `add_bos_token`."""
_KEYS: Mapping[str, Mapping[str, _Check]] = {
    "tokenizer.json": {
        "model": (_is_object, "an object"),
        **dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"), _STEP),
        "added_tokens": (_are_added, f"a list of objects with id and content of {_UNICODE}"),
    },
    "tokenizer_config.json": {
        **_NAMED,
        **dict.fromkeys(("src_lang", "tgt_lang", "language_codes", "tokenizer_class"), _TEXT),
        **dict.fromkeys(("add_bos_token", "add_eos_token", "add_prefix_space"), _FLAG),
        "model_max_length": (_is_length, "a number or null"),
    },
    "special_tokens_map.json": _NAMED,
    "generation_config.json": {"bad_words_ids": (_are_rows, "a list of lists of ids")},
    "sentence_bert_config.json": {"max_seq_length": (_is_size, "a positive whole number or null")},
}


def mistakes(name: str, content: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yields key and value, for each value of a file that is not of the type its readers need, and what it must be.

    Args:
        name: The name of the file.
        content: Its content.
    """
    yield from ((where, piece, _UNICODE) for where, piece in _pieces(name, content) if not is_unicode(piece))
    if name in ("vocab.json", "added_tokens.json"):
        yield from ((piece, i, "an id, a whole number from 0") for piece, i in content.items() if not _is_id(i))
    for key, value in content.items() if name in _KEYS else ():
        is_right, expected = _check_of(name, key)
        if not is_right(value):
            yield key, _wrong_part(value, is_right), expected


def check_types(path: Path, content: Mapping[str, Any], name: str = "") -> None:
    """Checks that the values of a file are of the types that its readers need.

    Args:
        path: The file.
        content: Its content.
        name: The name that the file usually has. Default: that of `path`.

    Raises:
        InputError: For the first that is not; see `mistakes`.
    """
    for key, value, expected in mistakes(name or path.name, content):
        raise InputError(f"{path}: {key} must be {expected}. Received: {value!r:.100}.")


def check_unicode(path: Path, tokens: Iterable[str]) -> None:
    """Checks the tokens of a vocabulary; raises InputError if UTF-8 cannot encode one."""
    if wrong := next((token for token in tokens if not is_unicode(token)), None):
        raise InputError(f"{path}: each token must be {_UNICODE}. Received: {wrong!r}.")


def _pieces(name: str, content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields what to call each piece of a vocabulary that has ids by piece, and the piece."""
    model = content.get("model") if name == "tokenizer.json" else None
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if name in ("vocab.json", "added_tokens.json"):
        yield from (("each piece", piece) for piece in content)
    elif isinstance(vocabulary, dict):
        yield from (("each piece of model.vocab", piece) for piece in vocabulary)


def _check_of(name: str, key: str) -> _Check:
    """Returns the check of a key of a file."""
    endings = _BY_ENDING if name in ("tokenizer_config.json", "special_tokens_map.json") else {}
    by_ending = (check for ending, check in endings.items() if key.endswith(ending))
    return _KEYS[name].get(key) or next(by_ending, _ANY)


def _wrong_part(value: Any, is_right: Callable[[Any], bool]) -> Any:
    """Returns the first wrong item of a list or an object that may also be empty, or else the value itself."""
    parts: Iterable[Any] = ()
    if isinstance(value, list | dict) and is_right(type(value)()):
        parts = ({key: item} for key, item in value.items()) if isinstance(value, dict) else ([item] for item in value)
    return next((part for part in parts if not is_right(part)), value)
