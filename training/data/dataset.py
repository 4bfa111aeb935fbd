"""What every dataset offers, whatever its SPEC: named splits that are made when first asked for."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, Protocol, Self, TypeVar

from zoo.errors import InputError, unknown_name

SPLITS = ("train", "val", "test")


class Split(Protocol):
    """The examples of one split."""

    def __len__(self) -> int:
        """Returns the number of examples."""

    def take(self, numbers: Iterable[int]) -> Self:
        """Returns some of the examples.

        Args:
            numbers: Which ones, counted from 0.
        """


SplitType = TypeVar("SplitType", bound=Split)


@dataclass(frozen=True)
class Pairs:
    """Sentences and their counterparts, line by line.

    Attributes:
        source: What the model reads.
        target: What it should write; as long as `source`.
    """

    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        """Returns the number of pairs."""
        return len(self.source)

    def take(self, numbers: Iterable[int]) -> "Pairs":
        """See `Split`."""
        numbers = list(numbers)
        return Pairs([self.source[number] for number in numbers], [self.target[number] for number in numbers])


@dataclass(frozen=True)
class Labelled:
    """Texts and the label of each.

    Attributes:
        texts: What the model reads.
        labels: The class of each text; as long as `texts`.
    """

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        """Returns the number of texts."""
        return len(self.texts)

    def take(self, numbers: Iterable[int]) -> "Labelled":
        """See `Split`."""
        numbers = list(numbers)
        return Labelled([self.texts[number] for number in numbers], [self.labels[number] for number in numbers])


@dataclass(frozen=True)
class Texts:
    """Plain text.

    Attributes:
        texts: Separate documents, or the lines of one running text; see `TextData.joined`.
    """

    texts: list[str]

    def __len__(self) -> int:
        """Returns the number of texts."""
        return len(self.texts)

    def take(self, numbers: Iterable[int]) -> "Texts":
        """See `Split`."""
        return Texts([self.texts[number] for number in numbers])


@dataclass(frozen=True, kw_only=True)
class Dataset(Generic[SplitType]):
    """A dataset whose splits are made when first asked for.

    Attributes:
        spec: The data SPEC it came from.
        tokenizer: The kind of tokenizer that suits it: `"chars"`, `"subword"` or `"words"`.
        load_split: Makes the split of a given name; called at most once for each.
        splits: Names of the splits there are; `"test"` may be missing.
        checked: Names of the splits that are read before training begins, so that a bad line in them is not found out
            behind the hours that it takes. A missing one is passed over.
        task: `"seq2seq"`, `"classifier"` or `"language_model"`.
    """

    spec: str
    tokenizer: Literal["chars", "subword", "words"]
    load_split: Callable[[str], SplitType] = field(repr=False, compare=False)
    splits: tuple[str, ...] = SPLITS
    checked: tuple[str, ...] = SPLITS
    task: ClassVar[str]
    _made: dict[str, SplitType] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self) -> None:
        """Reads the splits that are to be read before training begins.

        Raises:
            InputError: The data behind one of them is bad.
        """
        for name in self.checked:
            if name in self.splits:
                self.split(name)

    def split(self, name: str) -> SplitType:
        """Returns the examples of one split; the same object at every call.

        Args:
            name: `"train"`, `"val"` or `"test"`.

        Raises:
            InputError: The name is another, there is no such split, or the data behind it is bad.
        """
        if name not in SPLITS:
            raise unknown_name("split", name, SPLITS)
        if name not in self.splits:
            raise InputError(f"The data {self.spec!r} have no {name} split; they have {' and '.join(self.splits)}.")
        if name not in self._made:
            self._made[name] = self.load_split(name)
        return self._made[name]


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
    """A dataset of texts to be classified. No split has a label that training lacks."""

    task = "classifier"

    @property
    def classes(self) -> list[str]:
        """The labels of the training split in alphabetical order."""
        return sorted(set(self.split("train").labels))


@dataclass(frozen=True, kw_only=True)
class TextData(Dataset[Texts]):
    r"""A dataset of plain text.

    Attributes:
        joined: Whether the texts of a split are the lines of one running text, without their `"\n"`, or separate
            documents.
        prompt_end: What ends the part of a document that can be given as a prompt, such as `"="` for sums; `""` where
            no answer is to be expected.
    """

    joined: bool
    prompt_end: str = ""
    task = "language_model"
