"""Runs a case: starts every contestant, lets them take turns, and returns what was found as plain data."""

import functools
import json
from typing import Any

from tqdm import tqdm

from benchmarks.process import Failed, Process, until_failure
from benchmarks.timing import Spread, take_turns, where
from benchmarks.training.cases import PRECISIONS, Case, Contestant

Found = dict[str, Any]


class Worker(Process):
    """A process in which a contestant trains, to be closed.

    Args:
        case: Its case.
        contestant: The contestant.
        threads: How many threads it may have.
        tiny: Whether sizes are tiny.

    Raises:
        Failed: If its environment cannot be made.
    """

    def __init__(self, case: Case, contestant: Contestant, threads: int, tiny: bool = False):
        task = json.dumps(case.task_of(contestant, threads, tiny))
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "OMP_NUM_THREADS": str(threads)}
        super().__init__([*contestant.command(), task], environment)
        self.introduction: Found = {}

    def turn(self) -> Found:
        """Returns what a turn took: `seconds`, time of `processor`s, its `loss` and the `peak` of the memory so far."""
        self.tell("step")
        return self.answer()


def measure(case: Case, rounds: int = 15, threads: int = 1, tiny: bool = False) -> Found:
    """Returns the measurements of a case, one precision after the other: all at once would not fit into memory.

    Then every contestant takes turns once more in the precision that it was fastest in, but for epochs, which take
    long: a processor that is faster in one minute than in the next would favour one of the precisions.

    Args:
        case: The case.
        rounds: Turns that count.
        threads: Threads of each contestant.
        tiny: Whether sizes are tiny, to see that everything runs.

    Returns:
        `where`, `contestants` and, of those in their fastest precision, `fastest`: by label either `seconds` and
        `processor` (time of processors), two lists, with `peak`, `parameters`, `versions` and the first and last
        `losses`, or why it has `failed`.
    """
    found: Found = {"where": where(), "contestants": {}, "fastest": {}}
    for precision in PRECISIONS:
        group = [contestant for contestant in case.contestants if contestant.precision == precision]
        found["contestants"] |= _in_turns(case, group, precision, rounds, threads, tiny)
    if case.turn == "step":
        group = fastest_of_each(case, found["contestants"])
        found["fastest"] = _in_turns(case, group, "fastest precision", rounds, threads, tiny)
    return found


def median_of(result: Found) -> float | None:
    """Returns the median of a contestant's seconds, `None` for one that was not measured or failed.

    Args:
        result: What was found of it.
    """
    return Spread.of(result["seconds"]).median if "seconds" in result and "failed" not in result else None


def fastest_of_each(case: Case, results: Found) -> list[Contestant]:
    """Returns each contestant in the precision in which its steps are fastest.

    Args:
        case: The case.
        results: `contestants` of what `measure` returns.
    """
    fastest: dict[str, tuple[float, Contestant]] = {}
    for contestant in case.contestants:
        median = median_of(results.get(contestant.label, {}))
        if median is not None:
            candidate = median, contestant
            fastest[contestant.name] = min(fastest.get(contestant.name, candidate), candidate, key=lambda pair: pair[0])
    return [contestant for _, contestant in fastest.values()]


def _in_turns(case, group, what, rounds, threads, tiny):
    """Returns what was found of some contestants that take turns, by label."""
    results: Found = {}
    workers: dict[str, Worker] = {}
    try:
        for contestant in tqdm(group, f"{case.name}, {what}: starting", leave=False, disable=None):
            results[contestant.label] = _start(case, contestant, threads, tiny, workers)
        turns = {label: _turn(worker, results[label]) for label, worker in workers.items()}
        for label, seconds in take_turns(turns, rounds, case.warm_up).items():
            result = results[label]
            result["seconds"], result["processor"] = seconds, result.get("processor", [])[-rounds:]
    finally:
        for worker in workers.values():
            worker.close()
    return results


def is_complete(found: Found) -> bool:
    """Tells whether no contestant failed: of one that did, the reason may be gone the next time."""
    return not any("failed" in result for kind in ("contestants", "fastest") for result in found[kind].values())


def _start(case, contestant, threads, tiny, workers):
    """Returns how a contestant introduces itself, or why it cannot; one that can is put among the workers."""
    try:
        worker = Worker(case, contestant, threads, tiny)
    except Failed as error:
        return {"failed": str(error)}
    try:
        told = worker.answer()
    except Failed as error:
        worker.close()
        return {"failed": str(error)}
    workers[contestant.label] = worker
    return {"parameters": told["parameters"], "versions": told["versions"], "losses": [told["loss"]]}


def _turn(worker, result):
    def turn():
        told = worker.turn()
        result.setdefault("processor", []).append(told["processor"])
        result["peak"], result["losses"][1:] = told["peak"], [told["loss"]]
        return told["seconds"]

    return until_failure(turn, functools.partial(result.__setitem__, "failed"))
