"""Measures a case: starts each contestant in a process, lets them take turns, and returns plain data."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from benchmarks.runner.case import Case, Contestant
from benchmarks.runner.process import Failed, Process
from benchmarks.runner.report import machine_and_commit, median_of

Result = dict[str, Any]


def measure(case: Case, rounds: int = 15, threads: int = 0, tiny: bool = False, starts: int = 1) -> Result:
    """Measures a case, one group of contestants after the other, since all groups together would not fit into memory.

    Args:
        case: The case.
        rounds: The number of turns that are measured.
        threads: Threads of each contestant; with 0 its library chooses their number.
        tiny: Whether sizes are tiny, to test that everything runs.
        starts: The number of processes that are started for each contestant, one after another; the last takes turns.

    Returns:
        A dict of `where` (machine and commit), `results`, and `fastest`: with `compare_fastest`, the results of each
        contestant in its fastest group. Results are dicts by the contestant's label: `seconds` and `processor` (the
        time of all processors), a number for each turn; `extra_memory`, a number for each start; `last`, the rest of
        the last response; the values of the introduction; and if the contestant failed, `failed`, the reason.
    """
    measurements: Result = {"where": machine_and_commit(), "results": {}, "fastest": {}}

    def take_part(contestants: Sequence[Contestant], what: str) -> Result:
        return _measure_group(case, contestants, what, rounds, threads, tiny, starts)

    for group in case.groups:
        members = [contestant for contestant in case.contestants if contestant.group == group]
        measurements["results"] |= take_part(members, group)
    if case.compare_fastest:
        # Groups are measured at different times, between which the speed of the processor may change.
        measurements["fastest"] = take_part(fastest_of_each(case, measurements["results"]), "fastest")
    return measurements


def is_complete(measurements: Result) -> bool:
    """Returns whether no contestant failed. Incomplete results are not stored: the next attempt may succeed."""
    return not any("failed" in result for kind in ("results", "fastest") for result in measurements[kind].values())


def fastest_of_each(case: Case, results: Result) -> list[Contestant]:
    """Returns each measured contestant, in the group in which it is fastest."""
    fastest: dict[str, tuple[float, Contestant]] = {}
    for contestant in case.contestants:
        median = median_of(results.get(contestant.label, {}))
        if median is not None and median < fastest.get(contestant.name, (math.inf,))[0]:
            fastest[contestant.name] = median, contestant
    return [contestant for _, contestant in fastest.values()]


def _measure_group(case, contestants, what, rounds, threads, tiny, starts) -> Result:
    results: dict[str, Result] = {contestant.label: {} for contestant in contestants}
    processes: dict[str, Process] = {}
    title = ", ".join(filter(None, [case.name, what]))
    try:
        for contestant in tqdm([*contestants] * starts, f"{title}: starting", leave=False, disable=None):
            if "failed" not in results[contestant.label]:
                _start(contestant, case.task(contestant, threads, tiny), results[contestant.label], processes)
        turns = {label: _turn(process, results[label]) for label, process in processes.items()}
        for label, seconds in take_turns(turns, rounds, case.warm_up).items():
            result = results[label]
            result["seconds"], result["processor"] = seconds, result.get("processor", [])[-rounds:]
    finally:
        for process in processes.values():
            process.close()
    return results


def _start(contestant: Contestant, task: Mapping[str, Any], result: Result, processes: dict[str, Process]) -> None:
    """Starts or restarts a contestant's process, and stores its introduction, or the reason of its failure."""
    label = contestant.label
    if label in processes:
        processes.pop(label).close()
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    if task["threads"]:
        variables["OMP_NUM_THREADS"] = str(task["threads"])
    try:
        processes[label] = Process(contestant.command(task), {**variables, **contestant.variables})
        introduction = processes[label].receive()
    except Failed as error:
        result["failed"] = str(error)
        if label in processes:
            processes.pop(label).close()
        return
    if "extra_memory" in introduction:
        result.setdefault("extra_memory", []).append(introduction.pop("extra_memory"))
    result |= introduction


def _turn(process: Process, result: Result) -> Callable[[], float]:
    """Returns a function that takes a turn and returns its seconds; after a failure it returns NaN."""

    def turn() -> float:
        if "failed" in result:
            return math.nan
        try:
            response = process.request()
        except Failed as error:
            result["failed"] = str(error)
            return math.nan
        result.setdefault("processor", []).append(response.pop("processor"))
        result["last"] = response
        return response.pop("seconds")

    return turn


def take_turns(
    contestants: Mapping[str, Callable[[], float]], rounds: int = 15, warm_up: int = 2
) -> dict[str, list[float]]:
    """Returns the numbers that contestants measure in turns, A B A B …, after the warm-up; noise affects all alike."""
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in tqdm(range(warm_up + rounds), "turns", leave=False, disable=None):
        for name, measure_once in contestants.items():
            value = measure_once()
            if turn >= warm_up:
                measured[name].append(value)
    return measured
