"""Downloads checkpoints from the hub of Hugging Face with its own package, `huggingface_hub`.

Its cache and its environment variables apply, such as `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from zoo.errors import InputError
from zoo.runtime.cli import disk_full
from zoo.runtime.extras import install_command

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
"""Patterns of the files of a checkpoint; nothing else is downloaded."""

PICKLED = "pytorch_model.bin"
"""Weights that are downloaded only if there are no others."""

_NAME = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*)(?:@(.+))?", re.ASCII)


def is_repository(name: str) -> bool:
    """Returns whether a name may be OWNER/NAME or OWNER/NAME@REVISION, and is not a local folder."""
    return _NAME.fullmatch(name) is not None and not Path(name).exists()


def bring(name: str) -> Path:
    """Downloads a repository's files and returns their folder in the hub's cache; its name is the commit.

    Args:
        name: OWNER/NAME, or OWNER/NAME@REVISION with a branch, a tag or a commit.

    Raises:
        InputError: If the package is not installed, or the repository or its revision cannot be downloaded.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"A model of the hub must be OWNER/NAME or OWNER/NAME@REVISION. Received: {name!r}.")
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
            f"{repository} is not a local folder. To download a model from the hub, install the extra: "
            f"{install_command('hub')}."
        ) from None
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(files)))
    except errors.GatedRepoError:
        reason = "its licence must be accepted on the hub: do so, and run `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "the hub has no such model, or it is private (`hf auth login`); nor is it a local folder"
    except errors.RevisionNotFoundError:
        reason = f"it has no revision {revision}"
    except errors.LocalEntryNotFoundError as error:
        reason = f"the hub cannot be reached, and its cache is incomplete ({_first_line(error.__cause__ or error)})"
    except Exception as error:  # errors of HTTP have their own classes
        if disk_full(error):
            raise
        reason = _first_line(error)
    raise InputError(f"{repository} cannot be downloaded: {reason}.")


def _first_line(error: BaseException) -> str:
    """Returns the type of an error, and the first line of its message."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
