"""The few target symbols among which a batch of sources is translated, by a table of likely translations."""

import dataclasses
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from keras import ops

from zoo.errors import InputError
from zoo.vocabulary import SPECIAL_PIECES
from zoo.workdir import WorkDir

FILE = "shortlist.npz"
_ARRAYS = {"translations": 2, "rank": 1, "always": 0}
"""What the file holds, and how many axes each array has."""


def check_readout(model: Any) -> None:
    """Raises an `InputError` if a `Seq2SeqModel` cannot give the logits of some symbols alone."""
    model.readout(np.arange(len(SPECIAL_PIECES), dtype="int32"))


@dataclass(frozen=True)
class Shortlist:
    """For each source symbol its likely translations, and which target symbols are likely anyway.

    Of each batch, C target symbols are chosen: first those that are always among them, then the most likely translation
    of each source symbol, then the second ones and so on, and where there is room left, the most frequent others. Of
    equally urgent ones the more frequent come first.

    Args:
        translations: Target symbols that each source symbol is translated by, most likely first, then padding,
            int32 [V_s, K].
        rank: The place of each target symbol, int32 [V_t]: the special ones come first in their order, and then the
            others, the most frequent first.
        always: How many of the first are in every shortlist: the special ones at least.

    Reference:
        Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation", section 3.3,
        https://arxiv.org/abs/1412.2007;
        L'Hostis et al. 2016, "Vocabulary Selection Strategies for Neural Machine Translation", section 3,
        https://arxiv.org/abs/1610.00072
    """

    translations: Any
    rank: Any
    always: int

    @classmethod
    def load(cls, workdir: WorkDir, source_size: int, target_size: int) -> Self:
        """Reads the shortlist of a work directory.

        Args:
            workdir: The work directory.
            source_size: Number of source symbols, V_s.
            target_size: Number of target symbols, V_t.

        Raises:
            InputError: If there is none, or it is damaged or of other vocabularies.
        """
        path = workdir.path / FILE
        if not path.is_file():
            raise InputError(
                f"{workdir.path} has no {FILE}, which `python -m training.shortlist {workdir.path}` writes."
            )
        workdir.check(FILE)
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in _ARRAYS}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{path} is no shortlist: {error}.") from None
        if any(array.dtype != np.int32 or array.ndim != _ARRAYS[name] for name, array in arrays.items()):
            raise InputError(f"{path} is no shortlist: its arrays are of other types or shapes.")
        sizes = (len(arrays["translations"]), len(arrays["rank"]))
        if sizes != (source_size, target_size):
            raise InputError(
                f"{path} is of vocabularies of {sizes[0]:,} and {sizes[1]:,} symbols, and the model has "
                f"{source_size:,} and {target_size:,}. Write it again."
            )
        shortlist = cls(arrays["translations"], arrays["rank"], int(arrays["always"]))
        if not shortlist._is_sound():
            raise InputError(f"{path} is no shortlist: it names symbols that there are not, or lacks some.")
        return shortlist

    def _is_sound(self) -> bool:
        special, size = len(SPECIAL_PIECES), len(self.rank)
        known = self.translations.size == 0 or (self.translations.min() >= 0 and self.translations.max() < size)
        ordered = np.array_equal(np.sort(self.rank), np.arange(size))
        special_first = np.array_equal(self.rank[:special], np.arange(special))
        return bool(known and ordered and special_first and special <= self.always <= size)

    def save(self, workdir: WorkDir) -> Path:
        """Writes the shortlist into a work directory and returns its path."""
        path = workdir.path / FILE
        with workdir.replacing(path) as temporary:
            arrays: dict[str, Any] = {name: np.asarray(getattr(self, name), np.int32) for name in _ARRAYS}
            np.savez_compressed(temporary, **arrays)
        return path

    def stored(self, store: Callable[[Any], Any]) -> Self:
        """Returns the shortlist with its tables as `store` returns them, such as in variables of a graph."""
        return dataclasses.replace(self, translations=store(self.translations), rank=store(self.rank))

    def candidates(self, source: Any, size: int) -> Any:
        """Returns the target symbols for a batch, in rising order; they begin with the special symbols.

        Args:
            source: Source ids, int32 [B, S].
            size: How many symbols, C; at least the special ones and at most all.

        Returns:
            int32 [C], no symbol twice.
        """
        total, width = self.rank.shape[0], self.translations.shape[1]
        rank = ops.convert_to_tensor(self.rank)
        urgency = ops.where(rank < self.always, width + 1, 0)
        if width:
            found = ops.reshape(ops.take(self.translations, ops.reshape(source, (-1,)), axis=0), (-1,))
            # Padding is always in the shortlist, whatever it counts here.
            counts = ops.tile(ops.arange(width, 0, -1, dtype="int32"), (ops.size(source),))
            # With one more for each symbol, none is without a value.
            symbols = ops.concatenate([found, ops.arange(total, dtype="int32")])
            urgency = ops.segment_max(ops.concatenate([counts, urgency]), symbols, num_segments=total)
        _, chosen = ops.top_k(urgency * total - rank, size)
        return ops.sort(ops.cast(chosen, "int32"))
