"""Reads and writes folders of CTranslate2: `model.bin`, `config.json` in newer versions, and the vocabularies."""

import functools
import math
import mmap
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.json_types import check_unicode
from zoo.checkpoints.safetensors_file import widened
from zoo.errors import InputError, unknown_name

MODEL_TYPE = "ctranslate2"
_TYPES = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2", 5: "<u2"}
_BFLOAT16 = 5
# Before version 4 files have the size of the numbers instead of their type; integers are weights of 8 or 16 bits.
_TYPES_BY_SIZE = {1: 1, 2: 2, 4: 0}
_VERSIONS = range(2, 7)
_LARGEST = 2**32 - 1  # bytes of a tensor


class _Reader:
    """Reads a file sequentially."""

    def __init__(self, path: Path):
        self.path, self.position = path, 0
        try:
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise InputError(f"{path} is missing.") from None
        except ValueError:
            raise InputError(f"{path} is empty.") from None

    def number(self, kind: str) -> int:
        (number,) = struct.unpack_from(f"<{kind}", self.data, self.skip(struct.calcsize(f"<{kind}")))
        return int(number)

    def name(self) -> str:
        size = self.number("H")
        begin = self.skip(size)
        try:
            return self.data[begin : begin + size].rstrip(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{self.path} is damaged, or is no model of CTranslate2.") from None

    def skip(self, size: int) -> int:
        """Skips a number of bytes, and returns the position of the first."""
        begin, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise InputError(f"{self.path} is cut off, or is no model of CTranslate2.")
        return begin

    def ended(self) -> bool:
        return self.position == len(self.data)


class CTranslate2Checkpoint(Checkpoint):
    """A folder of CTranslate2; its configuration is `config.json`, if it has one, with the kind of `model.bin`.

    A tensor may have several names: `aliases` maps the others to the first. Weights of 8 and 16 bits are dequantised.

    Args:
        path: The folder.

    Raises:
        InputError: If it is not such a folder, or is damaged.
    """

    aliases: dict[str, str]

    def _configuration(self) -> dict[str, Any]:
        self._reader = reader = _Reader(self.path / "model.bin")
        self._version = reader.number("I")
        if self._version not in _VERSIONS:
            raise InputError(
                f"{reader.path}: versions {_VERSIONS[0]} to {_VERSIONS[-1]} of the format are supported. "
                f"Received: {self._version}."
            )
        described = self.json("config.json") if (self.path / "config.json").is_file() else {}
        return {**described, "model_type": f"{MODEL_TYPE} {reader.name()}", "revision": reader.number("I")}

    def _open(self) -> list[Path]:
        reader = self._reader
        for _ in range(reader.number("I")):
            name = reader.name()
            shape = tuple(reader.number("I") for _ in range(reader.number("B")))
            kind, count = reader.number("B"), reader.number("I")
            kinds = _TYPES if self._version >= 4 else _TYPES_BY_SIZE
            if kind not in kinds:
                raise InputError(f"{reader.path}: {name} has numbers of the unknown type {kind}.")
            kind = kind if self._version >= 4 else _TYPES_BY_SIZE[kind]
            itemsize = np.dtype(_TYPES[kind]).itemsize
            size = count if self._version >= 4 else count * itemsize
            begin = reader.skip(size)
            if size != itemsize * math.prod(shape):
                raise InputError(f"{reader.path}: {name} has {size} bytes, and the shape {shape}.")
            self._tensors[name] = reader.path, shape, functools.partial(_read, reader.data, begin, kind, shape)
        self.aliases = {}
        if not reader.ended():
            self.aliases = {reader.name(): reader.name() for _ in range(reader.number("I"))}
        if unknown := [name for name in self.aliases.values() if name not in self._tensors]:
            raise InputError(f"{reader.path}: {unknown_name('tensor', unknown[0], self._tensors)}")
        return [reader.path]

    def has(self, name: str) -> bool:
        return super().has(self.aliases.get(name, name))

    def shape(self, name: str) -> tuple[int, ...]:
        """See `Checkpoint`."""
        return super().shape(self.aliases.get(name, name))

    def read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """See `Checkpoint`; quantised weights are returned in float32."""
        name = self.aliases.get(name, name)
        values = super().read(name, shape)
        if not super().has(f"{name}_scale"):
            return values
        scale = super().read(f"{name}_scale", self.shape(f"{name}_scale"))
        # Weights of 8 bits have a scale for each row, those of 16 bits one for all.
        weights: np.ndarray = values.astype(np.float32) / (scale[:, None] if scale.size > 1 else scale.reshape(()))
        return weights

    def scalar(self, *names: str, default: Any) -> Any:
        """Returns the first of these numbers that exists, or else a default."""
        for name in names:
            if self.has(name):
                return self.read(name, ()).item()
        return default

    def tokens(self, side: str) -> list[str]:
        """Returns the vocabulary of a side, `"source"`, `"target"` or that of a language model, `""`, a list of tokens.

        Raises:
            InputError: If it is missing or damaged.
        """
        names = (f"{side}_vocabulary", "shared_vocabulary") if side else ("vocabulary",)
        for name in names:
            if (self.path / f"{name}.json").is_file():
                tokens = [str(token) for token in self.json(f"{name}.json", list)]
                check_unicode(self.path / f"{name}.json", tokens)
                return tokens
            path = self.path / f"{name}.txt"
            if path.is_file():
                try:
                    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
                except UnicodeDecodeError:
                    raise InputError(f"{path} must be UTF-8.") from None
        raise InputError(f"{self.path} has no vocabulary: {' or '.join(names)}, .json or .txt.")


def _read(data: mmap.mmap, begin: int, kind: int, shape: tuple[int, ...]) -> np.ndarray:
    values = np.frombuffer(data, _TYPES[kind], math.prod(shape), begin)
    return widened(values, kind == _BFLOAT16).reshape(shape)


def write_model(
    path: Path, name: str, revision: int, tensors: Mapping[str, Callable[[], np.ndarray]], aliases: Mapping[str, str]
) -> None:
    """Writes a `model.bin` of the newest supported version, one tensor after another.

    Args:
        path: The file.
        name: The kind of model, such as `TransformerSpec`.
        revision: The revision of that kind.
        tensors: Functions that return the tensors, by name: integers of 8 to 32 bits, or floats, which are written as
            float32.
        aliases: Second names of tensors, and the tensors that they stand for.

    Raises:
        InputError: If a tensor is too large for the format.
    """
    kinds = {np.dtype(kind): number for number, kind in _TYPES.items() if number != _BFLOAT16}
    with path.open("wb") as file:
        file.write(struct.pack("<I", _VERSIONS[-1]) + _written(name) + struct.pack("<II", revision, len(tensors)))
        for tensor, read in tensors.items():
            array = read()
            array = np.ascontiguousarray(array, array.dtype if array.dtype.kind == "i" else "<f4").reshape(array.shape)
            if array.nbytes > _LARGEST:
                raise InputError(f"{tensor} has {array.nbytes} bytes; CTranslate2 supports {_LARGEST} for a tensor.")
            sizes = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
            file.write(_written(tensor) + sizes + struct.pack("<BI", kinds[array.dtype], array.nbytes))
            file.write(array.tobytes())
        file.write(struct.pack("<I", len(aliases)))
        for alias, tensor in aliases.items():
            file.write(_written(alias) + _written(tensor))


def _written(text: str) -> bytes:
    """Returns a name in the format: its size, its bytes and a zero, which the size includes."""
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data
