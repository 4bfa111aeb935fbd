"""The same jobs on Apache Beam: any of its runners, by its own flags. Needs the extra `beam`."""

from collections.abc import Iterator, Sequence

from training.preparation.shard_job import Job
from training.preparation.workers import Runner, Work
from zoo.beam import make_pipeline


def on_beam(flags: Sequence[str]) -> Runner:
    """Returns what does jobs on the runner that flags describe, such as `["--runner=FlinkRunner"]`.

    Workers read and write the folder of the preparation, which all of them have to see under the same name.
    """

    def run(work: Work, jobs: Sequence[Job]) -> Iterator[Job]:
        pipeline = make_pipeline(flags)  # Beam is there
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
