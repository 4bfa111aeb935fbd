"""Reads the files of byte-level tokenizers, and writes them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.tokenizers import added_tokens_of, content_of, model_kind, tokenizer_config
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer
from zoo.text.byte_level_bpe import AddedToken, byte_alphabet
from zoo.text.composition import composed
from zoo.text.reordered_subwords import UNUSED
from zoo.text.word_splits import GPT2, GPT4, SINGLE_DIGITS
from zoo.vocabulary import END, START

DESCRIBED = "tokenizer.json"
END_NAME = "<|endoftext|>"
START_NAME = "<|startoftext|>"

# Options of a BPE whose pieces are not made of bytes, or that merges them differently.
_OTHER_BPE = ("dropout", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")
_GPT4_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_RULES = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    _GPT4_WORDS: GPT4,
    _GPT4_WORDS.replace("{1,3}", ""): GPT4 + SINGLE_DIGITS,
}
_PATTERNS = {rule: pattern for pattern, rule in _RULES.items()}
_LEVELS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_DIGITS = {"type": "Digits", "individual_digits": True}
_ADDED = "added tokens (added_tokens or added_tokens_decoder)"
_UNTRIMMED = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)


def byte_level(checkpoint: Checkpoint, order: Arrangement, special: Collection[int] = ()) -> ByteLevelBPETokenizer:
    """Returns the byte-level tokenizer of `tokenizer.json`, or of `vocab.json` and `merges.txt`.

    Args:
        checkpoint: The checkpoint.
        order: Our order of the ids.
        special: Ids of special tokens, besides those that `tokenizer.json` marks as special.

    Raises:
        InputError: If the files are missing or contradict each other, or split text in an unsupported way.
    """
    if (path := checkpoint.path / DESCRIBED).is_file():
        tokenizer = described_byte_level(path, checkpoint.json(DESCRIBED), order, special)
    else:
        described, files = _older_files(checkpoint, order)
        tokenizer = described_byte_level(checkpoint.path / "vocab.json", described, order, special, files)
    if tokenizer_config(checkpoint).get("add_prefix_space"):
        raise InputError(
            f"{checkpoint.path / 'tokenizer_config.json'}: add_prefix_space must be false to be imported. "
            "Received: true."
        )
    return tokenizer


_QWEN = "Qwen2Tokenizer"
_WORDS_OF = {**dict.fromkeys(("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer"), GPT2), _QWEN: GPT4 + SINGLE_DIGITS}
_CLASSES = {"qwen2": _QWEN, "qwen3": _QWEN}


def _older_files(checkpoint: Checkpoint, order: Arrangement) -> tuple[dict[str, Any], dict[str, Path]]:
    """Returns what `tokenizer.json` would contain for `vocab.json` and `merges.txt`, and the file of each added token.

    The class of the tokenizer decides how texts are split into words.
    """
    vocabulary = checkpoint.json("vocab.json")
    merges = _merges(checkpoint.file("merges.txt"), vocabulary)
    config, model_type = tokenizer_config(checkpoint), checkpoint.config.get("model_type", "")
    kind = str(config.get("tokenizer_class") or _CLASSES.get(model_type, "GPT2Tokenizer")).removesuffix("Fast")
    if kind not in _WORDS_OF:
        raise InputError(
            f"{checkpoint.path / 'tokenizer_config.json'}: tokenizer_class must be one of {', '.join(_WORDS_OF)} "
            f"without {DESCRIBED}. Received: {kind!r}."
        )
    flags = {
        content_of(token): token
        for token in (config.get("added_tokens_decoder") or {}).values()
        if isinstance(token, dict)
    }
    ours = order.original_ids[: END + 1]  # special without flags, too
    tokens = {
        token: (path, index, is_special or (token not in flags and index in ours))
        for path, token, index, is_special in added_tokens_of(checkpoint)
    }
    described = {
        "normalizer": {"type": "NFC"} if kind == _QWEN else None,
        "pre_tokenizer": _steps(_WORDS_OF[kind]),
        "decoder": _LEVELS,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
        "added_tokens": [
            {**flags.get(token, {}), "id": index, "content": token, "special": is_special}
            for token, (_, index, is_special) in sorted(tokens.items(), key=lambda item: item[1][1])
        ],
    }
    return described, {token: path for token, (path, *_) in tokens.items()}


def _merges(path: Path, vocabulary: Mapping[str, int]) -> list[list[str]]:
    """Returns the merges of `merges.txt`.

    Raises:
        InputError: If the file is not UTF-8, has a byte order mark, or a line is no merge of pieces of the vocabulary.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be UTF-8: {error}.") from None
    if lines[0].startswith("\ufeff"):
        raise InputError(f"{path} must begin without a byte order mark. Received: {lines[0]!r:.100}.")
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    for pair in merges:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            raise InputError(
                f"{path}: each line after #version must be two pieces of vocab.json that are one together. "
                f"Received: {' '.join(pair)!r:.100}."
            )
    return merges


def described_byte_level(
    path: Path,
    described: Mapping[str, Any],
    order: Arrangement,
    special: Collection[int] = (),
    files: Mapping[str, Path] | None = None,
) -> ByteLevelBPETokenizer:
    """Returns the byte-level tokenizer that a `tokenizer.json` describes.

    Args:
        path: The file, for the error.
        described: The content of the file.
        order: Our order of the ids.
        special: Ids of special tokens, besides those that the file marks as special.
        files: The files of added tokens, for the error. Default: `path` for all.

    Raises:
        InputError: If it is another kind of tokenizer, or splits text in an unsupported way.
    """
    splits, normalizer = described.get("pre_tokenizer") or {}, described.get("normalizer") or {}
    model, decoder, rule = described.get("model") or {}, described.get("decoder") or {}, _rule(splits)
    kind = model_kind(model)
    unsupported = [
        f"{name}={received!r}"
        for name, received, is_supported in (
            ("model.type", kind, kind == "BPE"),
            *((f"model.{name}", model.get(name), not model.get(name)) for name in _OTHER_BPE),
            ("pre_tokenizer", splits, rule is not None),
            ("normalizer", normalizer, normalizer.get("type") in (None, "NFC")),
            ("decoder", decoder, decoder.get("type") == "ByteLevel"),
        )
        if not is_supported
    ]
    if unsupported or rule is None:
        raise InputError(
            f"{path}: only byte-level BPE is supported, with or without NFC, and with the rule for words of GPT-2, "
            f"SmolLM2, GPT-4 or Qwen. Received: {', '.join(unsupported)[:300]}."
        )
    compose = normalizer.get("type") == "NFC"
    merges = [pair.split(" ") if isinstance(pair, str) else list(pair) for pair in model["merges"]]
    tokens, merged = described.get("added_tokens") or [], {*map("".join, merges)}
    following = len(model["vocab"])  # which the package gives the next added token, whatever the file says
    for token in tokens:
        file = (files or {}).get(token["content"], path)
        _check_added(file, token, model["vocab"], merged, max(order.original_ids))
        if token["content"] not in model["vocab"]:
            if token["id"] != following:
                raise InputError(
                    f"{file}: the id of {token['content']!r} must be {following} in {_ADDED}, the next one. "
                    f"Received: {token['id']}."
                )
            following += 1
    special = {*special, *(token["id"] for token in tokens if token["special"])}
    vocabulary = {**model["vocab"], **{token["content"]: token["id"] for token in tokens if token["special"]}}
    added = _added_tokens((token for token in tokens if not token["special"]), compose)
    options = {"compose": compose, "words": rule, "whole_words": bool(model.get("ignore_merges"))}
    return _byte_level_bpe(path, order, vocabulary, merges, special, added, options)


def _rule(splits: Mapping[str, Any]) -> str | None:
    """Returns the name of the rule for words of a `pre_tokenizer`, or None if it is not supported."""
    *before, level = splits["pretokenizers"] if splits.get("type") == "Sequence" else [splits]
    if level.get("type") != _LEVELS["type"] or level.get("add_prefix_space") or len(before) > 1:
        return None
    step = before[0] if before else {}
    if level.get("use_regex", True):
        return GPT2 if not before else GPT2 + SINGLE_DIGITS if step == _DIGITS else None
    # The patterns leave no gaps: what lies between their matches, which is removed with `invert`, is empty.
    behavior, is_inverted = step.get("behavior"), bool(step.get("invert"))
    if step.get("type") != "Split" or (behavior, is_inverted) not in (("Isolated", False), ("Removed", True)):
        return None
    return _RULES.get(step["pattern"].get("Regex", ""))


def _steps(rule: str) -> dict[str, Any]:
    """Returns the `pre_tokenizer` of a rule for words."""
    if rule == GPT2:
        return _LEVELS
    if rule == GPT2 + SINGLE_DIGITS:
        return {"type": "Sequence", "pretokenizers": [_DIGITS, _LEVELS]}
    split = {"type": "Split", "pattern": {"Regex": _PATTERNS[rule]}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, {**_LEVELS, "use_regex": False}]}


def _check_added(
    path: Path, token: Mapping[str, Any], vocabulary: Mapping[str, int], merged: Collection[str], last: int
) -> None:
    """Checks that an added token is found in texts as ours are, and has an id of the vocabulary and of the model.

    Args:
        path: The file, for the error.
        token: The token, as the file describes it.
        vocabulary: The ids of the other pieces.
        merged: The pieces that merges result in.
        last: The last id of the model.

    Raises:
        InputError: If it is not.
    """
    text = token["content"]
    if (index := vocabulary.get(text, token["id"])) != token["id"]:
        raise InputError(
            f"{path}: the id of {text!r} must be {index} in added_tokens, as in model.vocab. Received: {token['id']}."
        )
    if token["id"] > last:
        raise InputError(
            f"{path}: the model has no token for {text!r}, whose id is at most {last}. Received: {token['id']}."
        )
    if token["special"] and text in merged:
        raise InputError(
            f"{path}: special of {_ADDED} must be false for a piece that a merge results in. "
            f"Received: {text!r} with special=true."
        )
    if not token["special"] and (trimmed := [key for key in _UNTRIMMED if token.get(key)]):
        raise InputError(
            f"{path}: {trimmed[0]} of {_ADDED} must be false unless they are special. "
            f"Received: {text!r} with {trimmed[0]}=true."
        )


def _added_tokens(tokens: Iterable[Mapping[str, Any]], compose: bool) -> list[AddedToken]:
    """Returns the added tokens that are not special, with their original ids."""
    added = []
    for token in tokens:
        is_composed = token.get("normalized", True)
        text = composed(token["content"]) if compose and is_composed else token["content"]
        added.append(AddedToken(text, token["id"], is_composed))
    return added


def _byte_level_bpe(
    path: Path,
    order: Arrangement,
    vocabulary: Mapping[str, int],
    merges: Sequence[Sequence[str]],
    special: Collection[int] = (),
    added: Sequence[AddedToken] = (),
    options: Mapping[str, Any] | None = None,
) -> ByteLevelBPETokenizer:
    size = max(order.original_ids) + 1
    names = {**vocabulary, **{token.text: token.token_id for token in added}}
    if beyond := [piece for piece, index in names.items() if index >= size]:
        raise InputError(f"{path}: the model has no token for {beyond[0]!r} of the vocabulary.")
    pieces = {token.token_id: "" for token in added}
    pieces |= {i: piece for piece, i in vocabulary.items() if i not in pieces or {*piece} <= {*byte_alphabet()}}
    controls = [  # special tokens, and rows that only pad the table of embeddings
        ours for ours, original in enumerate(order.original_ids) if original in special or original not in pieces
    ]
    texts = order.pieces([pieces.get(index, UNUSED) for index in range(size)])
    ours = {original: index for index, original in enumerate(order.original_ids)}
    added = [token._replace(token_id=ours[token.token_id]) for token in added if token.token_id not in special]
    try:
        return ByteLevelBPETokenizer(texts, merges, controls, order.original_ids, added, **(options or {}))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def byte_level_files(
    tokenizer: ByteLevelBPETokenizer,
    order: Arrangement,
    special: Mapping[int, str] | None = None,
    begins: bool = False,
) -> dict[str, Any]:
    """Returns the files of a byte-level tokenizer by name.

    Args:
        tokenizer: The tokenizer.
        order: The order of our tokens.
        special: The names of start, end and perhaps padding, by our id.
        begins: Whether the start token is added before texts.
    """
    ids = order.original_ids
    vocabulary, merges = tokenizer.vocabulary()
    special = special or {START: START_NAME, END: END_NAME}
    names = {ids[ours]: name for ours, name in special.items()}  # the end's name for a token that is both
    table = tokenizer.piece_table()
    names |= {ids[i]: table[i] for i in tokenizer.controls if i > END and table[i] != UNUSED}
    pieces = {i: piece for piece, i in vocabulary.items()} | names
    added: list[dict[str, Any]] = [
        *({"id": i, "content": name, "normalized": False, "special": True} for i, name in names.items()),
        *(
            {"id": ids[token.token_id], "content": token.text, "normalized": token.is_composed, "special": False}
            for token in tokenizer.added
        ),
    ]
    # The package numbers added tokens from the size of the vocabulary on, so that it must have no gaps.
    numbered = pieces.keys() | {token["id"] for token in added}
    pieces |= {i: f"<|unused_{i}|>" for i in range(max(numbered)) if i not in numbered}
    described = {
        "version": "1.0",
        "added_tokens": sorted(({**token, **_UNTRIMMED} for token in added), key=lambda token: token["id"]),
        "normalizer": {"type": "NFC"} if tokenizer.compose else None,
        "pre_tokenizer": _steps(tokenizer.words),
        "post_processor": starting(names[ids[START]], ids[START]) if begins else None,
        "decoder": _LEVELS,
        "model": {
            "type": "BPE",
            "ignore_merges": tokenizer.whole_words,
            "vocab": {pieces[i]: i for i in sorted(pieces)},
            "merges": merges,
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": names[ids[START]],
        "eos_token": special[END],
        "clean_up_tokenization_spaces": False,
    }
    return {DESCRIBED: described, "tokenizer_config.json": config}


def starting(name: str, index: int) -> dict[str, Any]:
    """Returns the `post_processor` that adds a start token before texts."""
    start = {"id": name, "type_id": 0}
    single = [{"SpecialToken": start}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"SpecialToken": {**start, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [index], "tokens": [name]}},
    }
