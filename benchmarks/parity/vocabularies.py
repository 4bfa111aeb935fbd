"""Tokenizers of other software."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.parity.reference import Vocabulary


def fast_vocabulary(tokenizer: Any) -> Vocabulary:
    """Returns that of the package `tokenizers`, special tokens in texts read as text."""
    import tokenizers

    tokenizer.encode_special_tokens = True
    return Vocabulary(
        f"tokenizers {tokenizers.__version__}",
        lambda texts: [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)],
        lambda rows: tokenizer.decode_batch([list(row) for row in rows], skip_special_tokens=False),
    )


def gpt2_vocabulary(pretrained: Path) -> Any:
    """Returns the tokenizer of GPT-2 of the package `tokenizers`."""
    from transformers import GPT2TokenizerFast

    files = {
        name: str(pretrained / "gpt2" / file) for name, file in (("vocab", "vocab.json"), ("merges", "merges.txt"))
    }
    return GPT2TokenizerFast(**files).backend_tokenizer


def copy_tokenizer(pretrained: Path, name: str, folder: Path) -> Mapping[str, Any]:
    """Copies the files of a tokenizer, and returns the configuration of the model."""
    shutil.copytree(pretrained / name, folder, dirs_exist_ok=True)
    for path in folder.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)
    config: Mapping[str, Any] = json.loads((pretrained / name / "config.json").read_text(encoding="utf-8"))
    return config
