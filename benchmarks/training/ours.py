"""Worker: the zoo's own training, step by step: `python -m benchmarks.training.ours TASK`.

Configuration, model, loss, optimizer, batches and the call of `fit` are those of `training.train`; only the batch is
always the same one.
"""

from pathlib import Path

from benchmarks.training.peers.keras_turns import KerasTurns, train_on_text
from benchmarks.training.peers.worker import Turns, make_batch, use_threads
from training.config.resolve import resolve
from training.data import load_data
from training.data.batching import PairBatches, for_fit
from training.hardware.choice import Hardware
from training.hardware.cores import use_cores
from training.hardware.devices import EvenBatches
from training.hardware.precision import without_rewriting
from training.loop.build import compile_model
from training.tasks import get_task
from zoo.text import load_tokenizer

PACKAGES = ("attention-zoo", "keras", "tensorflow")
MANY = 1_000_000


class FixedBatch(PairBatches):
    """One batch, over and over.

    Args:
        task: See `make_batch`.
    """

    def __init__(self, task):
        source, _, outputs = make_batch(task)
        # The target gets an end symbol of its own, so the last symbol makes room for it.
        super().__init__(source.tolist(), outputs[:, :-1].tolist(), batch_tokens=MANY, steps=MANY)
        self.batch = super().batch_of(0)

    def batch_of(self, step):
        return self.batch


def configure(task):
    """Returns the configuration of training for a task.

    Args:
        task: The task: its `model` and `options` are ours, the rest is common to all contestants.
    """
    options = {**task["options"], "dropout": task["dropout"]}
    settings = {
        "precision": {"float32": "float32", "bfloat16": "mixed_bfloat16"}[task["precision"]],
        "label_smoothing": task["label_smoothing"],
        "clip_norm": 0,  # nobody clips
        "cores": task["threads"],
    }
    words = [f"model.{name}={value}" for name, value in options.items()]
    words += [f"training.{name}={value}" for name, value in settings.items()]
    config = resolve(task["model"], task.get("spec", "text:none:source-target"), words)
    return config.with_model(source_vocab_size=task["vocabulary"], target_vocab_size=task["vocabulary"])


def make_model(config):
    """Returns the compiled model of a configuration.

    Args:
        config: From `configure`.
    """
    return compile_model(config, Hardware(config.training.precision, cores=config.training.cores))


def read(task, config):
    """Returns an epoch of a text: its lines are read, tokenized and put into batches, as at the start of training.

    Args:
        task: The task.
        config: From `configure`.
    """
    tokenizers = dict.fromkeys(("source", "target"), load_tokenizer(Path(task["text"]) / "tokenizer.json"))
    options = {"batch_tokens": task["batch_tokens"]}
    batches = get_task("seq2seq").batches(config.data, load_data(task["spec"]), "train", tokenizers, **options)
    return EvenBatches(batches, config.training.cores)


def main():
    """Takes part."""
    turns = Turns()
    use_threads(turns.task["threads"])
    use_cores(turns.task["threads"], turns.task["threads"])
    config = configure(turns.task)
    model = make_model(config)
    with without_rewriting():
        if "text" in turns.task:
            train_on_text(turns, model, lambda: for_fit(read(turns.task, config)), PACKAGES)
        else:
            callbacks = [KerasTurns(turns, PACKAGES)]
            model.fit(for_fit(FixedBatch(turns.task)), callbacks=callbacks, verbose=0, shuffle=False)


if __name__ == "__main__":
    main()
