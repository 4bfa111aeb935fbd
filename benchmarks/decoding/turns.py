"""What the workers of `benchmarks.decoding` share; needs nothing but Python."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(translate: Callable[[int], Any], tell: Callable[[Any], dict[str, Any]]) -> None:
    """Translates at every line `BEAM` of standard input, and answers with a line of JSON.

    Args:
        translate: From the size of the beam to what was found; its time is told as `seconds`, that of processors as
            `processor`.
        tell: From what was found to what is told besides.
    """
    for line in sys.stdin:
        started, processor = time.perf_counter(), time.process_time()
        found = translate(int(line))
        taken = {"seconds": time.perf_counter() - started, "processor": time.process_time() - processor}
        print(json.dumps({**taken, **tell(found)}), flush=True)
