"""The layout of a work directory, which training writes and everything else reads."""

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
    """Yields a temporary path beside `path` that takes its place if the block succeeds, and is removed if not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        nameless = error.errno is not None and error.filename is None  # without a number, the text would be lost
        if nameless or str(error.filename) == str(temporary):  # a name that means nothing to anybody
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder, still to be made, that becomes `path` if the block succeeds, and is removed if not.

    Raises:
        InputError: If there is something at `path` other than an empty folder.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} exists already. Name a new folder.")
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """Returns the temporary name beside a path, which keeps its suffix."""
    # Not from `tempfile`, whose files only the owner may read.
    return path.with_name(f".tmp-{os.getpid()}-{path.name}")


class WorkDir:
    """Paths in a work directory.

    Args:
        path: The directory; it need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.data = self.path / "data.json"
        self.model = self.path / "model.keras"
        self.weights = self.path / "model.safetensors"  # in the place of the model, where it was converted
        self.model_card = self.path / "MODEL_CARD.md"
        self.metrics = self.path / "metrics.jsonl"
        self.checksums = self.path / CHECKSUMS
        self.lock = self.path / ".lock"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tb"
        self.tokenizers = self.path / "tokenizers"
        self.folders = (self.checkpoints, self.tensorboard, self.tokenizers)

    def tokenizer(self, name: str) -> Path:
        """Returns the path, without suffix, of the tokenizer called `name`."""
        return self.tokenizers / name

    @property
    def writes(self) -> bool:
        """Whether this process writes into the directory, which a `ReadOnlyWorkDir` does not."""
        return True

    def append_text(self, path: Path, text: str) -> None:
        """Adds text to a file."""
        with path.open("a", encoding="utf-8") as file:
            file.write(text)

    @contextmanager
    def replacing(self, path: Path) -> Iterator[Path]:
        """As the function `replacing`, for a file that is then known by its checksum."""
        with replacing(path) as temporary:
            yield temporary
            self._note(path, None)  # until the new file is in its place
            sha256 = checksum(temporary)
        self._note(path, sha256)

    def copy_to(self, other: "WorkDir") -> None:
        """Copies what describes a model, its configuration, tokenizers and card, to another directory."""
        for path in (self.config, self.data, self.model_card, *sorted(self.tokenizers.glob("*"))):
            if path.is_file():
                with other.replacing(other.path / path.relative_to(self.path)) as copy:
                    shutil.copyfile(path, copy)

    def _note(self, path: Path, sha256: str | None) -> None:
        noted, name = self._noted(), path.relative_to(self.path).as_posix()
        if noted.pop(name, None) or sha256:
            noted |= {name: sha256} if sha256 else {}
            self.write_text(self.checksums, json.dumps(noted, indent=2, sort_keys=True) + "\n")

    def _noted(self) -> dict[str, str]:
        """Returns the known checksums; none for a directory of an earlier version."""
        try:
            noted = json.loads(self.checksums.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            noted = None
        if not isinstance(noted, dict):
            raise InputError(f"{self.checksums} is damaged. Without this file, others are read unchecked.")
        return noted

    def check(self, *names: str) -> None:
        """Checks that files, and all in folders, are as they were written, as far as their checksums are known.

        Raises:
            InputError: If one is not; it is named.
        """
        for name, sha256 in self._noted().items():
            path = self.path / name
            if name.partition("/")[0] in names and path.is_file() and checksum(path) != sha256:
                raise InputError(f"{path} is damaged: its SHA-256 sum is another than in {self.checksums.name}.")

    def check_model(self) -> None:
        """Checks that `model.keras` is as it was written.

        Raises:
            InputError: If it is not.
        """
        self.check(self.model.name)
        try:  # the checksums of a zip, for what has no other
            with zipfile.ZipFile(self.model) as file:
                damaged = None if self.model.name in self._noted() else file.testzip()
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
            raise InputError(f"{self.model} is damaged: {error}.") from None
        if damaged:
            raise InputError(f"{self.model} is damaged: {damaged} in it is not what its checksum says.")

    def remove_leftovers(self) -> None:
        """Removes what processes left that were killed while they wrote; to be called by the one that trains here."""
        for path in [*self.path.glob(".tmp-*"), *self.path.glob("*/.tmp-*")]:
            match = _TEMPORARY.fullmatch(path.name)
            if match and not _is_alive(int(match[1])):
                with suppress(OSError):  # a finished run may be where nothing can be written
                    path.unlink()

    def write_text(self, path: Path, text: str) -> None:
        """Writes a text file so that it is never seen half written."""
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def read_config(self) -> dict[str, Any]:
        """Returns the resolved configuration of the run.

        Raises:
            InputError: If there is none, or it cannot be read.
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
            raise InputError(f"{self.config} is not a configuration: it names no model.") from None
        return config


class ReadOnlyWorkDir(WorkDir):
    """A work directory that another process writes: what this one would write goes to a folder that is thrown away.

    Args:
        path: The directory.
        discarded: The folder.
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
        """Yields a path of that name in the folder."""
        temporary = self._discarded / path.name
        yield temporary
        temporary.unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Does nothing."""

    def write_text(self, path: Path, text: str) -> None:
        """Does nothing."""


def _is_alive(process: int) -> bool:
    """Returns whether a process with this number runs, other than this one, which has written nothing yet."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()
