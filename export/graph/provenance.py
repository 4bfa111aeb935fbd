"""What an exported version says of itself: what it was made of, and how."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.inference import Run
from zoo.workdir import WorkDir

_FOLDER = "assets.extra"
_FILE = "attention_zoo.json"


def write_facts(folder: Path, run: Run, options: Mapping[str, Any]) -> None:
    """Writes the model's settings, the options of the export, and the model card.

    Args:
        folder: Folder of the version.
        run: The work directory.
        options: What the model was exported with.
    """
    facts = {"model": run.config["model"], "data": run.config["data"]["spec"], "options": dict(options)}
    path = folder / _FOLDER / _FILE
    path.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    card = WorkDir(run.path).model_card
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {run.spec.name}\n"
    path.with_name(card.name).write_text(f"{text}\n## This version\n\n{_weights(text, options)}", encoding="utf-8")


def read_options(folder: Path) -> dict[str, Any]:
    """Returns what a version was exported with.

    Args:
        folder: Folder of the version.
    """
    return json.loads((folder / _FOLDER / _FILE).read_text(encoding="utf-8"))["options"]


def _weights(card: str, options: Mapping[str, Any]) -> str:
    """Returns lines on how the weights are stored and what that changes, as far as the model card knows."""
    kind = options["weights"]
    if kind == "float32":
        return "- Weights: float32, as the model has them\n"
    # As `training.evaluate` notes them.
    measured = [line.removeprefix(f"- {kind}, ") for line in card.splitlines() if line.startswith(f"- {kind}, ")]
    beam = f" --beam_size {options['beam_size']}" if options.get("beam_size", 1) > 1 else ""
    unknown = f"not measured: run `python -m training.evaluate DIR --weights {kind}{beam}`"
    changes = "".join(f"- What that changes: {line}\n" for line in measured or [unknown])
    return f"- Weights: {kind}; matrices are rounded to it, and are float32 again when the model answers\n{changes}"
