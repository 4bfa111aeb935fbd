"""Reads models that Marian's own software wrote: weights in `.npz`, options in YAML, and vocabularies."""

import functools
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.json_types import check_unicode
from zoo.checkpoints.safetensors_file import widened
from zoo.errors import InputError

MODEL_TYPE = "marian"
_OPTIONS = "special:model.yml"
_DECODER = "decoder.yml"
# Errors of a damaged archive; the last two are those of unsupported compression and of passwords.
_DAMAGED = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError)


class MarianCheckpoint(Checkpoint):
    """A folder of Marian; its configuration is the YAML inside the weights, and `NAME.npz.yml` beside them.

    If there is a `decoder.yml`, it names the files.

    Args:
        path: The folder.

    Raises:
        InputError: If it is not such a folder, or a file in it is missing or damaged.
    """

    vocabularies: list[Path]

    @property
    def config_file(self) -> Path:
        return self._file

    def _configuration(self) -> dict[str, Any]:
        decoder = self._yaml(self.path / _DECODER) if (self.path / _DECODER).is_file() else {}
        self._file = self._weights(decoder.get("models"))
        beside = self._file.with_name(f"{self._file.name}.yml")
        config = self._yaml(beside) if beside.is_file() else {}
        config |= self._inside()
        vocabularies = decoder.get("vocabs") or config.get("vocabs")
        if not isinstance(vocabularies, list) or not vocabularies:
            raise InputError(f"{self.path}: neither {_DECODER} nor {beside.name} names the vocabularies (vocabs).")
        self.vocabularies = [self.file(Path(str(name)).name) for name in vocabularies]
        return {**config, "model_type": f"{MODEL_TYPE} {config.get('type', 'without type')}"}

    def _weights(self, named: Any) -> Path:
        """Returns the file of the weights: the one that `decoder.yml` names, or else the only one."""
        if named:
            names = [Path(str(name)).name for name in (named if isinstance(named, list) else [named])]
        else:
            names = sorted(path.name for path in self.path.glob("*.npz") if ".optimizer." not in path.name)
        if len(names) != 1:
            received = ", ".join(names) or "none"
            raise InputError(
                f"{self.path} must have one .npz file, or a {_DECODER} that names one. Received: {received}."
            )
        return self.file(names[0])

    def _inside(self) -> dict[str, Any]:
        """Opens the weights, and returns the options inside."""
        try:
            self._archive = zipfile.ZipFile(self._file)
            self._entries = {name.removesuffix(".npy"): self._header(name) for name in self._archive.namelist()}
        except _DAMAGED as error:
            raise InputError(f"{self._file} is damaged, or is not an .npz file: {error}.") from None
        if _OPTIONS not in self._entries:
            raise InputError(f"{self._file} has no {_OPTIONS}, the options that Marian writes into it.")
        text = self._read(_OPTIONS).tobytes().rstrip(b"\0")
        return self._parsed(text, Path(f"{self._file}:{_OPTIONS}"))

    def _header(self, name: str) -> tuple[tuple[int, ...], np.dtype]:
        """Returns shape and type of an array, which must be numbers: pickled objects are never read."""
        with self._archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
        if dtype.kind not in "fiu":
            raise ValueError(f"{name} holds no numbers")
        return shape, dtype

    def _read(self, name: str) -> np.ndarray:
        try:
            with self._archive.open(f"{name}.npy") as file:
                return np.lib.format.read_array(file, allow_pickle=False)
        except _DAMAGED as error:
            raise InputError(f"{self._file} is damaged at {name}: {error}.") from None

    def _open(self) -> list[Path]:
        for name, (shape, _) in self._entries.items():
            if not name.startswith("special:"):
                self._tensors[name] = self._file, shape, functools.partial(self._floats, name)
        return [self._file]

    def _floats(self, name: str) -> np.ndarray:
        return widened(self._read(name), bfloat16=False)

    def _yaml(self, path: Path) -> dict[str, Any]:
        return self._parsed(path.read_bytes(), path)

    def _parsed(self, text: bytes, path: Path, strings: bool = False) -> dict[str, Any]:
        import yaml

        try:
            parsed = yaml.load(text, yaml.BaseLoader if strings else yaml.SafeLoader)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is damaged: {' '.join(str(error).split())}.") from None
        if not isinstance(parsed, dict):
            raise InputError(f"{path} is damaged: it holds no names with values.")
        return parsed

    def ids(self, path: Path) -> dict[str, int]:
        """Returns the id of each token of a vocabulary in YAML.

        Raises:
            InputError: If it is damaged.
        """
        ids = self._parsed(path.read_bytes(), path, strings=True)
        if invalid := [token for token, i in ids.items() if not (isinstance(i, str) and i.isdecimal())]:
            raise InputError(f"{path} is damaged: {invalid[0]!r} has no number.")
        check_unicode(path, ids)
        return {token: int(i) for token, i in ids.items()}
