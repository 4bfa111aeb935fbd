"""Runs jobs on Apache Beam, on any of its runners, by its own flags. Requires the extra `beam`."""

from collections.abc import Iterator, Sequence

from training.preparation.shard_job import Job
from training.preparation.workers import Runner, Work
from zoo.runtime.beam import make_pipeline


def on_beam(flags: Sequence[str]) -> Runner:
    """Returns a runner of jobs on Beam's runner with some flags, such as `["--runner=FlinkRunner"]`.

    Workers read and write the folder of the preparation, which must have the same path for all of them.
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
