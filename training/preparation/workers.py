"""Jobs on processes of this machine, or on Apache Beam."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from training.preparation.shard_job import Job

Work = Callable[[Job], None]
Runner = Callable[[Work, Sequence[Job]], Iterator[Job]]
"""Does some work for each of several jobs, and yields the jobs that are done."""


class WorkerLost(Exception):
    """A worker process ended in the middle of its job."""


def local(processes: int) -> Runner:
    """Returns what does jobs on so many processes; with one, in this process."""

    def run(work: Work, jobs: Sequence[Job]) -> Iterator[Job]:
        if processes == 1 or len(jobs) < 2:
            for job in jobs:
                work(job)
                yield job
            return
        # Spawned, since a fork of a process with threads may hang.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(processes, len(jobs)), context, initializer=_begin_worker) as pool:
            try:
                for job, _ in zip(jobs, pool.map(work, jobs), strict=True):
                    yield job
            except BrokenProcessPool as error:
                message = "a worker process was killed, or ran out of memory. The same command goes on."
                raise WorkerLost(message) from error
            finally:
                # Also after a signal: what is half done is done again, and nobody waits for it.
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():
                    process.kill()

    return run


def _begin_worker() -> None:
    """Leaves Ctrl-C to the process that started this one, and ends with it, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=[parent.sentinel], daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
