"""Metrics by the length of the sources, or by the frequency of their rarest word in the training data.

Words are separated by spaces, in lower case, without the punctuation and symbols at their ends. For models that read
characters, characters are counted instead of words.
"""

import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from training.data import Dataset, TextData
from zoo.errors import InputError
from zoo.runtime.extras import missing_extra
from zoo.text import Tokenizer
from zoo.workdir import replacing

if TYPE_CHECKING:  # tasks import Keras, which commands that only need `KINDS` start later
    from training.tasks.task import Task

KINDS = ("length", "frequency")
"""Properties that sources can be grouped by."""

_MOST_BUCKETS = 8
_SHARE = 0.95
_FREQUENCIES = (0, 1, 3, 10, 30, 100, 300, 1000)
_TITLES = {
    "length": "Length of the source in {unit}",
    "frequency": "Occurrences in the training data of\nthe rarest of the {unit} of the source",
}

_DRAWN = {
    "bleu": "BLEU",
    "exact_match": "exact match",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "perplexity": "perplexity",
}

Table = dict[str, Any]


@dataclass(frozen=True)
class Buckets:
    """Examples grouped by a numeric property.

    Attributes:
        kind: See `KINDS`.
        unit: The unit that was counted, `"words"` or `"characters"`.
        values: The value of each example; `None` for a source without words, which has no rarest one.
        lows: The smallest value of each bucket, in order. The last bucket is open.
    """

    kind: str
    unit: str
    values: Sequence[int | None]
    lows: Sequence[int]

    def table(self, measure: Callable[[list[int]], Mapping[str, float]]) -> Table:
        """Returns the metrics of each non-empty bucket; `measure` takes the indices of its examples."""
        members: dict[int, list[int]] = {}
        for number, value in enumerate(self.values):
            bucket = -1 if value is None else int(np.searchsorted(self.lows, value, side="right")) - 1
            members.setdefault(bucket, []).append(number)
        buckets = [
            {**self._bounds(bucket), "examples": len(numbers), **measure(numbers)}
            for bucket, numbers in sorted(members.items())
        ]
        return {"unit": self.unit, "buckets": buckets}

    def _bounds(self, bucket: int) -> dict[str, int | None]:
        """Returns the smallest and largest value of a bucket; `None` where it has no values or no end."""
        if bucket < 0:
            return {"from": None, "to": None}
        return {"from": self.lows[bucket], "to": self.lows[bucket + 1] - 1 if bucket + 1 < len(self.lows) else None}


def grouped(
    kind: str,
    reader: Tokenizer,
    task: "Task[Any]",
    data: Dataset[Any],
    split: str,
    training: Callable[[], Dataset[Any]],
) -> Buckets:
    """Returns the examples of a split in buckets.

    - `"length"`: the number of words of the source. Buckets have one width, the smallest of 1, 2, 5, 10, 20, 50, …
      for which 95 % of the examples are in the first seven. The eighth contains all longer ones.
    - `"frequency"`: how often the rarest word of the source occurs in the sources of the training split: never, 1 to 2
      times, 3 to 9, 10 to 29, 30 to 99, 100 to 299, 300 to 999, or more.

    Args:
        kind: See `KINDS`.
        reader: The tokenizer of the model's input.
        task: The task of the data.
        data: The data.
        split: The split to group.
        training: Returns the model's training data.

    Raises:
        InputError: If the data are a continuous text, which has no examples.
    """
    if isinstance(data, TextData) and data.joined:
        raise InputError(f"--by requires separate texts; the lines of {data.spec} form one continuous text.")
    sources = [_words(text, reader) for text in task.sources(data.split(split))]
    unit = "characters" if reader.kind == "chars" else "words"
    if kind == "length":
        lengths = [len(words) for words in sources]
        return Buckets(kind, unit, lengths, _equally_wide(lengths))
    occurrences = Counter(word for text in task.sources(training().split("train")) for word in _words(text, reader))
    rarest = [min((occurrences[word] for word in words), default=None) for words in sources]
    return Buckets(kind, unit, rarest, _FREQUENCIES)


def _words(text: str, reader: Tokenizer) -> list[str]:
    if reader.kind == "chars":
        return list(text.lower() if reader.lowercase else text)
    return [word for part in text.lower().split() if (word := _without_punctuation(part))]


def _without_punctuation(word: str) -> str:
    """Returns a word without the punctuation and symbols (Unicode categories P and S) at its ends."""
    inside = [number for number, character in enumerate(word) if unicodedata.category(character)[0] not in "PS"]
    return word[inside[0] : inside[-1] + 1] if inside else ""


def _equally_wide(lengths: Sequence[int]) -> list[int]:
    """Returns the smallest length of each bucket; texts without words have a bucket of their own."""
    quantile = int(np.quantile(lengths, _SHARE, method="inverted_cdf"))
    widths = (digit * 10**zeros for zeros in range(10) for digit in (1, 2, 5))
    width = next(width for width in widths if (_MOST_BUCKETS - 1) * width >= quantile)
    return [0, *range(1, min(max(lengths) + width, (_MOST_BUCKETS - 1) * width + 1) + 1, width)]


def draw(table: Table, kind: str, path: Path) -> None:
    """Draws the main metrics of a table, a panel for each; on failure, writes the reason to standard error."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is None:
            raise
        print(f"no picture {path}: {missing}", file=sys.stderr)
        return
    buckets = table["buckets"]
    names = [name for name in _DRAWN if name in buckets[0]]
    figure = Figure(figsize=(2.2 + 0.7 * len(buckets), 0.6 + 1.7 * len(names)), layout="constrained")
    ticks = range(len(buckets))
    panels = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
    for name, panel in zip(names, panels, strict=True):
        panel.bar(ticks, [bucket[name] for bucket in buckets], width=0.8, color="tab:blue")
        panel.set_ylabel(_DRAWN[name])
        panel.grid(axis="y", alpha=0.3)
        panel.set_axisbelow(True)
    panels[-1].set_xticks(ticks, [f"{_label(bucket)}\nn = {bucket['examples']:,}" for bucket in buckets], fontsize=8)
    panels[-1].set_xlabel(_TITLES[kind].format(unit=table["unit"]))
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150)
    except OSError as error:
        print(f"no picture {path}: {error.strerror}", file=sys.stderr)


def _label(bucket: Mapping[str, Any]) -> str:
    first, last = bucket["from"], bucket["to"]
    if first is None:
        return "none"
    if last is None:
        return f"{first:,} or more"
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"
