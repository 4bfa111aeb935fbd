"""An imported model as a work directory, whole or not at all."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from training.config.options import DataConfig, TrainingConfig
from training.config.run_config import RunConfig
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.ctranslate2_file import CTranslate2Checkpoint
from zoo.checkpoints.families import Imported, get_family
from zoo.errors import InputError
from zoo.registry import create_model, get_spec
from zoo.workdir import WorkDir

SOURCES: dict[str, type[Checkpoint]] = {"hf": Checkpoint, "ctranslate2": CTranslate2Checkpoint}
"""The kinds of folders."""


def open_source(source: str) -> Checkpoint:
    """Returns the checkpoint that a SOURCE names.

    Raises:
        InputError: If it is none.
    """
    kind, _, path = source.partition(":")
    if kind not in SOURCES or not path:
        raise InputError(
            f"SOURCE must be {' or '.join(f'{kind}:DIR' for kind in SOURCES)}, the folder of a checkpoint. "
            f"Received: {source!r}."
        )
    checkpoint = SOURCES[kind](Path(path))
    if "model_type" not in checkpoint.config:
        raise InputError(f"{checkpoint.path / 'config.json'} names no model_type.")
    return checkpoint


def import_checkpoint(source: str, path: Path) -> dict[str, Any]:
    """Makes a work directory of a checkpoint, and returns what it is.

    Args:
        source: SOURCE, such as `hf:DIR`.
        path: The work directory, which must not exist or be empty.

    Raises:
        InputError: For a checkpoint that cannot be imported; nothing is then left at `path`.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} exists already. Name a new folder for the imported model.")
    checkpoint = open_source(source)
    imported = get_family(checkpoint.config["model_type"])(checkpoint)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        described = _write(WorkDir(temporary), source, checkpoint, imported)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return {"workdir": str(path), **described}


def _write(workdir: WorkDir, source: str, checkpoint: Checkpoint, imported: Imported) -> dict[str, Any]:
    config = _configuration(source, imported)
    model = create_model(imported.model, dtype="float32", **config.model)
    _set_weights(model, imported)
    if unused := checkpoint.unused():
        shown = ", ".join(unused[:5]) + (f" and {len(unused) - 5} more" if len(unused) > 5 else "")
        raise InputError(f"{checkpoint.path}: nothing in a {imported.model} is made of the tensors {shown}.")
    for name, tokenizer in imported.tokenizers.items():
        tokenizer.save(workdir.tokenizer(name), workdir.replacing)
    with workdir.replacing(workdir.model) as file:
        model.save(file)
    parameters = int(model.count_params())
    workdir.write_text(workdir.model_card, _card(source, checkpoint, config, parameters))
    workdir.write_text(workdir.config, config.to_json())
    left_out = {"left_out": checkpoint.left_out} if checkpoint.left_out else {}
    return {"model": imported.model, "parameters": parameters, **left_out}


def _configuration(source: str, imported: Imported) -> RunConfig:
    spec = get_spec(imported.model)
    declared = DataConfig.declared()["max_length"].default
    room = imported.options.get("max_length", spec.config.get("max_length", declared + 1))
    data = DataConfig(spec=source, max_length=max(1, min(declared, room - 1)), **imported.data)
    return RunConfig(spec, {**spec.config, **imported.options}, data, TrainingConfig())


def _set_weights(model: keras.Model, imported: Imported) -> None:
    """Sets all weights of a model, one tensor after another."""
    missing = {id(variable): variable.path for variable in model.weights if variable.trainable}
    for variable, value in imported.weights(model):
        variable.assign(value)
        missing.pop(id(variable), None)
    if missing:
        raise RuntimeError(f"The family of {imported.model} leaves weights as they are: {sorted(missing.values())}.")


def _card(source: str, checkpoint: Checkpoint, config: RunConfig, parameters: int) -> str:
    """Returns the model card, which says where the weights come from."""
    sums: Mapping[str, str] = checkpoint.checksums()
    files = "\n".join(f"- `{name}`: SHA-256 `{sha256}`" for name, sha256 in sums.items())
    left_out = "".join(f"- `{name}…`: left out, {why}\n" for name, why in checkpoint.left_out.items())
    revision = checkpoint.config.get("_commit_hash") or "not stated in the checkpoint"
    return f"""# {config.spec.name}, imported

A checkpoint of the type `{checkpoint.config["model_type"]}` that others have trained, as a `{config.spec.name}`.

- Source: `{source}`, revision: {revision}
- Licence of the weights: {checkpoint.licence()}
- Paper: [{config.spec.paper.title}]({config.spec.paper.url}) ({config.spec.paper.year})
- Parameters: {parameters:,}
- Limits: those of the checkpoint, see its own card; nothing was measured here unless it is reported below

## Weights

{files}
{left_out}
```
python -m training.import_model {source} --workdir DIR
```
"""
