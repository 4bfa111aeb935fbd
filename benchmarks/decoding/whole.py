"""Worker: a work directory translates the same texts at every line `BEAM` it is sent, as `training.evaluate` does.

`python -m benchmarks.decoding.whole WORKDIR BATCH TEXTS.json THREADS`
"""

import json
import os
import sys

from benchmarks.decoding.turns import serve
from training.hardware.cores import use_cores


def load(workdir, texts, threads):
    """Returns the loaded work directory and the texts of a file, behind setting the threads of this process."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(threads)])
    use_cores(int(threads))
    import zoo

    return zoo.load(workdir), json.loads(open(texts, encoding="utf-8").read())


def answer(run, texts, batch):
    """Translates at every line `BEAM` of standard input."""
    serve(
        lambda beam: run.translate(texts, beam_size=beam, length_penalty=0.0, batch_size=batch),
        lambda answers: {"texts": answers},
    )


def main():
    workdir, batch, texts, threads = sys.argv[1:]
    answer(*load(workdir, texts, threads), int(batch))


if __name__ == "__main__":
    main()
