"""Worker: trains on `dates` until the first step is done: `python -m benchmarks.first_step MODEL WORKDIR`."""

import json
import os
import sys

from training import train
from training.loop import callbacks


def main():
    """Runs `training.train`, and ends with its first step."""
    model, workdir = sys.argv[1:]

    def report_and_end(self, batch, logs=None):
        print(json.dumps({"loss": float(logs["loss"])}), flush=True)
        os._exit(0)  # the rest of the training is not asked for

    callbacks.Progress.on_train_batch_end = report_and_end
    train.main(["--model", model, "--data", "dates", "--workdir", workdir])


if __name__ == "__main__":
    main()
