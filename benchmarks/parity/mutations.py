"""Changes every key of a checkpoint's configuration: ours must agree with the reference, or refuse the key by name.

Each key of the reference's configuration is left out, and set to other values of its type. The changed folder is loaded
by the reference and imported here. If the reference cannot load it, or initializes missing weights, ours is not judged.
"""

import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import torch

from benchmarks.parity.families import Family
from benchmarks.parity.hugging_face import functions
from benchmarks.parity.measure import Comparison
from benchmarks.parity.outcomes import AGREE, FAILS, REFUSED, UNNAMED, WRONG
from benchmarks.parity.reference import MAX_LENGTH, Reference
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError

TEXTS = ["A man rides a horse.", "the", "It is late, and they will say so: 25 times", "two"]
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
        config: The contents of the file.
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
        yield from ({**(value or {}), **rotary} for rotary in _ROTARY)
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
    known = load(original).config.to_dict()
    changed = ((key, value, with_change(config, key, value)) for key, value in changes(config, known))
    judge = functools.partial(_outcome, family, reference, load)
    return outcomes_of(original, "config.json", changed, judge)


def with_change(described: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Returns a description in which a key has another value, or is `LEFT_OUT`."""
    changed = {**described, key: value}
    if value is LEFT_OUT:
        del changed[key]
    return changed


def outcomes_of(
    original: Path,
    name: str,
    changed: Iterable[tuple[str, Any, Mapping[str, Any]]],
    judge: Callable[[Path, str], str],
) -> list[tuple[str, str, str]]:
    """Returns (key, value, outcome) of each change.

    Args:
        original: The folder of a checkpoint.
        name: The name of the JSON file that is changed.
        changed: The key, its other value or `LEFT_OUT`, and the changed content of the file.
        judge: Function from the changed folder and the key to the outcome.
    """
    outcomes = []
    for number, (key, value, content) in enumerate(changed):
        copied = original.parent / str(number)
        shutil.copytree(original, copied, copy_function=os.link)
        (copied / name).unlink()
        (copied / name).write_text(json.dumps(content), encoding="utf-8")
        text = "left out" if value is LEFT_OUT else json.dumps(value, ensure_ascii=False)
        outcomes.append((key, text, judge(copied, key)))
        shutil.rmtree(copied)
        keras.backend.clear_session()
    return outcomes


def _loader(config: dict[str, Any]) -> Any:
    import transformers

    kind = getattr(transformers, config["architectures"][0])

    def load(folder: Path) -> Any:
        model, info = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
        if missing := [*info["missing_keys"], *info["mismatched_keys"]]:
            raise ValueError(f"weights are missing: {missing[0]}")
        return model.eval()

    return load


def _outcome(family: Family, reference: Reference, load: Any, folder: Path, key: str) -> str:
    try:
        changed = dataclasses.replace(reference, **functions(load(folder), family.task))
        changed.logits(*([[1, 2]], [[1]])[: 2 if family.task == "seq2seq" else 1])
    except Exception:
        return FAILS
    if refusal := refused(family, folder, key):
        return refusal
    comparison = Comparison(folder / "run", changed)
    try:
        differences = comparison.logits(TEXTS)
        if max(differences.values()) > _NEAR:
            return f"{WRONG}: logits differ by {max(differences.values()):.1g}"
        if changed.write is not None:
            pairs = zip(TEXTS, comparison.run.ids(TEXTS), strict=True)
            short = [text for text, row in pairs if len(row) < MAX_LENGTH]  # others have no continuation
            expected, ours = comparison.expected(short)["greedy"], comparison.in_python(short)["greedy"]
            if expected != ours:
                pair = next(pair for pair in zip(expected, ours, strict=True) if pair[0] != pair[1])
                return f"{WRONG}: {pair[0]!r} is {pair[1]!r} here"
    except Exception as error:  # an imported model must be usable
        return f"{WRONG}: {type(error).__name__}: {str(error)[:80]}"
    return AGREE


def refused(family: Family, folder: Path, key: str) -> str:
    """Imports a changed checkpoint into its subfolder `run`; returns the outcome if it is refused, otherwise ""."""
    try:
        import_checkpoint(f"{family.source}:{folder}", folder / "run")
    except InputError as error:
        return REFUSED if key in str(error) else f"{UNNAMED}: {str(error).removeprefix(str(folder))[:120]}"
    except Exception as error:
        return f"{WRONG}: the import ends in {type(error).__name__}: {str(error)[:80]}"
    return ""
