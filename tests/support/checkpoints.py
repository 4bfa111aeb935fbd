"""Checkpoints as others write them, for tests."""

import json
import shutil
from pathlib import Path

import numpy as np

FIXTURES = Path(__file__).parents[1] / "fixtures" / "importing"
_TYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64"}


def expected(family):
    """Returns what the reference says of a fixture."""
    return json.loads((FIXTURES / family / "expected.json").read_text(encoding="utf-8"))


def copy(family, path):
    """Copies a fixture, to be spoiled, and returns the path."""
    shutil.copytree(FIXTURES / family, path, ignore=shutil.ignore_patterns("expected.json"))
    return path


def change_config(path, **options):
    """Changes options in the configuration of a checkpoint; those that are `None` are left out."""
    config = json.loads((path / "config.json").read_text(encoding="utf-8")) | options
    config = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")


def write_safetensors(path, tensors):
    """Writes a file of tensors by name; those of uint16 are meant as bfloat16."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        tensor = np.ascontiguousarray(tensor)
        offsets = [len(data), len(data) + tensor.nbytes]
        header[name] = {"dtype": _TYPES[tensor.dtype.name], "shape": tensor.shape, "data_offsets": offsets}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
