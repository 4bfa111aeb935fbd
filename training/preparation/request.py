"""The options and the request of a preparation."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from zoo.options import Options, choice, count, flag, number, size

SAVED_NAMES = {"min_tokens": "min_symbols", "max_tokens": "max_symbols"}
"""The names of options in the files of a preparation; the command accepts them, too."""


@dataclass(frozen=True, kw_only=True)
class PreparationOptions(Options):
    """Options of the encoding of a corpus into token shards."""

    shards: int = count(0, "Number of shards of the training split; 0 for one per 250,000 examples.")
    min_tokens: int = size(
        1, "Leave out training examples with fewer tokens than this on a side; the end counts as one."
    )
    max_tokens: int = count(
        0, "Leave out training examples with more tokens than this on a side, the end included; 0 for no limit."
    )
    max_ratio: float = number(
        0.0,
        "Leave out training pairs with a larger ratio of the longer to the shorter side, in tokens; 0 for no limit.",
        minimum=0,
    )
    duplicates: str = choice(
        "keep", ("keep", "drop"), "What to do with training examples that are equal to an earlier one, byte for byte."
    )
    empty: str = choice(
        "error",
        ("error", "drop"),
        "What to do with training pairs of `text:` that have a blank side; by default it is an error.",
    )
    invalid: str = choice(
        "error",
        ("error", "skip"),
        "What to do with lines of training text that are not UTF-8, in `text:` and `lines:`; `skipped.txt` lists "
        "skipped lines.",
    )
    keep_texts: bool = flag(
        False, "Also save the texts of the training split, not only the ids; those of the other splits always are."
    )
    sample: int = size(200_000, "Training examples, drawn at random, that the vocabulary is learned from.")
    seed: int = count(0, "Seed of the sample.")

    @property
    def leaves_out(self) -> bool:
        """Whether training examples may be left out."""
        return (
            self.min_tokens > 1
            or self.max_tokens > 0
            or self.max_ratio > 0
            or "drop" in (self.duplicates, self.empty)
            or self.invalid == "skip"
        )

    def to_saved(self) -> dict[str, Any]:
        """Returns the options by their names in files."""
        return {SAVED_NAMES.get(name, name): value for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_saved(cls, values: Mapping[str, Any]) -> Self:
        """Returns the options from the result of `to_saved`."""
        names = {SAVED_NAMES.get(name, name): name for name in cls.declared()}
        return cls(**{names[saved]: value for saved, value in values.items()})


@dataclass(frozen=True)
class PreparationRequest:
    """The request of a preparation; equal requests write the same files, bit for bit.

    Attributes:
        spec: The data.
        settings: Requested settings of `data.`, in their types.
        options: The options.
    """

    spec: str
    settings: dict[str, Any]
    options: PreparationOptions

    def to_dict(self) -> dict[str, Any]:
        """Returns the request as a dictionary for JSON."""
        return {"spec": self.spec, "settings": self.settings, "options": self.options.to_saved()}
