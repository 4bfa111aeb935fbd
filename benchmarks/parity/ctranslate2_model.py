"""Log probabilities and texts of models of CTranslate2."""

from collections.abc import Sequence

import ctranslate2
import numpy as np

from benchmarks.parity.reference import Rows


class CTranslate2:
    """A model of CTranslate2; ids are indices of its vocabularies.

    Args:
        folder: The folder of the model.
        source: Tokens of the source vocabulary.
        target: Tokens of the target vocabulary.
        max_length: The largest number of tokens of a translation.
    """

    def __init__(self, folder: str, source: Sequence[str], target: Sequence[str], max_length: int):
        self._translator = ctranslate2.Translator(folder, compute_type="float32", inter_threads=1, intra_threads=1)
        self._source, self._target, self._max_length = source, target, max_length
        self._ids = {token: index for index, token in enumerate(target)}

    def logits(self, sources: Rows, targets: Rows) -> list[np.ndarray]:
        """Returns the log probabilities [T + 1] of each target, that of the end last."""
        pairs = zip(self._tokens(self._source, sources), self._tokens(self._target, targets), strict=True)
        return [np.array(self._translator.score_batch([source], [target])[0].log_probs) for source, target in pairs]

    def write(self, rows: Rows, beams: int) -> list[list[int]]:
        """Returns the translation of each row."""
        results = self._translator.translate_batch(
            self._tokens(self._source, rows), beam_size=beams, max_decoding_length=self._max_length
        )
        return [[self._ids[token] for token in result.hypotheses[0]] for result in results]

    @staticmethod
    def _tokens(vocabulary: Sequence[str], rows: Rows) -> list[list[str]]:
        return [[vocabulary[i] for i in row] for row in rows]
