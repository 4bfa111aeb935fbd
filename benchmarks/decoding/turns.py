"""What the workers of `benchmarks.decoding` share; needs nothing but Python."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(translate: Callable[[int], Any], tell: Callable[[Any], dict[str, Any]]) -> None:
    """Translates at every line `BEAM` of standard input, and answers with a line of JSON.

    Args:
        translate: From the size of the beam to what was found; its time is told as `seconds`.
        tell: From what was found to what is told besides.
    """
    for line in sys.stdin:
        started = time.perf_counter()
        found = translate(int(line))
        seconds = time.perf_counter() - started
        print(json.dumps({"seconds": seconds, **tell(found)}), flush=True)
