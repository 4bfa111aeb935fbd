"""What every dataset offers, whatever its SPEC: named splits that are made when first asked for."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, Self, TypeVar

from zoo.errors import InputError, unknown_name

if TYPE_CHECKING:
    from training.data.shards.store import TokenShards

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Split:
    """The examples of one split: lists of equal length, in which item n belongs to example n."""

    def __len__(self) -> int:
        """Returns the number of examples."""
        return len(getattr(self, dataclasses.fields(self)[0].name))

    def take(self, numbers: Iterable[int]) -> Self:
        """Returns the examples of some numbers, counted from 0."""
        numbers = list(numbers)
        columns = [getattr(self, column.name) for column in dataclasses.fields(self)]
        return type(self)(*([column[number] for number in numbers] for column in columns))


SplitType = TypeVar("SplitType", bound=Split)


@dataclass(frozen=True)
class Pairs(Split):
    """Sentences and their counterparts, line by line.

    Attributes:
        source: What the model reads.
        target: What it should write.
    """

    source: list[str]
    target: list[str]


@dataclass(frozen=True)
class Labelled(Split):
    """Texts and the label of each.

    Attributes:
        texts: What the model reads.
        labels: The class of each text.
    """

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class Texts(Split):
    """Plain text.

    Attributes:
        texts: Separate documents, or the lines of one running text; see `TextData.joined`.
    """

    texts: list[str]


@dataclass(frozen=True, kw_only=True)
class Dataset(Generic[SplitType]):
    """A dataset whose splits are made when first asked for.

    Attributes:
        spec: The data SPEC it came from.
        tokenizer: The kind of tokenizer that suits it: `"chars"`, `"subword"` or `"words"`.
        load_split: Makes the split of a given name; called at most once for each.
        splits: Names of its splits; `"test"` may be missing.
        checked: Names of the splits that are read before training begins, so that a bad line in them is not found only
            after hours of training. A missing one is skipped.
        line_files: Returns the files of a split whose lines are its examples, by column, for data that are such files:
            those can be read piece by piece.
        pieces: Yields the examples of a split in pieces that are each made when they are asked for, for other data that
            can be read so.
        shards: Where its examples are kept as ids, if `training.prepare` wrote them.
        task: `"seq2seq"`, `"classifier"` or `"language_model"`.
    """

    spec: str
    tokenizer: Literal["chars", "subword", "words"]
    load_split: Callable[[str], SplitType] = field(repr=False, compare=False)
    splits: tuple[str, ...] = SPLITS
    checked: tuple[str, ...] = SPLITS
    line_files: Callable[[str], dict[str, Path]] | None = field(default=None, repr=False, compare=False)
    pieces: Callable[[str], Iterator[SplitType]] | None = field(default=None, repr=False, compare=False)
    shards: "TokenShards | None" = field(default=None, repr=False, compare=False)
    task: ClassVar[str]
    _made: dict[str, SplitType] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self) -> None:
        """Reads the splits in `checked`; raises InputError if the data of one of them are bad."""
        for name in self.checked:
            if name in self.splits:
                self.split(name)

    def split(self, name: str) -> SplitType:
        """Returns the examples of one split; the same object at every call.

        Raises:
            InputError: The name is another, there is no such split, or its data are bad.
        """
        check_split(name)
        if name not in self.splits:
            raise InputError(f"The data {self.spec!r} have no {name} split; they have {' and '.join(self.splits)}.")
        if name not in self._made:
            self._made[name] = self.load_split(name)
        return self._made[name]


def check_split(name: str) -> None:
    """Checks that a name is one of `SPLITS`; raises InputError, with the close ones, if it is not."""
    if name not in SPLITS:
        raise unknown_name("split", name, SPLITS)


@dataclass(frozen=True, kw_only=True)
class ParallelData(Dataset[Pairs]):
    """A sequence-to-sequence dataset.

    Attributes:
        shared_vocabulary: Whether source and target use one tokenizer by default.
    """

    shared_vocabulary: bool
    task = "seq2seq"


@dataclass(frozen=True, kw_only=True)
class LabelledData(Dataset[Labelled]):
    """A dataset of texts to be classified. No split has a label that training lacks.

    Attributes:
        parts: Names of the parts that it consists of, whose metrics are reported apart as well; empty for most data.
        part_sizes: Returns how many texts of a split are of each part; they come one part after the other.
    """

    parts: tuple[str, ...] = ()
    part_sizes: Callable[[str], list[int]] = field(default=lambda split: [], repr=False, compare=False)
    task = "classifier"

    @property
    def classes(self) -> list[str]:
        """The labels of the training split in alphabetical order."""
        if self.shards is not None:
            return list(self.shards.manifest.classes)
        return sorted(set(self.split("train").labels))


@dataclass(frozen=True, kw_only=True)
class TextData(Dataset[Texts]):
    r"""A dataset of plain text.

    Attributes:
        joined: Whether the texts of a split are the lines of one running text, without their `"\n"`, or separate
            documents.
        prompt_end: What ends the part of a document that can be given as a prompt, such as `"="` for sums; `""` where
            no answer is expected.
    """

    joined: bool
    prompt_end: str = ""
    task = "language_model"
