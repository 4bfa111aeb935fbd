"""Writes a trained model in the format of another library: `python -m export.convert DIR --to KIND:OUT`."""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.checkpoints.ctranslate2_file import MODEL_TYPE, write_model
from zoo.checkpoints.families import Exported, Trained, get_writers
from zoo.checkpoints.safetensors_file import write_safetensors
from zoo.errors import InputError
from zoo.presets import workdir_path
from zoo.registry import get_spec
from zoo.runtime.cli import ArgumentParser, run_process
from zoo.runtime.startup import start_backend
from zoo.workdir import WorkDir, new_folder

if TYPE_CHECKING:
    from zoo.inference import Run

KINDS = ("safetensors", "hf", "ctranslate2", "litert", "onnx")
"""The formats: `safetensors`, weights by variable name beside configuration and tokenizers; `hf`, a folder as on the
Hugging Face hub; `ctranslate2`, a CTranslate2 model folder; `litert`, `model.tflite` beside configuration and
tokenizers, see `export.litert`; `onnx`, ONNX files and `onnx.json` beside them, see `export.onnx`."""


def convert(workdir: str | os.PathLike[str], to: str) -> dict[str, Any]:
    """Writes a work directory in another format and returns its path, its kind and the number of tensors.

    Args:
        workdir: The work directory, or `preset:NAME`.
        to: `KIND:OUT`: one of `KINDS`, and the folder, which must not exist or be empty.

    Raises:
        InputError: For a work directory that cannot be read, an unknown kind, or a folder that is not empty. Nothing is
            left in the folder.
    """
    kind, _, out = to.partition(":")
    if kind not in KINDS or not out:
        raise InputError(f"--to must be {' or '.join(f'{kind}:OUT' for kind in KINDS)}. Received: {to!r}.")
    with new_folder(Path(out)) as temporary:
        count = _WRITERS[kind](workdir_path(workdir), WorkDir(temporary))
    return {"path": str(Path(out)), "kind": kind, "tensors": count}


def _write_safetensors(path: Path, written: WorkDir) -> int:
    """Writes the folder and returns the number of its tensors."""
    from zoo.inference import load_run

    variables = load_run(path).model.weights
    tensors = {variable.path: lambda variable=variable: np.asarray(variable) for variable in variables}
    if len(tensors) < len(variables):
        raise InputError(f"{path}: two weights of the model have the same name; safetensors requires unique names.")
    WorkDir(path).copy_to(written)
    with written.replacing(written.weights) as file:
        write_safetensors(file, tensors)
    return len(tensors)


def _write_hugging_face(path: Path, written: WorkDir) -> int:
    """Writes the folder and returns the number of its tensors."""
    from zoo.inference import load_run

    exported = _exported(load_run(path), "hf")
    weights = {written.weights.name: exported.tensors, **exported.parts}
    for name, tensors in weights.items():
        with written.replacing(written.path / name) as file:
            write_safetensors(file, tensors)
    _write_files(path, written, exported.config, exported.files)
    return sum(map(len, weights.values()))


def _write_ctranslate2(path: Path, written: WorkDir) -> int:
    """Writes the folder and returns the number of its tensors."""
    from zoo.inference import load_run

    exported = _exported(load_run(path), MODEL_TYPE)
    config = dict(exported.config)
    name, revision = config.pop("model_type").removeprefix(f"{MODEL_TYPE} "), config.pop("revision")
    with written.replacing(written.path / "model.bin") as file:
        write_model(file, name, revision, exported.tensors, exported.aliases)
    _write_files(path, written, config, exported.files)
    return len(exported.tensors)


def _write_litert(path: Path, written: WorkDir) -> int:
    """Writes the folder and returns the number of its tensors, which are constants of the functions."""
    from export.litert import litert_model
    from zoo.inference import load_run

    run = load_run(path)
    content = litert_model(run.model, run.spec.task)
    WorkDir(path).copy_to(written)
    with written.replacing(written.path / "model.tflite") as file:
        file.write_bytes(content)
    return len(run.model.weights)


def _write_onnx(path: Path, written: WorkDir) -> int:
    """Writes the folder and returns the number of the model's tensors."""
    from export.onnx import check_backend, write_onnx
    from zoo import vocabulary
    from zoo.inference import load_run

    check_backend()
    run = load_run(path)
    WorkDir(path).copy_to(written)
    names = ("pad", "start", "end", "unknown")
    write_onnx(run.model, run.spec.task, written.path, {name: getattr(vocabulary, name.upper()) for name in names})
    for file in sorted(written.path.glob("*onnx*")):
        written.store_checksum(file)
    return len(run.model.weights)


def _write_files(path: Path, written: WorkDir, config: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    """Writes the files beside the weights, including the work directory's model card."""
    card = WorkDir(path).model_card
    card_text = card.read_text(encoding="utf-8") if card.is_file() else ""
    for name, content in {"config.json": config, **files, "README.md": _readme(card_text)}.items():
        if not isinstance(content, str | bytes):
            content = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        with written.replacing(written.path / name) as file:
            file.write_bytes(content.encode() if isinstance(content, str) else content)
    written.checksums.unlink()


_WRITERS = {
    "safetensors": _write_safetensors,
    "hf": _write_hugging_face,
    "ctranslate2": _write_ctranslate2,
    "litert": _write_litert,
    "onnx": _write_onnx,
}


def _exported(run: "Run", kind: str) -> Exported:
    """Returns a run as a checkpoint of the first family that supports its model."""
    options = {name: value for name, value in run.config["model"].items() if name != "name"}
    options |= {name: getattr(run.model, name) for name, value in options.items() if value == "auto"}
    reasons = []
    for usual, write in get_writers(run.spec.model_class, kind):
        try:
            return write(Trained(run.model, options, get_spec(usual).config, run.tokenizer_files(), run.config["data"]))
        except InputError as error:
            reasons.append(str(error))
    if not reasons:
        raise InputError(f"{kind}: no family of checkpoints supports this kind of model. Received: {run.spec.name}.")
    raise InputError(" ".join(reasons))


def _readme(card: str) -> str:
    """Returns a model card with the front matter from which the hub reads the licence."""
    licence = re.search(r"^- Licence of the weights: (\S+)$", card, re.MULTILINE)
    return f"---\nlicense: {licence[1]}\n---\n\n{card}" if licence else card


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for a model that cannot be converted."""
    parser = ArgumentParser(prog="export.convert", description="Writes a trained model in another library's format.")
    parser.add_argument("workdir", metavar="DIR", help="the work directory, or preset:NAME")
    parser.add_argument(
        "--to", metavar="KIND:OUT", required=True, help=f"{' or '.join(f'{kind}:OUT' for kind in KINDS)}, a new folder"
    )
    arguments = parser.parse_args(argv)
    start_backend()
    print(json.dumps(convert(arguments.workdir, arguments.to), ensure_ascii=False))


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
