"""Runs jobs on processes of this machine, or on Apache Beam, on any of its runners."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from training.preparation.shard_job import Job
from zoo.runtime.beam import make_pipeline

Work = Callable[[Job], None]
Runner = Callable[[Work, Sequence[Job]], Iterator[Job]]
"""A function that runs `work` for each of several jobs, and yields the finished jobs."""


class WorkerLost(Exception):
    """A worker process ended during its job."""


def local(processes: int) -> Runner:
    """Returns a runner of jobs on several processes; with one, it runs them in this process."""

    def run(work: Work, jobs: Sequence[Job]) -> Iterator[Job]:
        if processes == 1 or len(jobs) < 2:
            for job in jobs:
                work(job)
                yield job
            return
        # A fork of a process with threads may hang.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(processes, len(jobs)), context, initializer=_begin_worker) as pool:
            try:
                for job, _ in zip(jobs, pool.map(work, jobs), strict=True):
                    yield job
            except BrokenProcessPool as error:
                message = "a worker process was killed, or ran out of memory. Run the same command to resume."
                raise WorkerLost(message) from error
            finally:
                # Also after a signal: unfinished jobs are run again, and need not be waited for.
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():
                    process.kill()

    return run


def _begin_worker() -> None:
    """Ignores Ctrl-C, which the parent process handles, and makes this process end when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=[parent.sentinel], daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def on_beam(flags: Sequence[str]) -> Runner:
    """Returns a runner of jobs on Beam's runner with some flags, such as `["--runner=FlinkRunner"]`.

    Workers read and write the folder of the preparation, which must have the same path for all of them. Requires the
    extra `beam`.
    """

    def run(work: Work, jobs: Sequence[Job]) -> Iterator[Job]:
        pipeline = make_pipeline(flags)  # raises if Beam is not installed
        import apache_beam as beam

        _ = (
            pipeline
            | "Jobs" >> beam.Create(list(jobs))
            | "One job a worker" >> beam.Reshuffle()
            | "Work" >> beam.Map(work)
        )
        pipeline.run().wait_until_finish()
        yield from jobs

    return run
