"""What was measured already: a run that was stopped goes on where it was."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.timing import ROOT

FOLDER = ROOT / "runs" / "bench"


def kept(name: str, settings: Mapping[str, Any], measure: Callable[[], Any], fresh: bool = False) -> Any:
    """Returns what `measure` returns, from the file of a finished run with the same settings if there is one.

    Args:
        name: Name of the file below `FOLDER`, without its ending.
        settings: What the result depends on, as JSON has it.
        measure: Measures; what it returns is plain data.
        fresh: Whether to measure in any case.
    """
    file = FOLDER / f"{name}.json"
    if file.exists() and not fresh:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["settings"] == settings:
            return content["found"]
    found = measure()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps({"settings": settings, "found": found}, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)
    return found
