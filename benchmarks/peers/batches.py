"""What the adapters share: batches of tokens, and how they are trained on and searched with."""

import itertools
import json
import math
import time
from pathlib import Path

import numpy as np

PAD, START, END, FIRST = 0, 1, 2, 4  # of the zoo's tokenizers: the fifth token is the first that is a word
SORTED_TOGETHER = 8192  # pairs
WARM_UP = 5  # batches of a text before the first turn


def use_threads(count):
    """Sets how many threads TensorFlow has, before it does anything; it works on processors alone."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def number_of_weights(model):
    """Returns how many numbers of a Keras model are trained."""
    return sum(math.prod(weight.shape) for weight in model.trainable_variables)


def serve_training(channel, step, parameters, packages):
    """Trains at each request: one step, or as many as the text has batches.

    `step` takes source, target and the tokens that follow it, and returns its loss as a number; `parameters` is how
    many numbers are trained, `packages` are the distributions whose versions count.
    """

    def train(limit=None):
        for batch in itertools.islice(batches(channel.task), limit):
            loss = step(*batch)
        return loss

    channel.introduce(packages, parameters=parameters, loss=train(WARM_UP))
    channel.serve(train, lambda loss: {"loss": loss})


def serve_search(channel, search, parameters, packages, end=END):
    """Searches all sentences at each request; see `serve_training`.

    `search` returns the best ids of each sentence of a batch, without the start; `end` would end a row early, and is
    `None` where the library is set to end none.
    """
    sources = sentences(channel.task)

    def check(translations):
        for source, ids in zip(sources, translations, strict=True):
            check_length(source, np.asarray(ids), end)
        return {}

    def search_all():
        return [search(source) for source in sources]

    check(search_all())
    channel.introduce(packages, parameters=parameters)
    channel.serve(search_all, check)


def serve_one_by_one(channel, answer, items, packages, describe):
    """Asks for one item after the other at each request, and reports the seconds of each as `latencies`.

    `describe` turns the answers into what is sent besides.
    """

    def answer_all():
        answers, latencies = [], []
        for item in items:
            began = time.perf_counter()
            answers.append(answer(item))
            latencies.append(time.perf_counter() - began)
        return answers, latencies

    answer_all()
    channel.introduce(packages)
    channel.serve(answer_all, lambda outcome: {**describe(outcome[0]), "latencies": outcome[1]})


def sentences(task):
    """Returns the ids of sentences of about equal length, each batch int32 [B, S], those that take longest first.

    `folder` has `ids.json`, a row of ids for each sentence, `batch` of which are decoded together.
    """
    rows = sorted(json.loads((Path(task["folder"]) / "ids.json").read_text(encoding="ascii")), key=len)
    starts = range(0, len(rows), task["batch"])
    return [padded(rows[start : start + task["batch"]]) for start in starts][::-1]


def check_length(source, ids, end=END):
    """Checks that a batch [B, S] took as many steps as its longest sentence has tokens, and no row has an end."""
    if ids.shape != source.shape or (ids == end).any():
        raise ValueError(f"Expected {source.shape} tokens. Received: {ids.shape}, {(ids == end).sum()} ends.")


def batches(task):
    """Returns the batches of a turn: source [B, S], target [B, T] and the tokens that follow it [B, T], int32.

    With a `text` these are all of its pairs, read again for each turn; else a batch that is always the same.
    """
    return text_batches(task) if "text" in task else [make_batch(task)]


def text_batches(task):
    """Yields the batches of an epoch: pairs of about equal length, padded, in random order.

    A batch has at most `batch_tokens` tokens on its longer side, padding included. `text` is a folder with the tokens
    of a sentence in each line of `source` and of `target`.
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
    """Returns rows of ids as one array, int32, with padding at their ends."""
    array = np.full((len(rows), max(map(len, rows))), PAD, "int32")
    for number, row in enumerate(rows):
        array[number, : len(row)] = row
    return array


def make_batch(task):
    """Returns source [B, S], target [B, T] and the tokens that follow it [B, T]: int32, none of them padding."""
    generator = np.random.default_rng(0)
    source, outputs = (
        generator.integers(FIRST, task["vocabulary"], (task["batch"], task[name])).astype("int32")
        for name in ("source_length", "target_length")
    )
    target = np.concatenate([np.full_like(outputs[:, :1], START), outputs[:, :-1]], axis=1)
    return source, target, outputs
