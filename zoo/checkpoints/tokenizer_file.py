"""A tokenizer without a checkpoint: a SentencePiece model or a `tokenizer.json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.checkpoints.byte_level_tokenizers import described_byte_level
from zoo.checkpoints.checkpoint import check_content
from zoo.checkpoints.json_types import check_types
from zoo.checkpoints.sentencepiece_writer import described_sentencepiece, space_before
from zoo.checkpoints.tokenizers import added_token_error, has_byte_pieces, model_kind
from zoo.checkpoints.vocabulary import NEW, Arrangement, arrange
from zoo.checkpoints.wordpiece import described_wordpiece
from zoo.errors import InputError
from zoo.text import ReorderedSubwordTokenizer, Tokenizer, WordPieceTokenizer, load_tokenizer
from zoo.text.subwords import read_model

# Names of start, end and the unknown token in files of other software.
_NAMES = (
    ("<s>", "[CLS]", "<bos>", "[BOS]", "<|startoftext|>", "<|begin_of_text|>"),
    ("</s>", "[SEP]", "<eos>", "[EOS]", "<|endoftext|>", "<|end_of_text|>"),
    ("<unk>", "[UNK]", "<|unk|>"),
)


def read_tokenizer_file(path: Path) -> Tokenizer:
    """Returns the tokenizer in a file; its kind is recognised by its content.

    Our ids 0 to 3 are padding, start, end and unknown; those that the file lacks are new, and all others keep their
    order. Limits of length are ignored, and so are the tokens around texts, except those of WordPiece.

    Raises:
        InputError: If the file cannot be read, is damaged, or has unsupported steps; the message contains its path.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None
    check_content(path)
    return _from_json(path, content) if content.lstrip()[:1] == b"{" else _sentencepiece(path, content)


def saved_tokenizer(path: Path) -> Tokenizer | None:
    """Returns the tokenizer that `Tokenizer.save` wrote to a file NAME.json and others beside it; `None` for others.

    Raises:
        InputError: If a file is missing or damaged.
    """
    try:
        described = json.loads(path.read_bytes()) if path.suffix == ".json" else None
    except (OSError, ValueError):
        return None
    return _load_saved(path, described)


def _load_saved(path: Path, described: Any) -> Tokenizer | None:
    """Returns the tokenizer that `Tokenizer.save` wrote, given the content of its file NAME.json; `None` for others."""
    is_saved = path.suffix == ".json" and isinstance(described, dict) and "kind" in described
    return load_tokenizer(path.with_suffix("")) if is_saved else None


def _sentencepiece(path: Path, content: bytes) -> ReorderedSubwordTokenizer:
    try:
        processor = read_model(content)
    except InputError as error:
        raise InputError(f"{path} is neither a SentencePiece model nor a tokenizer.json: {error}") from None
    special = [processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id()]  # −1 for none
    others = (index for index in range(processor.vocab_size()) if index not in special)
    return ReorderedSubwordTokenizer(content, [*special, *others])


def _from_json(path: Path, content: bytes) -> Tokenizer:
    """Returns the tokenizer that a `tokenizer.json` describes."""
    try:
        described = json.loads(content)
        if (saved := _load_saved(path, described)) is not None:
            return saved
        check_types(path, described, "tokenizer.json")
        kind = model_kind(described["model"])
        if kind == "WordPiece":
            return _wordpiece(path, described)
        if kind != "BPE":
            raise InputError(
                f"{path}: model.type must be BPE or WordPiece; for SentencePiece pass its own model, .model or .spm. "
                f"Received: model.type={kind!r}."
            )
        if has_byte_pieces(described):
            return _pieces_with_bytes(path, described)
        return described_byte_level(path, described, _order(described))
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged, or not a tokenizer.json ({type(error).__name__}: {error}).") from None


def _pieces_with_bytes(path: Path, described: Mapping[str, Any]) -> ReorderedSubwordTokenizer:
    """Returns the SentencePiece of a decoder; added tokens beyond its pieces must be special."""
    vocabulary, unknown = described["model"]["vocab"], described["model"].get("unk_token") or _NAMES[-1][0]
    for token in described.get("added_tokens") or []:
        if not token["special"] and token["content"] not in vocabulary:
            raise added_token_error(path, token["content"])
    usual = (names[0] for names in _NAMES)  # which Phi-3 does not mark as special
    controls = {name: vocabulary[name] for name in (*usual, unknown) if name in vocabulary}
    model = described_sentencepiece(path, described, controls, unknown)
    ids, size = _order(described, controls).original_ids, len(vocabulary)
    is_spaced = space_before(path, described) == "Metaspace"
    return ReorderedSubwordTokenizer(model, [i if i < size else NEW for i in ids], spaced=is_spaced)


def _wordpiece(path: Path, described: Mapping[str, Any]) -> WordPieceTokenizer:
    """Returns a WordPiece tokenizer; texts begin with a special token only if the file adds one."""
    if described.get("post_processor"):
        return described_wordpiece(path, described, {})[0]
    around = {"type": "BertProcessing", "cls": ["[CLS]"], "sep": ["[SEP]"]}
    return described_wordpiece(path, {**described, "post_processor": around}, {})[0].without_start()


def _order(described: Mapping[str, Any], controls: Mapping[str, int] | None = None) -> Arrangement:
    """Returns our order of the ids of a BPE; start, end and unknown come last if it lacks them.

    Padding is new, as for checkpoints of decoders, which may generate the padding token of the file.

    Args:
        described: The content of the file.
        controls: The ids of special tokens, besides those that the file marks as special.
    """
    added = described.get("added_tokens") or []
    special = {**(controls or {}), **{token["content"]: token["id"] for token in added if token["special"]}}
    ids = [*described["model"]["vocab"].values(), *(token["id"] for token in added)]
    size = max(ids, default=-1) + 1
    named = [next((special[name] for name in names if name in special), NEW) for names in _NAMES]
    start, end, unknown = (size + named[:n].count(NEW) if index == NEW else index for n, index in enumerate(named))
    return arrange(size + named.count(NEW), start, end, unknown=unknown)
