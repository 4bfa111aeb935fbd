"""What the peers that decode share: the sentences, and a search of all of them at every line `BEAM`.

The folder of `benchmarks.training.peers` is on the path: models are made there.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import numpy as np
from worker import END, padded


def batches(task):
    """Returns the ids of sentences of about equal length, each array int32 [B, S], those that take longest first.

    Args:
        task: The task: `sources` is a JSON file of rows of ids, `batch` of which are decoded together.
    """
    rows = sorted(json.loads(Path(task["sources"]).read_text(encoding="ascii")), key=len)
    starts = range(0, len(rows), task["batch"])
    return [padded(rows[start : start + task["batch"]]) for start in starts][::-1]


def check(source, ids, end=END):
    """Checks that a batch took as many steps as its longest sentence has symbols.

    Args:
        source: The batch [B, S].
        ids: What was found [B, S].
        end: What would have ended a row.

    Raises:
        ValueError: If it did not.
    """
    if ids.shape != source.shape or (ids == end).any():
        raise ValueError(f"{source.shape} symbols were to be found. Received: {ids.shape}, {(ids == end).sum()} ends.")


def serve(turns, search, parameters, packages, end=END):
    """Searches at every line `BEAM`, and tells what that took.

    Args:
        turns: The contestant's `Turns`.
        search: From the size of the beam and a batch of `batches` to the best ids of each sentence, without the start.
        parameters: How many numbers the model has.
        packages: Names of the distributions whose versions count.
        end: What would end a row early; `None` where the library was told that nothing does.
    """
    sources = batches(turns.task)
    told = {"versions": {name: importlib.metadata.version(name) for name in packages}, "parameters": parameters}
    for line in sys.stdin:
        turns.begin()
        found = [search(int(line), source) for source in sources]
        taken = turns.taken()
        for source, ids in zip(sources, found, strict=True):
            check(source, np.asarray(ids), end)
        turns.tell(**taken, **told)
    turns.leave()
