"""Checkpoints as others write them, for tests."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import zoo
from training.importing import workdir as importing
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError
from zoo.inference import Run

FIXTURES = Path(__file__).parents[1] / "fixtures" / "importing"
_TYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64"}


def expected(family):
    """Returns what the reference says of a fixture."""
    return json.loads((FIXTURES / family / "expected.json").read_text(encoding="utf-8"))


def copy(family, path):
    """Copies a fixture, to be spoiled, and returns the path; one of XLM-RoBERTa gets its file of SentencePiece."""
    shutil.copytree(FIXTURES / family, path, ignore=shutil.ignore_patterns("expected.json"))
    if family.startswith("xlm_roberta") and not (path / "tokenizer.json").is_file():
        shutil.copy(FIXTURES / "marian" / "source.spm", path / "sentencepiece.bpe.model")
    return path


def imported(source, path, is_written=False, **options):
    """Imports a checkpoint and returns its description and its run, whose model is not read from a file.

    The file is empty unless it is to be written: most of the time would go into writing and reading it.
    """
    save, models = importing._save, []

    def keep(model, file):
        models.append(model)
        save(model, file) if is_written else file.touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "_save", keep)
        patch.setattr(Run, "_load_model", lambda run, workdir: models[0])
        described, run = import_checkpoint(str(source), path, **options), zoo.load(path)
    config = run.model.get_config()
    assert type(run.model).from_config(config).get_config() == config
    return described, run


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


def refused(source, path, *words):
    """Checks that a SOURCE is not imported, that the line about it has certain words, and that nothing is left."""
    with pytest.raises(InputError) as raised:
        import_checkpoint(str(source), path)
    message = str(raised.value)
    assert not [word for word in words if word not in message] and "\n" not in message, message
    assert not path.exists() and not list(path.parent.glob(".tmp*"))


def near(found, expected, limit=1e-4):
    """Returns whether numbers are those of the reference, but for a part of its largest one."""
    expected = np.asarray(expected)
    return np.abs(np.asarray(found) - expected).max() <= limit * np.abs(expected).max()


def padded(rows, more=2):
    """Returns rows of ids as one array [B, L], with some places of padding behind the longest."""
    batch = np.zeros((len(rows), max(map(len, rows)) + more), "int32")
    for place, row in zip(batch, rows, strict=True):
        place[: len(row)] = row
    return batch


def check_graph(tokenizer, texts):
    """Checks that the graph of a tokenizer reads and writes as Python does."""
    from export.graph.tokenizers import tokenizer_graph

    graph = tokenizer_graph(tokenizer)
    rows = graph.encode([text.encode() for text in texts])
    assert rows.to_list() == tokenizer.encode(texts)
    assert [text.decode() for text in graph.decode(rows.to_tensor()).numpy()] == tokenizer.decode(rows.to_list())
