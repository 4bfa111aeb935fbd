"""Base classes of datasets: named splits that are made when first used."""

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
        """Returns the examples with some indices."""
        numbers = list(numbers)
        columns = [getattr(self, column.name) for column in dataclasses.fields(self)]
        return type(self)(*([column[number] for number in numbers] for column in columns))


SplitType = TypeVar("SplitType", bound=Split)


@dataclass(frozen=True)
class Pairs(Split):
    """Sentences and their counterparts, line by line.

    Attributes:
        source: Inputs of the model.
        target: Its expected outputs.
    """

    source: list[str]
    target: list[str]


@dataclass(frozen=True)
class Labelled(Split):
    """Texts and the label of each.

    Attributes:
        texts: Inputs of the model.
        labels: The class of each text.
    """

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class Texts(Split):
    """Plain text.

    Attributes:
        texts: Separate documents, or the lines of one continuous text; see `TextData.joined`.
    """

    texts: list[str]


@dataclass(frozen=True, kw_only=True)
class Dataset(Generic[SplitType]):
    """A dataset whose splits are made when first used.

    Attributes:
        spec: The data SPEC that it was opened by.
        tokenizer: The default kind of tokenizer: `"chars"`, `"subword"` or `"words"`.
        load_split: Makes the split with a name; called at most once for each.
        splits: Names of its splits; `"test"` may be missing.
        checked: Names of the splits that are read before training begins, so that a bad line is reported before hours
            of training. A missing split is skipped.
        line_files: Returns the files of a split, by column, if their lines are its examples, so that they can be read
            piece by piece.
        pieces: Yields the examples of a split in pieces that are made lazily, for other data that can be read piece by
            piece.
        shards: The token shards of its examples, if `training.prepare` wrote them.
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
            InputError: The name is invalid, the split is missing, or its data are bad.
        """
        check_split(name)
        if name not in self.splits:
            raise InputError(f"The data {self.spec!r} have no {name} split; they have {' and '.join(self.splits)}.")
        if name not in self._made:
            self._made[name] = self.load_split(name)
        return self._made[name]


def check_split(name: str) -> None:
    """Raises InputError, with close names, if a name is not one of `SPLITS`."""
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
    """A dataset of texts to be classified. The training split has all labels of the others.

    Attributes:
        parts: Names of its parts, whose metrics are also reported separately; empty for most data.
        part_sizes: Returns the number of texts of each part in a split; the parts are consecutive.
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
        joined: Whether the texts of a split are the lines of one continuous text, without their `"\n"`, or separate
            documents.
        prompt_end: The end of the part of a document that can be a prompt, such as `"="` for sums; `""` if documents
            have no prompts.
    """

    joined: bool
    prompt_end: str = ""
    task = "language_model"
