"""Results of finished measurements, with which an interrupted command resumes."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.runner.process import ROOT

FOLDER = ROOT / "runs" / "bench"


def load_or_measure(
    name: str,
    settings: Mapping[str, Any],
    measure: Callable[[], Any],
    fresh: bool = False,
    is_complete: Callable[[Any], bool] = lambda result: True,
) -> Any:
    """Returns the result of `measure`, or the stored one of the same settings.

    Args:
        name: Prefix of the name of the file below `FOLDER`; each choice of settings has its own file.
        settings: The settings on which the result depends, as plain data.
        measure: Function that measures and returns plain data.
        fresh: Whether to measure even if a result is stored.
        is_complete: Returns whether a result is stored.
    """
    file = _file(name, settings)
    if file.exists() and not fresh:
        return stored(name, settings)
    result = measure()
    if is_complete(result):
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".part")
        temporary.write_text(json.dumps({"settings": settings, "found": result}, indent=1) + "\n", encoding="utf-8")
        temporary.replace(file)
    return result


def stored(name: str, settings: Mapping[str, Any]) -> Any:
    """Returns the stored result of these settings, `None` if there is none; see `load_or_measure`."""
    file = _file(name, settings)
    return json.loads(file.read_text(encoding="utf-8"))["found"] if file.exists() else None


def _file(name: str, settings: Mapping[str, Any]) -> Path:
    text = json.dumps(settings, sort_keys=True)
    return FOLDER / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
