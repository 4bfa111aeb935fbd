"""The layout of a work directory, which training writes and all other commands read."""

import hashlib
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from zoo.errors import InputError

CHECKSUMS = "checksums.json"
"""SHA-256 sums of files by their path in the folder."""

_TEMPORARY = re.compile(r"\.tmp-(\d+)-.+")


def checksum(path: Path) -> str:
    """Returns the SHA-256 sum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which is renamed to `path` if the block succeeds, and else removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        nameless = error.errno is not None and error.filename is None  # Without a number, the text would be lost.
        if nameless or str(error.filename) == str(temporary):  # The temporary name would not help the user.
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields the path of a temporary folder, which is renamed to `path` if the block succeeds, and else removed.

    Raises:
        InputError: If `path` exists and is not an empty folder.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} exists already. Use a new folder.")
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """Returns the temporary name beside a path, with the same suffix."""
    # Not from `tempfile`, whose files are readable only for the owner.
    return path.with_name(f".tmp-{os.getpid()}-{path.name}")


class WorkDir:
    """Paths in a work directory.

    Args:
        path: The directory, which may be missing.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.data = self.path / "data.json"
        self.model = self.path / "model.keras"
        self.weights = self.path / "model.safetensors"  # instead of the model in a converted directory
        self.model_card = self.path / "MODEL_CARD.md"
        self.metrics = self.path / "metrics.jsonl"
        self.checksums = self.path / CHECKSUMS
        self.lock = self.path / ".lock"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tb"
        self.tokenizers = self.path / "tokenizers"
        self.folders = (self.checkpoints, self.tensorboard, self.tokenizers)

    def tokenizer(self, name: str) -> Path:
        """Returns the path, without suffix, of the tokenizer `name`."""
        return self.tokenizers / name

    @property
    def writes(self) -> bool:
        """Whether this process writes into the directory, which a `ReadOnlyWorkDir` does not."""
        return True

    def append_text(self, path: Path, text: str) -> None:
        """Appends text to a file."""
        with path.open("a", encoding="utf-8") as file:
            file.write(text)

    @contextmanager
    def replacing(self, path: Path) -> Iterator[Path]:
        """Replaces a file as the function `replacing` does, and stores its checksum."""
        with replacing(path) as temporary:
            yield temporary
            self._store_checksum(path, None)  # until the new file is in its place
            sha256 = checksum(temporary)
        self._store_checksum(path, sha256)

    def store_checksum(self, path: Path) -> None:
        """Stores the checksum of a file that others wrote into the directory."""
        self._store_checksum(path, checksum(path))

    def copy_to(self, other: "WorkDir") -> None:
        """Copies configuration, tokenizers and model card to another directory."""
        for path in (self.config, self.data, self.model_card, *sorted(self.tokenizers.glob("*"))):
            if path.is_file():
                with other.replacing(other.path / path.relative_to(self.path)) as copy:
                    shutil.copyfile(path, copy)

    def _store_checksum(self, path: Path, sha256: str | None) -> None:
        checksums, name = self._read_checksums(), path.relative_to(self.path).as_posix()
        if checksums.pop(name, None) or sha256:
            checksums |= {name: sha256} if sha256 else {}
            self.write_text(self.checksums, json.dumps(checksums, indent=2, sort_keys=True) + "\n")

    def _read_checksums(self) -> dict[str, str]:
        """Returns the stored checksums; empty for a directory of an earlier version."""
        try:
            checksums = json.loads(self.checksums.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            checksums = None
        if not isinstance(checksums, dict):
            raise InputError(f"{self.checksums} is damaged. Without this file, others are read unchecked.")
        return checksums

    def check(self, *names: str) -> None:
        """Compares files, and all files in folders, with their stored checksums.

        Raises:
            InputError: If a file differs; the message contains its path.
        """
        for name, sha256 in self._read_checksums().items():
            path = self.path / name
            if name.partition("/")[0] in names and path.is_file() and checksum(path) != sha256:
                raise InputError(f"{path} is damaged: its SHA-256 sum differs from that in {self.checksums.name}.")

    def check_model(self) -> None:
        """Checks that `model.keras` is not damaged.

        Raises:
            InputError: If it is.
        """
        self.check(self.model.name)
        try:  # Without a stored checksum, the checksums of the zip file are checked.
            with zipfile.ZipFile(self.model) as file:
                damaged = None if self.model.name in self._read_checksums() else file.testzip()
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
            raise InputError(f"{self.model} is damaged: {error}.") from None
        if damaged:
            raise InputError(f"{self.model} is damaged: the checksum of {damaged} in it differs.")

    def remove_leftovers(self) -> None:
        """Removes temporary files of killed processes; only the process that trains here may call this."""
        for path in [*self.path.glob(".tmp-*"), *self.path.glob("*/.tmp-*")]:
            match = _TEMPORARY.fullmatch(path.name)
            if match and not _is_alive(int(match[1])):
                with suppress(OSError):  # The folder of a finished run may be read-only.
                    path.unlink()

    def write_text(self, path: Path, text: str) -> None:
        """Writes a text file atomically."""
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def read_config(self) -> dict[str, Any]:
        """Returns the resolved configuration of the run.

        Raises:
            InputError: If it is missing or cannot be read.
        """
        if not self.config.is_file():
            raise InputError(f"{self.path} is not a work directory: it has no {self.config.name}.")
        try:
            config: dict[str, Any] = json.loads(self.config.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.config} is not a configuration: {error}.") from None
        try:
            config["model"]["name"]
        except (KeyError, TypeError):
            raise InputError(f"{self.config} is not a configuration: it contains no model.name.") from None
        return config


class ReadOnlyWorkDir(WorkDir):
    """A work directory that another process writes; this process writes to a temporary folder instead.

    Args:
        path: The directory.
        discarded: The temporary folder.
    """

    def __init__(self, path: str | os.PathLike[str], discarded: Path):
        super().__init__(path)
        self._discarded = discarded
        self.tensorboard = discarded / "tb"

    @property
    def writes(self) -> bool:
        return False

    def append_text(self, path: Path, text: str) -> None:
        """Does nothing."""

    @contextmanager
    def replacing(self, path: Path) -> Iterator[Path]:
        """Yields a path of the same name in the temporary folder."""
        temporary = self._discarded / path.name
        yield temporary
        temporary.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Does nothing."""

    def write_text(self, path: Path, text: str) -> None:
        """Does nothing."""


def _is_alive(process: int) -> bool:
    """Returns whether another process with this number is running; this one has written nothing yet."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()
