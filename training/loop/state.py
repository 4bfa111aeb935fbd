"""The state of a run besides its variables, and its log."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

from zoo.workdir import WorkDir


@dataclass
class RunState:
    """The state of a run besides its variables; checkpoints contain it under these names."""

    rounds: int = 0
    best: float = math.inf  # lowest validation cross-entropy so far
    best_round: int = 0  # its round, from 1
    seconds: float = 0.0  # training time so far
    validated_on: str = ""  # a hash of the validation data on which `best` was measured
    batches: int = 0  # batches of the unfinished round, if there is one
    counted: list[Any] = field(default_factory=list)  # the values of its metrics so far

    def validate_on(self, data: str) -> None:
        """Sets the hash of the validation data; if it has changed, which a resumed run may accept, `best` is reset.

        For a run of an earlier version, without a hash, the data count as unchanged.
        """
        if self.validated_on not in ("", data):
            self.best, self.best_round = math.inf, self.rounds
        self.validated_on = data

    def has_stalled(self, patience: int) -> bool:
        """Returns whether `patience` rounds have passed without a better validation loss; false for a patience of 0."""
        return bool(patience) and self.rounds - self.best_round >= patience


def read_log(workdir: WorkDir) -> list[dict[str, Any]]:
    """Returns the records in `metrics.jsonl`, without invalid lines, such as a truncated one."""
    lines = workdir.metrics.read_bytes().splitlines() if workdir.metrics.exists() else ()
    return [record for line in lines if (record := _record(line)) is not None]


def _record(line: bytes) -> dict[str, Any] | None:
    """Returns a line of the log as a record, an object with a step; `None` if it is invalid."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def append_to_log(workdir: WorkDir, record: dict[str, Any]) -> None:
    """Adds a line to `metrics.jsonl`."""
    workdir.append_text(workdir.metrics, json.dumps(record) + "\n")


def cut_log(workdir: WorkDir, last_step: int) -> None:
    """Removes the lines after the last checkpoint, and the line of the saved model, from `metrics.jsonl`."""
    if workdir.metrics.exists():
        records = [record for record in read_log(workdir) if record["step"] <= last_step and not record.get("final")]
        workdir.write_text(workdir.metrics, "".join(f"{json.dumps(record)}\n" for record in records))


def final_metrics(workdir: WorkDir) -> dict[str, Any] | None:
    """Returns the metrics of a finished run, the last line of its log; `None` for an unfinished one."""
    records = read_log(workdir)
    return records[-1] if workdir.model.exists() and records and records[-1].get("final") else None
