"""Files of the format safetensors, whose tensors are read one at a time.

The first eight bytes are the size of the header, little-endian. The header is JSON with the type, the shape and the
place of each tensor. The package of that name is not needed: it is no dependency of this project.
"""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import InputError

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}
_WRITTEN = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32"}
_WRITTEN |= {"uint8": "U8", "bool": "BOOL"}


def write_safetensors(path: Path, tensors: Mapping[str, Callable[[], np.ndarray]]) -> None:
    """Writes a file, one tensor after another.

    Args:
        path: The file.
        tensors: Functions that return the tensors, by name. Each is called twice, so that memory holds one tensor.

    Raises:
        InputError: If a tensor has an unknown type.
    """
    header, end = {}, 0
    for name, read in tensors.items():
        array = read()
        if array.dtype.name not in _WRITTEN:
            raise InputError(f"{name} is of the type {array.dtype.name}; known: {', '.join(_WRITTEN)}.")
        places = [end, end := end + array.nbytes]
        header[name] = {"dtype": _WRITTEN[array.dtype.name], "shape": array.shape, "data_offsets": places}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for read in tensors.values():
            array = np.ascontiguousarray(read())
            file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())


class SafetensorsFile:
    """A file that is mapped into memory.

    Args:
        path: The file.

    Raises:
        InputError: If it is not such a file, or is cut off.
    """

    def __init__(self, path: Path):
        self.path = path
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise InputError(f"{path} is no safetensors file, or is cut off: its header does not fit into it.")
            try:
                header = json.loads(file.read(length))
            except (ValueError, RecursionError):
                header = None
            if not isinstance(header, dict):
                raise InputError(f"{path} is no safetensors file: its header is no JSON with tensors by name.")
        self._first, self._size = 8 + length, size
        self._entries: dict[str, Any] = {name: entry for name, entry in header.items() if name != "__metadata__"}
        for name, entry in self._entries.items():
            if not _is_entry(entry):
                raise InputError(f"{path}: {name} must have dtype, shape and data_offsets. Received: {entry!r:.100}.")

    def names(self) -> list[str]:
        """Returns the names of the tensors."""
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        return tuple(self._entries[name]["shape"])

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor, floats in float32.

        Raises:
            InputError: If the file is cut off before its end, or its type or size is wrong.
        """
        entry, shape = self._entries[name], self.shape(name)
        start, end = entry["data_offsets"]
        dtype = _TYPES.get(entry["dtype"])
        if dtype is None:
            raise InputError(f"{self.path}: {name} is of the type {entry['dtype']}; known: {', '.join(_TYPES)}.")
        count = math.prod(shape)
        if end - start != count * np.dtype(dtype).itemsize or self._first + end > self._size:
            raise InputError(f"{self.path} is cut off or damaged: it lacks a part of {name}, of the shape {shape}.")
        values = np.memmap(self.path, dtype, "r", self._first + start, (count,)) if count else np.zeros(0, dtype)
        return widened(values, entry["dtype"] == "BF16").reshape(shape)


def _is_entry(entry: Any) -> bool:
    """Returns whether the header describes a tensor by this."""
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    shape, places = entry.get("shape"), entry.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(places, list) or len(places) != 2:
        return False
    return all(type(number) is int and number >= 0 for number in (*shape, *places))


def widened(values: np.ndarray, bfloat16: bool) -> np.ndarray:
    """Returns floats in float32 and other numbers as they are; values of bfloat16 are passed as uint16."""
    if bfloat16:  # its bits are the upper half of a float32
        return (values.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(values, np.float32 if values.dtype.kind == "f" else None)
