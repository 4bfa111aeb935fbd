"""The record of model, data and options that an exported version contains."""

import json
from pathlib import Path

from export.options import TASK_OPTIONS, ExportOptions
from zoo.inference import Run
from zoo.registry import get_spec
from zoo.workdir import WorkDir

_FOLDER = "assets.extra"
_FILE = "attention_zoo.json"


def write_provenance(folder: Path, run: Run, options: ExportOptions) -> None:
    """Writes the model's settings, the options of the export, and the model card into the folder of a version."""
    record: dict[str, object] = {
        "model": run.config["model"],
        "data": run.config["data"]["spec"],
        "options": options.to_dict(),
    }
    languages = {side: tokenizer.around.language for side, tokenizer in run.tokenizer_files().items()}
    if any(languages.values()):
        record["languages"] = languages
    if len(run.members) > 1:
        pairs = zip(_names(run), run.members, strict=True)
        record["ensemble"] = [{"name": name, "model": member.config["model"]} for name, member in pairs]
    if run.draft is not None:
        record["draft"] = {"name": run.draft.path.resolve().name, "model": run.draft.config["model"]}
    path = folder / _FOLDER / _FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    card = WorkDir(run.path).model_card
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {run.spec.name}\n"
    version = [_members(run), _draft(run), _weights(text, run, options)]
    version += [f"- {line}\n" for line in shortlist_notes(run, options)]
    path.with_name(card.name).write_text(f"{text}\n## This version\n\n{''.join(version)}", encoding="utf-8")


def _members(run: Run) -> str:
    """Returns a line about the models of an ensemble; empty for one model."""
    if len(run.members) == 1:
        return ""
    return f"- An ensemble of {len(run.members)}: {', '.join(_names(run))}; the card above describes the first\n"


def _draft(run: Run) -> str:
    """Returns a line about the model that drafts tokens; empty without one."""
    if run.draft is None:
        return ""
    return f"- Tokens are drafted by {run.draft.path.resolve().name}, a {run.draft.spec.name}\n"


def _names(run: Run) -> list[str]:
    """Returns the names of the members: those of their folders, or their paths if folder names are not unique."""
    names = [member.path.resolve().name for member in run.members]
    return names if len({*names}) == len(names) else [str(member.path) for member in run.members]


def shortlist_notes(run: Run, options: ExportOptions) -> list[str]:
    """Returns lines about the loss of quality by a shortlist, from the model card; empty without a shortlist."""
    size, beam_size = getattr(options, "shortlist", 0), getattr(options, "beam_size", 1)
    if not size:
        return []
    card, key = WorkDir(run.path).model_card, f"- shortlist {size}, beam_size {beam_size}: "
    lines = card.read_text(encoding="utf-8").splitlines() if card.is_file() else []
    # The format is that of `training.shortlist`.
    measured = [line.removeprefix(key) for line in lines if line.startswith(key)]
    command = f"python -m training.shortlist {run.path} --shortlist {size} --beam_size {beam_size}"
    total = run.model.target_vocab_size
    effects = measured or [f"the effect on quality is not measured: run `{command}`"]
    if len(run.members) > 1:
        effects = [f"{line} (of the first model alone)" for line in effects]
    return [f"Shortlist: each batch is translated with {size:,} of {total:,} tokens; {line}" for line in effects]


def read_options(folder: Path) -> ExportOptions:
    """Returns the export options of a version, given its folder."""
    record = json.loads((folder / _FOLDER / _FILE).read_text(encoding="utf-8"))
    return TASK_OPTIONS[get_spec(record["model"]["name"]).task](**record["options"])


def _weights(card: str, run: Run, options: ExportOptions) -> str:
    """Returns lines about the type of the stored weights and its effect on quality, from the model card."""
    kind, beam_size = options.weights, getattr(options, "beam_size", 1)
    if kind == "float32":
        return "- Weights: float32, unchanged\n"
    others = [str(member.path) for member in run.members[1:]]
    # The format is that of `training.evaluate`.
    lines = [line.removeprefix(f"- {kind}, ") for line in card.splitlines() if line.startswith(f"- {kind}, ")]
    with_others = f", ensemble {', '.join(others)}"
    measured = [line for line in lines if (with_others in line if others else ", ensemble " not in line)]
    flags = f" --beam_size {beam_size}" if beam_size > 1 else ""
    flags += "".join(f" --ensemble {other}" for other in others)
    unknown = f"not measured: run `python -m training.evaluate DIR --weights {kind}{flags}`"
    changes = "".join(f"- Effect on quality: {line}\n" for line in measured or [unknown])
    return f"- Weights: {kind}; matrices are stored rounded, and converted to float32 for computation\n{changes}"
