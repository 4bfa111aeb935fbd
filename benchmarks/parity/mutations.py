"""Every key of a checkpoint's configuration, changed: ours gives what the reference gives, or refuses by name.

Each key that the reference's own configuration has is left out, and set to other values of its type. The changed folder
is loaded by the reference and imported here. Where the reference cannot load it, or makes up weights, nothing is asked
of ours.
"""

import copy
import dataclasses
import fnmatch
import functools
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import torch

from benchmarks.parity.families import FAMILIES, Family
from benchmarks.parity.hugging_face import causal_logits, class_logits, mean_vectors, translated, translator_logits
from benchmarks.parity.measure import Comparison
from benchmarks.parity.reference import MAX_LENGTH, Reference
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError

TEXTS = ["A man rides a horse.", "the", "It is late, and they will say so: 25 times", "two"]
AGREE, REFUSED, UNNAMED, FAILS, WRONG = (
    "agree",
    "refused by name",
    "refused without the key",
    "reference fails",
    "WRONG",
)
LEFT_OUT: Any = object()
_NEAR = 1e-4
_ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "tanh")
_WORDS = {
    "feed_forward_proj": ("gated-gelu", "relu", "gated-silu", "gelu"),
    "position_embedding_type": ("relative_key",),
    "problem_type": ("regression", "multi_label_classification"),
    "model_type": (),
    "dtype": ("float16",),
}
_ROTARY = (
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    | {"original_max_position_embeddings": 64},
    {"rope_type": "default", "rope_theta": 100.0},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
)


def changes(config: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields (key, other value), `LEFT_OUT` among them.

    Args:
        config: What the file says.
        known: All keys of the class of the configuration, and their values.
    """
    for key in sorted({*config, *known} - {"architectures", "transformers_version", "model_type"}):
        value = config.get(key, known.get(key))
        if key in config:
            yield key, LEFT_OUT
        yield from ((key, other) for other in _others(key, value) if other != value)


def _others(key: str, value: Any) -> Iterator[Any]:
    if key in _WORDS:
        yield from _WORDS[key]
    elif key in ("rope_parameters", "rope_scaling"):
        yield from ({**(value or {}), **each} for each in _ROTARY)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value // 2, 2 * value)
        if key == "eos_token_id":
            yield [value, value + 1]
    elif isinstance(value, float):
        yield from (2 * value + 0.1, 0.5 * value)
    elif isinstance(value, str):
        yield from _ACTIVATIONS if "act" in key else ()
    elif isinstance(value, list):
        yield from (value[::-1], value[:-1])
    elif value is None:
        yield from ([1, 2.0] if "cap" in key or "window" in key else [3] if key.endswith("_id") else [True])


def run(family: Family, pretrained: Path, folder: Path) -> list[tuple[str, str, str]]:
    """Returns (key, value, outcome) of each change.

    Args:
        family: The family.
        pretrained: The folder of tokenizers.
        folder: An empty folder.
    """
    original = folder / "original"
    original.mkdir()
    reference = family.write(pretrained, original)
    config = json.loads((original / "config.json").read_text(encoding="utf-8"))
    load = _loader(config)
    found = []
    for number, (key, value) in enumerate(changes(config, load(original).config.to_dict())):
        changed = {**copy.deepcopy(config), key: value}
        if value is LEFT_OUT:
            del changed[key]
        here = folder / str(number)
        shutil.copytree(original, here, copy_function=os.link)
        (here / "config.json").unlink()
        (here / "config.json").write_text(json.dumps(changed), encoding="utf-8")
        shown = "left out" if value is LEFT_OUT else json.dumps(value)
        found.append((key, shown, _outcome(here, key, family, reference, load)))
        shutil.rmtree(here)
        keras.backend.clear_session()
    return found


def _loader(config: dict[str, Any]) -> Any:
    import transformers

    kind = getattr(transformers, config["architectures"][0])

    def load(folder: Path) -> Any:
        model, info = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
        if made_up := [*info["missing_keys"], *info["mismatched_keys"]]:
            raise ValueError(f"weights are made up: {made_up[0]}")
        return model.eval()

    return load


def _outcome(folder: Path, key: str, family: Family, reference: Reference, load: Any) -> str:
    try:
        model = load(folder)
        asked = _reference(family, reference, model)
        asked.logits(*([[1, 2]], [[1]])[: 2 if family.task == "seq2seq" else 1])
    except Exception:
        return FAILS
    run_folder = folder / "run"
    try:
        import_checkpoint(f"{family.source}:{folder}", run_folder)
    except InputError as error:
        return REFUSED if key in str(error) else f"{UNNAMED}: {str(error).removeprefix(str(folder))[:120]}"
    except Exception as error:
        return f"{WRONG}: the import ends in {type(error).__name__}: {str(error)[:80]}"
    comparison = Comparison(run_folder, asked)
    try:
        differences = comparison.logits(TEXTS)
        if max(differences.values()) > _NEAR:
            return f"{WRONG}: logits differ by {max(differences.values()):.1g}"
        if asked.write is not None:
            pairs = zip(TEXTS, comparison.run.ids(TEXTS), strict=True)
            short = [(text, row) for text, row in pairs if len(row) < MAX_LENGTH]  # others leave no room
            expected = comparison._expected([comparison.read.theirs(row) for _, row in short])["greedy"]
            if expected != (answers := comparison._in_python([text for text, _ in short])["greedy"]):
                pair = next(pair for pair in zip(expected, answers, strict=True) if pair[0] != pair[1])
                return f"{WRONG}: {pair[0]!r} is {pair[1]!r} here"
    except Exception as error:  # what was imported must be usable
        return f"{WRONG}: {type(error).__name__}: {str(error)[:80]}"
    return AGREE


def _reference(family: Family, reference: Reference, model: Any) -> Reference:
    """Returns a reference that asks another model."""
    if family.task == "seq2seq":
        return dataclasses.replace(
            reference,
            logits=functools.partial(translator_logits, model),
            write=lambda rows, beams: translated(model, rows, 1, MAX_LENGTH),
        )
    if family.task == "language_model":
        return dataclasses.replace(
            reference, logits=functools.partial(causal_logits, model), write=lambda rows, beams: _continued(model, rows)
        )
    logits = class_logits if family.task == "classifier" else mean_vectors
    return dataclasses.replace(reference, logits=functools.partial(logits, model))


@torch.no_grad()
def _continued(model: Any, rows: Any) -> list[list[int]]:
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    texts = []
    for row in rows:
        ids = torch.tensor([row])
        options = {"max_length": MAX_LENGTH, "do_sample": False, "pad_token_id": ends[0]}
        new = model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
        texts.append([*row, *(i for i in new[len(row) :] if i not in ends)])
    return texts


def mutate(pretrained: Path, pattern: str, output: Path | None) -> int:
    """Prints a table for each family with such a name, and writes them all; returns 1 if ours is wrong anywhere."""
    tables = []
    for family in FAMILIES:
        if family.source != "hf" or not fnmatch.fnmatchcase(family.name, pattern):
            continue
        with tempfile.TemporaryDirectory() as folder:
            tables.append(table(family.name, run(family, pretrained, Path(folder))))
        print(tables[-1], flush=True)
    if not tables:
        print(f"No family matches. Received: --family {pattern!r}", file=sys.stderr)
        return 2
    if output is not None:
        output.write_text("\n".join(tables), encoding="utf-8")
    return int(any(WRONG in each for each in tables))


def table(family: str, found: list[tuple[str, str, str]]) -> str:
    """Returns the outcomes as Markdown: their numbers, and each that is not as it should be."""
    counts = Counter(outcome.partition(":")[0] for *_, outcome in found)
    parts = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    bad = [row for row in found if row[2].startswith((WRONG, UNNAMED))]
    lines = [f"**{family}**: {len(found)} changes: {parts}.", ""]
    if bad:
        lines += ["| key | changed to | outcome |", "|---|---|---|"]
        lines += [f"| `{key}` | `{value}` | {outcome} |" for key, value, outcome in bad] + [""]
    return "\n".join(lines)
