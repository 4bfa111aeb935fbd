"""Makes the presets: `python -m training.presets NAME...` trains them into the package, or into `--output`."""

import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.config.resolve import TrainingRun, resolve
from zoo.errors import InputError, unknown_name
from zoo.presets import FOLDER, checksums
from zoo.runtime.cli import ArgumentParser, run_process
from zoo.runtime.startup import start_backend
from zoo.workdir import CHECKSUMS, WorkDir

LARGEST = 2 * 1024 * 1024
"""Bytes that a preset may take."""


@dataclass(frozen=True)
class Recipe:
    """How a preset is made; the settings are as for `--set`."""

    model: str
    spec: str
    settings: tuple[str, ...] = ()


RECIPES = {
    "dates_rnnsearch": Recipe("rnnsearch", "dates"),
    # Chosen on the validation sentences, and for word vectors that distinguish the senses; see
    # docs/lab-notes/2026-11-25-order-and-meaning.md.
    "senses_self_attention_classifier": Recipe(
        "self_attention_classifier",
        "senses",
        (
            "model.model_dim=48",
            "model.scale_embeddings=true",
            "model.pooling_dropout=0.55",
            "training.label_smoothing=0.05",
            "training.weight_decay=1.0",
            "training.max_steps=9000",
            "training.precision=float32",
        ),
    ),
    "subjects_self_attention_classifier": Recipe(
        "self_attention_classifier", "subjects", ("model.model_dim=32", "training.precision=float32")
    ),
    "sums_causal_lm_tiny": Recipe("causal_lm_tiny", "sums", ("model.model_dim=64", "model.intermediate_dim=256")),
}


def make(name: str, folder: Path) -> None:
    """Trains a preset, evaluates it on its test split and writes the files needed to use it: no checkpoints, no logs.

    The folder is replaced if it exists. Raises InputError if the preset takes more than `LARGEST` bytes.
    """
    from training.evaluation.evaluate import evaluate
    from training.loop.trainer import train

    recipe = RECIPES[name]
    with tempfile.TemporaryDirectory() as temporary:
        workdir = WorkDir(Path(temporary) / name)
        train(workdir, TrainingRun(resolve(recipe.model, recipe.spec, recipe.settings)))
        metrics = evaluate(workdir.path)
        print(json.dumps({"preset": name, **metrics}, ensure_ascii=False), file=sys.stderr)
        for path in (workdir.checkpoints, workdir.tensorboard):
            shutil.rmtree(path)
        for path in (workdir.lock, *(workdir.path / "evaluation").glob("*.txt")):
            path.unlink(missing_ok=True)  # outputs are removed; metrics stay
        _pack(workdir.model)
        size = sum(path.stat().st_size for path in workdir.path.rglob("*") if path.is_file())
        if size > LARGEST:
            raise InputError(f"The preset {name!r} takes {size:,} bytes; at most {LARGEST:,} are allowed.")
        (workdir.path / CHECKSUMS).write_text(json.dumps(checksums(workdir.path), indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(workdir.path, folder)


def _pack(model: Path) -> None:
    """Compresses a `.keras` file, which Keras writes uncompressed."""
    packed = model.with_suffix(".packed")
    with (
        zipfile.ZipFile(model) as source,
        zipfile.ZipFile(packed, "w") as target,
    ):
        for name in source.namelist():
            target.writestr(zipfile.ZipInfo(name), source.read(name), zipfile.ZIP_DEFLATED)
    packed.replace(model)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for an unknown name, or for all without a folder."""
    parser = ArgumentParser(prog="training.presets", description="Trains presets.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="presets to make (with --output, default: all)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder to write them to (default: the package)")
    arguments = parser.parse_args(argv)
    if not arguments.names and arguments.output is None:
        raise InputError(
            f"Name the presets to replace in the package, of {', '.join(RECIPES)}; or make copies by --output DIR."
        )
    names = arguments.names or list(RECIPES)
    for name in names:
        if name not in RECIPES:
            raise unknown_name("preset", name, RECIPES)
    start_backend()
    for name in names:
        make(name, (arguments.output or FOLDER) / name)


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
