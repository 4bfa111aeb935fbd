"""A sentence encoder."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.errors import InputError
from zoo.explorer import View
from zoo.inference.text_encoder_run import TextEncoderRun


class SentenceEncoderRun(TextEncoderRun):
    """A work directory of a sentence encoder: strings in, vectors out.

    Attributes:
        tokenizers: The `text` tokenizer.

    Args:
        path: See `Run`.

    Raises:
        InputError: See `Run`.
    """

    @property
    def text_length(self) -> int:
        return int(self.model.text_length)

    def embed_text(self, texts: Sequence[str], batch_size: int = 64) -> np.ndarray:
        """Returns a vector for each text.

        Args:
            texts: The texts.
            batch_size: Texts in a batch.

        Returns:
            Vectors float32 [n, D]; if they have length 1, `vectors @ vectors.T` are their cosines.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        encoder = self._predictor("embed_text", lambda: self.model)
        vectors = self._predict(encoder, self.ids(texts), batch_size, lambda _, batch: {"tokens": batch})
        return np.stack(vectors) if vectors else np.zeros((0, self.model.vector_dim), "float32")

    def _view(self, text: str, **options: Any) -> View:
        raise InputError(f"The explorer does not support sentence encoders such as {self.spec.name}: use `attention`.")
