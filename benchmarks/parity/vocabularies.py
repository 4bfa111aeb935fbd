"""Tokenizers of other software."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sentencepiece

from benchmarks.parity.reference import Vocabulary


def fast_vocabulary(tokenizer: Any) -> Vocabulary:
    """Returns the vocabulary of a tokenizer of the package `tokenizers`, which reads special tokens as text."""
    import tokenizers

    tokenizer.encode_special_tokens = True
    return Vocabulary(
        f"tokenizers {tokenizers.__version__}",
        lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)],
        lambda rows: tokenizer.decode_batch([list(row) for row in rows], skip_special_tokens=False),
    )


def load_fast(folder: Path) -> Any:
    """Returns the tokenizer of `tokenizer.json`, without truncation and padding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def gpt2_vocabulary(pretrained: Path) -> Any:
    """Returns GPT-2's tokenizer of the package `tokenizers`."""
    from transformers import GPT2TokenizerFast

    files = {"vocab": pretrained / "gpt2" / "vocab.json", "merges": pretrained / "gpt2" / "merges.txt"}
    return GPT2TokenizerFast(**{name: str(path) for name, path in files.items()}).backend_tokenizer


_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def modern_vocabulary(pretrained: Path, is_qwen: bool) -> Any:
    """Returns GPT-2's pieces with the words of Qwen, or of GPT-4, as Llama 3 and OLMo 2 have them; and added tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

    described = json.loads(gpt2_vocabulary(pretrained).to_str())
    described["model"]["ignore_merges"] = not is_qwen
    tokenizer = Tokenizer.from_str(json.dumps(described))
    split = pre_tokenizers.Split(Regex(_WORDS.replace("{1,3}", "") if is_qwen else _WORDS), "isolated")
    levels = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, levels])
    if is_qwen:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<think>", "</think>", "...")])
    return tokenizer


def load_pieces(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Returns a model of SentencePiece."""
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def piece_vocabulary(
    processor: sentencepiece.SentencePieceProcessor, ids: Mapping[int, int], unknown: int
) -> Vocabulary:
    """Returns the vocabulary of a model of SentencePiece.

    Args:
        processor: The model.
        ids: The id of each piece by its number in the model; all other ids are no text.
        unknown: The id of all other pieces.
    """
    pieces = {token: piece for piece, token in ids.items()}
    return Vocabulary(
        f"sentencepiece {sentencepiece.__version__}",
        lambda texts: [[ids.get(piece, unknown) for piece in row] for row in processor.encode(list(texts))],
        lambda rows: processor.decode([[pieces[token] for token in row if token in pieces] for row in rows]),
    )


def copy_tokenizer(pretrained: Path, name: str, folder: Path) -> Mapping[str, Any]:
    """Copies the files of a tokenizer, and returns the configuration of its model."""
    shutil.copytree(pretrained / name, folder, dirs_exist_ok=True)
    for path in folder.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)
    config: Mapping[str, Any] = json.loads((pretrained / name / "config.json").read_text(encoding="utf-8"))
    return config
