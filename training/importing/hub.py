"""Checkpoints of the hub of Hugging Face, brought here by its own package, `huggingface_hub`.

Its cache and its environment variables count, such as `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from zoo.cli import disk_full
from zoo.errors import InputError
from zoo.extras import install_command

FILES = (
    "README.md",
    "added_tokens.json",
    "config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "merges.txt",
    "model-*-of-*.safetensors",
    "model.safetensors",
    "model.safetensors.index.json",
    "modules.json",
    "sentence_bert_config.json",
    "sentencepiece.bpe.model",
    "source.spm",
    "spiece.model",
    "target.spm",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    # The modules of a sentence encoder.
    "?_*/config.json",
    "?_*/model.safetensors",
    "?_*/pytorch_model.bin",
)
"""Patterns of the files that a checkpoint is made of here; nothing else is brought."""

PICKLED = "pytorch_model.bin"
"""Weights that are brought only where there are no others."""

_NAME = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*)(?:@(.+))?", re.ASCII)


def is_repository(name: str) -> bool:
    """Returns whether a name could be OWNER/NAME or OWNER/NAME@REVISION, and is no folder here."""
    return _NAME.fullmatch(name) is not None and not Path(name).exists()


def bring(name: str) -> Path:
    """Returns the folder in the hub's cache that has a repository's files; its name is the commit.

    Args:
        name: OWNER/NAME, or OWNER/NAME@REVISION with a branch, a tag or a commit.

    Raises:
        InputError: If the package is not installed, or the repository or its revision cannot be had.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"A model of the hub is OWNER/NAME or OWNER/NAME@REVISION. Received: {name!r}.")
    repository, revision = match.groups()
    folder = _snapshot(repository, revision, FILES)
    if not any(folder.glob("*.safetensors")):
        folder = _snapshot(repository, folder.name, (*FILES, PICKLED))
    return folder


def _snapshot(repository: str, revision: str | None, files: Sequence[str]) -> Path:
    try:
        from huggingface_hub import errors, snapshot_download
    except ModuleNotFoundError as error:
        if error.name != "huggingface_hub":
            raise
        raise InputError(
            f"{repository} is no folder here. To bring a model from the hub, install the extra: "
            f"{install_command('hub')}."
        ) from None
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(files)))
    except errors.GatedRepoError:
        reason = "it is for those who have accepted its licence there: do so, and `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "the hub has no such model, or it is private (`hf auth login`); nor is it a folder here"
    except errors.RevisionNotFoundError:
        reason = f"it has no revision {revision}"
    except errors.LocalEntryNotFoundError as error:
        reason = f"the hub cannot be reached, and its cache has not all of it ({_first_line(error.__cause__ or error)})"
    except Exception as error:  # of HTTP, which has classes of its own
        if disk_full(error):
            raise
        reason = _first_line(error)
    raise InputError(f"{repository} cannot be had: {reason}.")


def _first_line(error: BaseException) -> str:
    """Returns the kind of an error, and the first line of its text."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
