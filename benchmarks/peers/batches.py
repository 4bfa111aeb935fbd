"""What the adapters share: batches of tokens, and the turns of training and search."""

import itertools
import json
import math
import time
from pathlib import Path

import numpy as np

PAD, START, END, FIRST = 0, 1, 2, 4  # ids of this library's tokenizers; the fifth token is the first word
SORTED_TOGETHER = 8192  # pairs
WARM_UP = 5  # batches of a text before the first turn


def use_threads(count):
    """Sets the number of TensorFlow's threads, and disables its GPUs; call it before any operation."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def number_of_weights(model):
    """Returns the number of trainable parameters of a Keras model."""
    return sum(math.prod(weight.shape) for weight in model.trainable_variables)


def serve_training(channel, step, parameters, packages):
    """Trains at each request: one step, or as many as the text has batches.

    Args:
        channel: The channel.
        step: Function from source, target and outputs to the loss as a number.
        parameters: The number of trainable parameters.
        packages: The distributions whose versions are reported.
    """

    def train(limit=None):
        for batch in itertools.islice(batches(channel.task), limit):
            loss = step(*batch)
        return loss

    channel.introduce(packages, parameters=parameters, loss=train(WARM_UP))
    channel.serve(train, lambda loss: {"loss": loss})


def serve_search(channel, search, parameters, packages, end=END):
    """Searches for all sentences at each request; see `serve_training`.

    `search` returns the best ids of each sentence of a batch, without the start. `end` is an id that must not occur;
    `None` for libraries without an end.
    """
    sources = sentences(channel.task)

    def check(translations):
        for source, ids in zip(sources, translations, strict=True):
            check_length(source, np.asarray(ids), end)
        return {}

    serve_after_warm_up(channel, lambda: [search(source) for source in sources], check, packages, parameters=parameters)


def serve_one_by_one(channel, compute, items, packages, describe):
    """Computes one item after the other at each request, and reports the seconds of each as `latencies`.

    `describe` is a function from the results to further values of the response.
    """

    def compute_all():
        results, latencies = [], []
        for item in items:
            began = time.perf_counter()
            results.append(compute(item))
            latencies.append(time.perf_counter() - began)
        return results, latencies

    serve_after_warm_up(
        channel, compute_all, lambda outcome: {**describe(outcome[0]), "latencies": outcome[1]}, packages
    )


def serve_after_warm_up(channel, measure, describe, packages, **introduction):
    """Takes a turn to warm up and to check its outcome, introduces the contestant, and serves its turns."""
    describe(measure())
    channel.introduce(packages, **introduction)
    channel.serve(measure, describe)


def read_ids(task):
    """Returns the rows of ids in the `folder` of a task."""
    return json.loads((Path(task["folder"]) / "ids.json").read_text(encoding="ascii"))


def sentences(task):
    """Returns batches of `batch` sentences of similar length, int32 [B, S], the longest first."""
    rows = sorted(read_ids(task), key=len)
    starts = range(0, len(rows), task["batch"])
    return [padded(rows[start : start + task["batch"]]) for start in starts][::-1]


def check_length(source, ids, end=END):
    """Raises `ValueError` unless `ids` has the shape of the source [B, S] and contains no end."""
    if ids.shape != source.shape or (ids == end).any():
        raise ValueError(f"Expected {source.shape} tokens. Received: {ids.shape}, {(ids == end).sum()} ends.")


def batches(task):
    """Returns the batches of a turn: source [B, S], target [B, T] and outputs [B, T], the next tokens, int32.

    With a `text` these are all of its pairs, read again for each turn; else one batch that is always the same.
    """
    return text_batches(task) if "text" in task else [make_batch(task)]


def text_batches(task):
    """Yields the batches of an epoch: pairs of similar length, padded, in random order.

    A batch has at most `batch_tokens` tokens on its longer side, including padding. The folder `text` contains the
    files `source` and `target` with the tokens of a sentence in each line.
    """
    source, target = (
        [[*map(int, line.split())] for line in (Path(task["text"]) / side).read_text(encoding="ascii").splitlines()]
        for side in ("source", "target")
    )
    generator, pairs_by_batch = np.random.default_rng(0), []
    order = generator.permutation(len(source))
    for start in range(0, len(order), SORTED_TOGETHER):
        batch, longest = [], 0
        window = order[start : start + SORTED_TOGETHER]
        for pair in sorted(window, key=lambda pair: (len(target[pair]), len(source[pair]))):
            length = max(len(source[pair]), len(target[pair]) + 1)
            if batch and max(longest, length) * (len(batch) + 1) > task["batch_tokens"]:
                pairs_by_batch.append(batch)
                batch, longest = [], 0
            batch.append(pair)
            longest = max(longest, length)
        pairs_by_batch.append(batch)
    for index in generator.permutation(len(pairs_by_batch)):
        sources, targets = ([side[pair] for pair in pairs_by_batch[index]] for side in (source, target))
        yield padded(sources), padded([[START, *row] for row in targets]), padded([[*row, END] for row in targets])


def padded(rows):
    """Returns rows of ids as one padded array, int32."""
    array = np.full((len(rows), max(map(len, rows))), PAD, "int32")
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return array


def make_batch(task):
    """Returns source [B, S], target [B, T] and outputs [B, T], the next tokens: int32, without padding."""
    generator = np.random.default_rng(0)
    source, outputs = (
        generator.integers(FIRST, task["vocabulary"], (task["batch"], task[name])).astype("int32")
        for name in ("source_length", "target_length")
    )
    target = np.concatenate([np.full_like(outputs[:, :1], START), outputs[:, :-1]], axis=1)
    return source, target, outputs
