"""The shortlist of a translator: learned from its training split, measured on its validation split."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import zoo
from training.config.initial_run import open_workdir
from training.config.run_config import RunConfig, open_data
from training.data.encoding import encode_split
from training.loop.model_card import note_shortlist
from training.shortlists.ibm_model_1 import most_probable, translation_table
from training.tasks import get_task
from zoo.errors import InputError
from zoo.inference.shortlist import FILE, Shortlist, check_readout
from zoo.presets import PREFIX
from zoo.vocabulary import SPECIAL_PIECES, pad
from zoo.workdir import WorkDir

BATCH = 32
"""Sentences that share a shortlist, as in an export with `--dynamic_batching`."""


def learn_shortlist(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    source_size: int,
    target_size: int,
    translations: int = 50,
    frequent: int = 100,
) -> Shortlist:
    """Returns the shortlist of a corpus.

    Args:
        sources: Ids of each source.
        targets: Ids of each target.
        source_size: Number of source tokens.
        target_size: Number of target tokens.
        translations: Number of likely translations of each source token, K.
        frequent: Number of the most frequent target tokens that are always included, besides the special ones.
    """
    special = len(SPECIAL_PIECES)
    table = most_probable(translation_table(sources, targets), source_size, translations)
    counts = np.bincount(np.concatenate([np.array(row, np.int64) for row in targets]), minlength=target_size)
    order = np.concatenate([np.arange(special), special + np.argsort(-counts[special:], kind="stable")])
    return Shortlist(table, np.argsort(order).astype(np.int32), min(special + frequent, target_size))


def share_outside(
    shortlist: Shortlist, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], size: int
) -> float:
    """Returns the share of target tokens missing from the shortlist of their batch of 32 sources of similar length.

    Args:
        shortlist: The shortlist.
        sources: Ids of each source.
        targets: Ids of each target.
        size: Target tokens of a batch.
    """
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    outside = total = 0
    for start in range(0, len(order), BATCH):
        numbers = order[start : start + BATCH]
        allowed = keras.ops.convert_to_numpy(shortlist.candidates(pad([sources[number] for number in numbers]), size))
        tokens = np.concatenate([np.array(targets[number], np.int64) for number in numbers])
        outside += int(np.sum(~np.isin(tokens, allowed)))
        total += len(tokens)
    return outside / max(total, 1)


def write_shortlist(
    path: str,
    spec: str | None = None,
    shortlist: int = 1000,
    translations: int = 50,
    frequent: int = 100,
    pairs: int = 200_000,
    beam_size: int = 1,
) -> dict[str, Any]:
    """Writes the shortlist of a work directory, and returns its loss in quality on the validation split.

    Args:
        path: The work directory of a translator.
        spec: Data SPEC. Default: the model's training data.
        shortlist: Target tokens of a batch in the evaluation.
        translations: See `learn_shortlist`.
        frequent: See `learn_shortlist`.
        pairs: Largest number of pairs that it is learned from, at equal distances in the training split.
        beam_size: Beam size of the evaluation.

    Returns:
        `outside`, the share of reference tokens that are not in the shortlist of their batch, and the metrics of
        translations with the shortlist, such as `bleu`; those without it end in `_of_all`.

    Raises:
        InputError: For a model that is no translator or takes no shortlist, or data that are not pairs.
    """
    run = zoo.load(path)
    if path.startswith(PREFIX) or not os.access(run.path, os.W_OK):
        raise InputError(f"{path} cannot be written to; pass a copy of it.")
    config, workdir = RunConfig.of_workdir(open_workdir(path)), WorkDir(run.path)
    data = config.open_data() if spec in (None, config.data.spec) else open_data(config.spec, str(spec))
    check_readout(run.model)  # raises before minutes of work
    columns = {split: encode_split(data, split, run.tokenizer_files()).columns for split in ("train", "val")}
    count = len(columns["train"]["source"])
    numbers = np.arange(0, count, -(-count // pairs))
    sources, targets = (columns["train"][side].lists(numbers) for side in ("source", "target"))
    sizes = run.model.source_vocab_size, run.model.target_vocab_size
    learned = learn_shortlist(sources, targets, *sizes, translations, frequent)
    task = get_task(run.spec.task)
    before, _ = task.evaluate(run, data, "val", beam_size=beam_size)
    learned.save(workdir)
    after, _ = task.evaluate(run, data, "val", beam_size=beam_size, shortlist=shortlist)
    size = min(shortlist, sizes[1])
    source, target = (rows.lists(np.arange(len(rows))) for rows in (columns["val"]["source"], columns["val"]["target"]))
    result = {
        "file": str(workdir.path / FILE),
        "data": data.spec,
        "split": "val",
        "pairs": len(sources),
        "shortlist": size,
        "beam_size": beam_size,
        "outside": share_outside(learned, source, target, size),
    }
    for name, value in after.items():
        if isinstance(value, float) and name != "decoding_seconds":
            result |= {name: value, f"{name}_of_all": before[name]}
    note_shortlist(workdir, result)
    return result
