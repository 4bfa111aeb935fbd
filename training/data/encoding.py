"""Encodes examples as rows of ids, both of a corpus in memory and for token shards. Without Keras."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from training.data.dataset import Dataset, Labelled, Pairs, Split, Texts
from training.data.order import ByLength
from training.data.shards.rows import Rows
from zoo.errors import InputError, unknown_name
from zoo.text import Tokenizer
from zoo.vocabulary import END

Columns = dict[str, list[list[int]]]
"""Rows of ids by the name of their column; row n of each belongs to example n."""


@dataclass(frozen=True)
class EncodedSplit:
    """The examples of a split as rows of ids.

    Attributes:
        columns: The rows by name: `source` and `target`, or `text`, each with its end, those of labelled texts as
            `Tokenizer.whole`; and `label`, a class as its number.
        corpus: The examples in the order of their lengths, if token shards contain them.
    """

    columns: Mapping[str, Rows]
    corpus: ByLength | None = None


@dataclass(frozen=True)
class Encoder:
    """Encodes examples as rows of ids.

    Attributes:
        tokenizers: The tokenizers by the name of their column.
        classes: The labels, in the order of their numbers from 0.
        line_break: Whether each text is a line of one continuous text of characters, and ends in a line break instead
            of the end token.
        where: The origin of the examples, for messages.
    """

    tokenizers: Mapping[str, Tokenizer]
    classes: Sequence[str] = ()
    line_break: bool = False
    where: str = field(default="", compare=False)

    def __call__(self, examples: Split) -> Columns:
        """Returns the rows of some examples; raises InputError for a label that is not among the classes."""
        if isinstance(examples, Pairs):
            return {"source": self._whole("source", examples.source), "target": self._whole("target", examples.target)}
        if isinstance(examples, Labelled):
            numbers = class_numbers(examples.labels, self.classes, self.where)
            return {"text": self._whole("text", examples.texts), "label": [[number] for number in numbers]}
        assert isinstance(examples, Texts)
        return {"text": self._running(self.tokenizers["text"], examples.texts)}

    def _whole(self, name: str, texts: Sequence[str]) -> list[list[int]]:
        tokenizer = self.tokenizers[name]
        return [tokenizer.whole(row) for row in tokenizer.encode(texts)]

    def _running(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        end = tokenizer.encode(["\n"])[0] if self.line_break else [END]
        rows = tokenizer.encode(texts)
        for row in rows:
            row += end
        return rows


def encoder_of(data: Dataset[Any], tokenizers: Mapping[str, Tokenizer], classes: Sequence[str], where: str) -> Encoder:
    """Returns the encoder of a dataset's examples."""
    joined = getattr(data, "joined", False)
    return Encoder(tokenizers, classes, joined and tokenizers["text"].kind == "chars", where)


def class_numbers(labels: Sequence[str], classes: Sequence[str], where: str) -> list[int]:
    """Returns the class of each label as a number; raises InputError, with `where`, for an unknown label."""
    number = {name: index for index, name in enumerate(classes)}
    for label in labels:
        if label not in number:
            raise InputError(f"{where}: {unknown_name('label', label, classes)} The model lacks it.")
    return [number[label] for label in labels]


def encode_split(
    data: Dataset[Any], split: str, tokenizers: Mapping[str, Tokenizer], classes: Sequence[str] = ()
) -> EncodedSplit:
    """Returns a split as rows of ids, from token shards if the data have them, else encoded.

    Raises:
        InputError: For a label that is not among the classes, damaged shards, or shards of other tokenizers without
            texts.
    """
    if data.shards is not None and data.shards.fit(tokenizers, classes):
        return EncodedSplit(data.shards.columns(split), data.shards.by_length(split))
    encode = encoder_of(data, tokenizers, classes, f"{data.spec}, {split}")
    return EncodedSplit({name: Rows.of(rows) for name, rows in encode(data.split(split)).items()})
