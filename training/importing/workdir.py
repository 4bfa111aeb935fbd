"""Writes an imported model as a work directory, atomically."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import keras

from training.config.options import DataConfig, TrainingConfig
from training.config.run_config import RunConfig
from training.importing.hub import bring, is_repository
from zoo.checkpoints.accounting import check_every_key, check_tokenizer_files, note_generation
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.ctranslate2_file import CTranslate2Checkpoint
from zoo.checkpoints.families import Imported, get_family
from zoo.checkpoints.families.base import without_influence_in
from zoo.checkpoints.marian_file import MarianCheckpoint
from zoo.checkpoints.safetensors_file import SafetensorsFile
from zoo.errors import InputError
from zoo.registry import create_model, get_spec
from zoo.workdir import WorkDir, new_folder

SOURCES: dict[str, type[Checkpoint]] = {
    "hf": Checkpoint,
    "ctranslate2": CTranslate2Checkpoint,
    "marian": MarianCheckpoint,
}
"""The formats of checkpoints of other software."""

_CONVERTED = "safetensors"  # the kind that `export.convert` writes


def open_source(source: str) -> Checkpoint:
    """Returns the checkpoint of a SOURCE.

    Raises:
        InputError: If it is not a checkpoint.
    """
    kind, _, path = source.partition(":")
    if kind not in SOURCES or not path:
        kinds = " or ".join(f"{kind}:DIR" for kind in (*SOURCES, _CONVERTED))
        raise InputError(
            f"SOURCE must be {kinds}, the folder of a checkpoint, or hf:OWNER/NAME[@REVISION]. Received: {source!r}."
        )
    if kind == "hf" and is_repository(path):
        folder = bring(path)
        checkpoint = Checkpoint(folder, revision=folder.name)
    else:
        checkpoint = SOURCES[kind](Path(path))
    if not isinstance(model_type := checkpoint.config.get("model_type"), str):
        raise InputError(f"{checkpoint.path / 'config.json'} has no model_type. Received: {model_type!r}.")
    return checkpoint


def import_checkpoint(
    source: str,
    path: Path,
    dtype: str = "float32",
    ignored: Sequence[str] = (),
    source_language: str | None = None,
    target_language: str | None = None,
) -> dict[str, Any]:
    """Makes a work directory of a checkpoint, and returns a description of it.

    Args:
        source: SOURCE, such as `hf:DIR` or `hf:OWNER/NAME`, or `safetensors:DIR`, written by `export.convert`.
        path: The work directory, which must not exist or be empty.
        dtype: `"float32"` or `"bfloat16"`: the type that weights are rounded to and stored in.
        ignored: Unsupported keys of `config.json` to ignore, whose effect the user does not need.
        source_language: Code of the source language of a translator of many languages. Default: the tokenizer's.
        target_language: Code of its target language. Default: the tokenizer's.

    Raises:
        InputError: For a checkpoint that cannot be imported; nothing is then left at `path`.
    """
    with new_folder(path) as temporary:
        languages = {"source": source_language, "target": target_language}
        codes = {side: code for side, code in languages.items() if code is not None}
        described = _write_source(WorkDir(temporary), source, dtype, ignored, codes)
    return {"workdir": str(path), **described}


def _write_source(
    workdir: WorkDir, source: str, dtype: str, ignored: Sequence[str], languages: Mapping[str, str]
) -> dict[str, Any]:
    """Writes the work directory of a SOURCE, and returns a description of it."""
    kind, _, path = source.partition(":")
    if ignored and kind != "hf":
        raise InputError(f"--ignore is for hf:, whose config.json has keys that may be unknown. Received: {source}.")
    if kind == _CONVERTED and path:
        _check_languages(source, languages, False)
        converted = WorkDir(path)
        return _write_converted(workdir, converted, RunConfig.of_workdir(converted), dtype)
    checkpoint, imported = read_checkpoint(source, languages)
    return _write(workdir, source, checkpoint, imported, dtype, ignored)


def read_checkpoint(source: str, languages: Mapping[str, str] | None = None) -> tuple[Checkpoint, Imported]:
    """Returns the checkpoint of a SOURCE and what is read of it before the weights: model, options and tokenizers.

    Args:
        source: See `import_checkpoint`.
        languages: The codes of the languages that the user chooses, by side.

    Raises:
        InputError: For a checkpoint that cannot be imported.
    """
    checkpoint = open_source(source)
    checkpoint.languages |= languages or {}
    try:
        imported = get_family(checkpoint.config["model_type"])(checkpoint)
    except InputError as error:
        named = str(checkpoint.path) in str(error)
        raise error if named else InputError(f"{checkpoint.config_file}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"{checkpoint.path}: config.json or a file of the tokenizer is damaged, or has a value of the wrong type "
            f"({type(error).__name__}: {error})."
        ) from error
    _check_languages(source, languages or {}, checkpoint.has_languages)
    if type(checkpoint) is Checkpoint:
        task = get_spec(imported.model).task
        if task in ("language_model", "seq2seq") and not checkpoint.search:
            note_generation(checkpoint, task == "seq2seq")
        begins = imported.options.get("start_symbol", False)
        check_tokenizer_files(checkpoint, imported.tokenizers.values(), task, begins)
    return checkpoint, imported


def _check_languages(source: str, languages: Mapping[str, str], has_languages: bool) -> None:
    """Raises InputError if languages are set for a model that is not a translator of many languages."""
    for side, code in languages.items():
        if not has_languages:
            raise InputError(
                f"--{side}_language is for translators of many languages, unlike {source}. Received: {code}."
            )


def _write_converted(workdir: WorkDir, converted: WorkDir, config: RunConfig, dtype: str) -> dict[str, Any]:
    """Writes the run that `export.convert` converted, with the same weights if the type can represent them."""
    if not converted.weights.is_file():
        raise InputError(f"{converted.weights} is missing.")
    converted.check(converted.weights.name, converted.tokenizers.name, converted.model_card.name)
    file = SafetensorsFile(converted.weights)
    model = create_model(config.spec.name, dtype=dtype, **config.model)
    variables = {variable.path: variable for variable in model.weights}
    for name, variable in variables.items():
        shape = tuple(variable.shape)
        if name not in file.names():
            raise InputError(f"{converted.weights}: the tensor {name} is missing. Expected shape: {shape}.")
        if file.shape(name) != shape:
            raise InputError(f"{converted.weights}: {name} must have the shape {shape}. Received: {file.shape(name)}.")
        variable.assign(file.read(name))
    if unused := [name for name in file.names() if name not in variables]:
        raise InputError(f"{converted.weights}: a {config.spec.name} has no weight for the tensor {unused[0]}.")
    converted.copy_to(workdir)
    with workdir.replacing(workdir.model) as path:
        _save(model, path)
    return {"model": config.spec.name, "parameters": int(model.count_params())}


def _write(
    workdir: WorkDir, source: str, checkpoint: Checkpoint, imported: Imported, dtype: str, ignored: Sequence[str]
) -> dict[str, Any]:
    config = _configuration(source, imported)
    try:
        model = create_model(imported.model, dtype=dtype, **config.model)
    except InputError as error:
        raise InputError(
            f"{checkpoint.config_file} describes a {imported.model} that cannot be made: {error}"
        ) from None
    _set_weights(model, imported)
    if type(checkpoint) is Checkpoint:
        check_every_key(checkpoint, without_influence_in(checkpoint.config["model_type"]), ignored)
    if unused := checkpoint.unused():
        names = ", ".join(unused[:5]) + (f" and {len(unused) - 5} more" if len(unused) > 5 else "")
        raise InputError(f"{checkpoint.path}: a {imported.model} has no weights for the tensors {names}.")
    for name, tokenizer in imported.tokenizers.items():
        tokenizer.save(workdir.tokenizer(name), workdir.replacing)
    with workdir.replacing(workdir.model) as file:
        _save(model, file)
    parameters = int(model.count_params())
    workdir.write_text(workdir.model_card, _card(source, checkpoint, config, model, ignored))
    workdir.write_text(workdir.config, config.to_json())
    notes = {name: getattr(checkpoint, name) for name in ("left_out", "search", "not_followed")}
    return {"model": imported.model, "parameters": parameters, **{name: note for name, note in notes.items() if note}}


def _save(model: keras.Model, path: Path) -> None:
    """Writes a model, with its weights in a temporary file, since Keras would copy them in memory."""
    with mock.patch("keras.src.saving.saving_lib.is_memory_sufficient", lambda model: False, create=True):
        model.save(path)


def _configuration(source: str, imported: Imported) -> RunConfig:
    spec = get_spec(imported.model)
    declared = DataConfig.declared()["max_length"].default
    capacity = imported.options.get("max_length", spec.config.get("max_length", declared + 1))
    data = DataConfig(spec=source, max_length=max(1, min(declared, capacity - 1)), **imported.data)
    return RunConfig(spec, {**spec.config, **imported.options}, data, TrainingConfig())


def _set_weights(model: keras.Model, imported: Imported) -> None:
    """Sets all weights of a model, one tensor after another."""
    missing = {id(variable): variable.path for variable in model.weights if variable.trainable}
    for variable, value in imported.weights(model):
        variable.assign(value)
        missing.pop(id(variable), None)
    if missing:
        raise RuntimeError(f"The family of {imported.model} does not set the weights {sorted(missing.values())}.")


def _card(source: str, checkpoint: Checkpoint, config: RunConfig, model: keras.Model, ignored: Sequence[str]) -> str:
    """Returns the model card, with the origin of the weights."""
    sums: Mapping[str, str] = checkpoint.checksums()
    files = "\n".join(f"- `{name}`: SHA-256 `{sha256}`" for name, sha256 in sums.items())
    left_out = "".join(f"- `{name}…`: left out, {why}\n" for name, why in checkpoint.left_out.items())
    left_out += "".join(f"- `{key}` of `config.json`: ignored\n" for key in ignored)
    flags = "".join(
        f" --{name}" + (f" {value}" if value is not True else "") for name, value in checkpoint.search.items()
    )
    left_out += f"- Default search of its own software: `{flags.strip()}`\n" if flags else ""
    left_out += "".join(
        f"- `{key}: {value}` of its search: not supported\n" for key, value in checkpoint.not_followed.items()
    )
    words = "".join(f" --ignore {key}" for key in ignored)
    dtype = "" if model.dtype_policy.name == "float32" else f" --dtype {model.dtype_policy.name}"
    words += "".join(f" --{side}_language {code}" for side, code in checkpoint.languages.items())
    revision = checkpoint.revision or "not stated in the checkpoint"
    return f"""# {config.spec.name}, imported

A checkpoint of the type `{checkpoint.config["model_type"]}` that others have trained, as a `{config.spec.name}`.

- Source: `{source}`, revision: {revision}
- Licence of the weights: {checkpoint.licence()}
- Paper: [{config.spec.paper.title}]({config.spec.paper.url}) ({config.spec.paper.year})
- Parameters: {model.count_params():,}, stored in {model.dtype_policy.name}
- Limits: those of the checkpoint, see its own card; only metrics reported below were measured here

## Weights

{files}
{left_out}
```
python -m training.import_model {source} --workdir DIR{dtype}{words}
```
"""
