"""Changes every step of a `tokenizer.json`: ours must agree with the package `tokenizers`, or refuse the step by name.

The steps are the normalizer, the pre-tokenizer, the post-processor, the decoder, the options of the model, and the
flags of added tokens. If the reference cannot load the file, ours is not judged.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.parity.families import Family
from benchmarks.parity.measure import Comparison
from benchmarks.parity.mutations import LEFT_OUT, outcomes_of, refused, with_change
from benchmarks.parity.outcomes import AGREE, FAILS, WRONG
from benchmarks.parity.reference import Reference

FILE = "tokenizer.json"
_SHOWN = 120  # characters of a value
REPLACED = "replaced by the tokens of the language"
TEXTS = [
    "A man rides a horse.",
    "  it's  12345 TIMES, they'LL say\n\n \tok",
    "café naïve e\u0301 Ⅷ ﬁ Ω 漢字 😀 \u200d\u00a0x",
    "<think>two</think> man,man horse man",
]
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": False}
_SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
_BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
_NORMALIZERS: list[Any] = [
    *({"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")),
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": "man"}, "content": "men"},
    {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
    _BERT,
    {**_BERT, "lowercase": False},
    {**_BERT, "handle_chinese_chars": False},
    {**_BERT, "strip_accents": True},
    {**_BERT, "clean_text": False},
]
_SPLITS: list[Any] = [
    *({"type": kind} for kind in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")),
    _BYTES,
    {**_BYTES, "add_prefix_space": True},
    {**_BYTES, "use_regex": False},
    _METASPACE,
    *(
        {"type": "Sequence", "pretokenizers": [first, _BYTES]}
        for first in (_DIGITS, {**_DIGITS, "individual_digits": True})
    ),
    {"type": "Sequence", "pretokenizers": [_SPLIT, {**_BYTES, "use_regex": False}]},
    {"type": "Sequence", "pretokenizers": [_BYTES]},
]
_DECODERS: list[Any] = [
    _BYTES,
    _METASPACE,
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "WordPiece", "prefix": "##", "cleanup": False},
    {"type": "Fuse"},
    {"type": "Sequence", "decoders": [_BYTES, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
]
_STEPS = {"normalizer": _NORMALIZERS, "pre_tokenizer": _SPLITS, "decoder": _DECODERS}
_MODEL = {
    "dropout": [0.1],
    "unk_token": ["man", None],
    "continuing_subword_prefix": ["##", "@@", ""],
    "end_of_word_suffix": ["</w>", ""],
    "fuse_unk": [True],
    "byte_fallback": [True],
    "ignore_merges": [True, False],
    "max_input_chars_per_word": [3],
}
_WORD = "man"
"""A word that is added to vocabularies in which it is a piece."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def changes(described: dict[str, Any]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yields the name of a step, its other value or `LEFT_OUT`, and the changed description of a tokenizer."""
    for step, values in {**_STEPS, "post_processor": _processors(described)}.items():
        for value in (None, *values):
            if value != described.get(step):
                yield step, value, {**described, step: value}
    model = described["model"]
    for key, others in _MODEL.items():
        for value in (LEFT_OUT, *others) if key in model else others:
            if value is not LEFT_OUT and value == model.get(key):
                continue
            yield key, value, {**described, "model": with_change(model, key, value)}
    tokens = described.get("added_tokens") or []
    chosen = {bool(token["special"]): place for place, token in reversed(list(enumerate(tokens)))}.values()
    for place in chosen:
        for flag in _FLAGS[: len(_FLAGS) - tokens[place]["special"]]:  # transformers marks special tokens again
            token = {**tokens[place], flag: not tokens[place][flag]}
            yield flag, token["content"], {**described, "added_tokens": [*tokens[:place], token, *tokens[place + 1 :]]}
    for flag in ("", *_FLAGS) if isinstance(model["vocab"], dict) and _WORD in model["vocab"] else ():
        token = {"id": model["vocab"][_WORD], "content": _WORD, **dict.fromkeys(_FLAGS, False)}
        token |= {flag: True} if flag else {}
        yield flag or "added_tokens", _WORD, {**described, "added_tokens": [*tokens, token]}


def _processors(described: dict[str, Any]) -> list[Any]:
    """Returns post-processors that add the first special tokens in various places."""
    special = [token for token in described.get("added_tokens") or [] if token["special"]]
    if not special:
        return [_BYTES]
    names = {token["content"]: token["id"] for token in special[:4]}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    first, last = ({"SpecialToken": {"id": list(names)[place], "type_id": 0}} for place in (0, -1))
    table = {name: {"id": name, "ids": [index], "tokens": [name]} for name, index in names.items()}
    templates = ([text], [first, text], [text, last], [first, text, last], [first, first, text])
    around = [[name, names[name]] for name in (list(names)[0], list(names)[-1])]
    template = {"type": "TemplateProcessing", "special_tokens": table}
    ends = {"sep": around[1], "cls": around[0]}
    return [
        _BYTES,
        *({**template, "single": single, "pair": single} for single in templates),
        {"type": "BertProcessing", **ends},
        {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False},
    ]


def run(family: Family, pretrained: Path, folder: Path) -> list[tuple[str, str, str]]:
    """Returns (step, value, outcome) of each change; none if the family has no `tokenizer.json`.

    Args:
        family: The family.
        pretrained: The folder of tokenizers.
        folder: An empty folder.
    """
    original = folder / "original"
    original.mkdir()
    reference = family.write(pretrained, original)
    if not (original / FILE).is_file():
        return []
    described = json.loads((original / FILE).read_text(encoding="utf-8"))
    judge = functools.partial(_outcome, family, reference)
    outcomes = outcomes_of(original, FILE, changes(described), judge)
    return [(step, value[:_SHOWN], outcome) for step, value, outcome in outcomes]


def _outcome(family: Family, reference: Reference, folder: Path, step: str) -> str:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / FILE))
        tokenizer.encode_special_tokens = True
        tokenizer.no_padding()
        tokenizer.no_truncation()
        rows = [encoding.ids for encoding in tokenizer.encode_batch(TEXTS)]
        texts = tokenizer.decode_batch(rows, skip_special_tokens=True)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # panics of Rust are no `Exception`
        return FAILS
    if refusal := refused(family, folder, step):
        return refusal
    comparison = Comparison(folder / "run", reference)
    if step == "post_processor" and comparison.run.tokenizers[0].around.languages:
        return REPLACED
    if difference := _difference(rows, comparison.source_ids(TEXTS)):
        return difference
    if reference.write is None:  # no text is generated
        return AGREE
    ours = comparison.run.tokenizers[0].decode([[comparison.read.ours[i] for i in row] for row in rows])
    return _difference(texts, ours) or AGREE


def _difference(expected: Sequence[Any], ours: Sequence[Any]) -> str:
    """Returns the outcome of the first difference; empty if there is none."""
    pairs = (pair for pair in zip(expected, ours, strict=True) if pair[0] != pair[1])
    return next((f"{WRONG}: {one!r:.100} is {other!r:.100} here" for one, other in pairs), "")
