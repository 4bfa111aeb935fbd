"""Selects the target tokens that are likely in the translations of a batch, from a table of likely translations."""

import dataclasses
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from keras import ops

from zoo.errors import InputError
from zoo.row_selection import take
from zoo.vocabulary import SPECIAL_PIECES
from zoo.workdir import WorkDir

FILE = "shortlist.npz"
_ARRAYS = {"translations": 2, "rank": 1, "always": 0}
"""The arrays in the file and their numbers of axes."""


def check_readout(model: Any) -> None:
    """Raises an `InputError` if a `Seq2SeqModel` cannot compute the logits of selected tokens only."""
    model.readout(np.arange(len(SPECIAL_PIECES), dtype="int32"))


@dataclass(frozen=True)
class Shortlist:
    """The likely translations of each source token, and the target tokens that are frequent in all translations.

    For each batch, C target tokens are chosen: first those in every shortlist, then the most likely translation of each
    source token, then the second most likely ones and so on, and finally the most frequent others. Among tokens of
    equal priority, the more frequent come first.

    Args:
        translations: The likely translations of each source token, most likely first, then padding, int32 [V_s, K].
        rank: The rank of each target token, int32 [V_t]: special tokens come first in their order, then all others by
            decreasing frequency.
        always: How many of the first ranks are in every shortlist, at least the special tokens.

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
            source_size: Number of source tokens, V_s.
            target_size: Number of target tokens, V_t.

        Raises:
            InputError: If it is missing or damaged, or has other vocabularies.
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
            raise InputError(f"{path} is not a shortlist: {error}.") from None
        if any(array.dtype != np.int32 or array.ndim != _ARRAYS[name] for name, array in arrays.items()):
            raise InputError(f"{path} is not a shortlist: its arrays have wrong types or shapes.")
        sizes = (len(arrays["translations"]), len(arrays["rank"]))
        if sizes != (source_size, target_size):
            raise InputError(
                f"{path} is for vocabularies of {sizes[0]:,} and {sizes[1]:,} tokens; the model has "
                f"{source_size:,} and {target_size:,}. Write it again."
            )
        shortlist = cls(arrays["translations"], arrays["rank"], int(arrays["always"]))
        if not shortlist._is_sound():
            raise InputError(f"{path} is not a shortlist: it contains unknown tokens, or lacks some.")
        return shortlist

    def _is_sound(self) -> bool:
        special, size = len(SPECIAL_PIECES), len(self.rank)
        in_range = self.translations.size == 0 or (self.translations.min() >= 0 and self.translations.max() < size)
        ordered = np.array_equal(np.sort(self.rank), np.arange(size))
        special_first = np.array_equal(self.rank[:special], np.arange(special))
        return bool(in_range and ordered and special_first and special <= self.always <= size)

    def save(self, workdir: WorkDir) -> Path:
        """Writes the shortlist into a work directory and returns its path."""
        path = workdir.path / FILE
        with workdir.replacing(path) as temporary:
            arrays: dict[str, Any] = {name: np.asarray(getattr(self, name), np.int32) for name in _ARRAYS}
            np.savez_compressed(temporary, **arrays)
        return path

    def stored(self, store: Callable[[Any], Any]) -> Self:
        """Returns a shortlist with the tables that `store` returns, such as variables of a graph."""
        return dataclasses.replace(self, translations=store(self.translations), rank=store(self.rank))

    def candidates(self, source: Any, size: int) -> Any:
        """Returns the distinct target tokens for a batch, in ascending order; they begin with the special tokens.

        Args:
            source: Source ids, int32 [B, S].
            size: Number of tokens, C; at least the special tokens and at most all.

        Returns:
            int32 [C].
        """
        total, width = self.rank.shape[0], self.translations.shape[1]
        rank = ops.convert_to_tensor(self.rank)
        priority = ops.where(rank < self.always, width + 1, 0)
        if width:
            likely = ops.reshape(take(self.translations, ops.reshape(source, (-1,)), axis=0), (-1,))
            # The priority of padding does not matter, because padding is in every shortlist.
            counts = ops.tile(ops.arange(width, 0, -1, dtype="int32"), (ops.size(source),))
            # All tokens are appended, so that each has a value.
            tokens = ops.concatenate([likely, ops.arange(total, dtype="int32")])
            priority = ops.segment_max(ops.concatenate([counts, priority]), tokens, num_segments=total)
        _, chosen = ops.top_k(priority * total - rank, size)
        return ops.sort(ops.cast(chosen, "int32"))
