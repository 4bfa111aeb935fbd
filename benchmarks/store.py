"""Results of finished measurements: a run that was stopped goes on where it was."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.process import ROOT

FOLDER = ROOT / "runs" / "bench"


def load_or_measure(
    name: str,
    settings: Mapping[str, Any],
    measure: Callable[[], Any],
    fresh: bool = False,
    is_complete: Callable[[Any], bool] = lambda result: True,
) -> Any:
    """Returns what `measure` returns, from the file of a finished run with the same settings if there is one.

    Args:
        name: Beginning of the name of the file below `FOLDER`; each choice of settings has its own file.
        settings: What the result depends on, as JSON has it.
        measure: Measures; what it returns is plain data.
        fresh: Whether to measure in any case.
        is_complete: Tells whether a result is worth saving: the next time may find more.
    """
    text = json.dumps(settings, sort_keys=True)
    file = FOLDER / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    if file.exists() and not fresh:
        return json.loads(file.read_text(encoding="utf-8"))["found"]
    result = measure()
    if is_complete(result):
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".part")
        temporary.write_text(json.dumps({"settings": settings, "found": result}, indent=1) + "\n", encoding="utf-8")
        temporary.replace(file)
    return result
