"""Types of the values in JSON files of checkpoints; a file is checked when it is read, so that errors name the key."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def is_number(value: Any) -> bool:
    """Returns whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Returns whether a value is a whole number without a decimal point; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_size(value: Any) -> bool:
    return value is None or (is_integer(value) and value > 0)


def _is_length(value: Any) -> bool:
    return value is None or (is_number(value) and math.isfinite(value))


def _is_token(value: Any) -> bool:
    return _is_text(value) or (_is_object(value) and isinstance(value.get("content"), str))


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
_TEXT: _Check = (_is_text, "a text or null")
_FLAG: _Check = (lambda value: value is None or isinstance(value, bool), "true, false or null")
_STEP: _Check = (lambda value: value is None or _is_object(value), "an object or null")
_TOKEN: _Check = (_is_token, "a text, an object with content, or null")
_TOKENS: _Check = (_are_tokens, "a list of tokens")
_NAMED = {
    **{f"{name}_token": _TOKEN for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")},
    **{f"{name}_special_tokens": _TOKENS for name in ("additional", "extra", "model_specific")},
}
_KEYS: Mapping[str, Mapping[str, _Check]] = {
    "tokenizer.json": {
        "model": (_is_object, "an object"),
        **dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"), _STEP),
        "added_tokens": (_are_added, "a list of objects with id and content"),
    },
    "tokenizer_config.json": {
        **_NAMED,
        **dict.fromkeys(("src_lang", "tgt_lang", "language_codes", "tokenizer_class"), _TEXT),
        **dict.fromkeys(("add_bos_token", "add_eos_token", "add_prefix_space"), _FLAG),
        "model_max_length": (_is_length, "a number or null"),
        "added_tokens_decoder": (_are_added_by_id, "an object of objects with content, by id"),
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
    if name in ("vocab.json", "added_tokens.json"):
        yield from ((piece, i, "an id, a whole number from 0") for piece, i in content.items() if not _is_id(i))
    for key, (is_right, expected) in _KEYS.get(name, {}).items():
        if key in content and not is_right(content[key]):
            yield key, content[key], expected
