"""A trained classifier."""

import os
from collections.abc import Sequence

import keras
import numpy as np

from zoo.errors import InputError
from zoo.explorer import View
from zoo.inference.answers import Answer
from zoo.inference.exploring import attention_of, notes_on_length
from zoo.inference.text_encoder_run import TextEncoderRun
from zoo.workdir import WorkDir

MAX_TEXT_LENGTH = 512
"""Maximum number of tokens of a text, including the end; longer texts are cut."""


class ClassifierRun(TextEncoderRun):
    """A work directory of a classifier: strings in, labels out.

    Attributes:
        tokenizers: The `text` tokenizer.
        classes: The labels, in the order of the model's outputs.

    Args:
        path: See `Run`.

    Raises:
        InputError: See `Run`; or if the configuration contains no classes.
    """

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(path)
        data = self.config.get("data")
        classes = data.get("classes") if isinstance(data, dict) else None
        if not isinstance(classes, list):
            raise InputError(
                f"{WorkDir(path).config} is not the configuration of a trained classifier: it has no data.classes."
            )
        self.classes: list[str] = classes

    @property
    def text_length(self) -> int:
        return MAX_TEXT_LENGTH

    def classify(self, texts: Sequence[str], batch_size: int = 64) -> list[Answer]:
        """Returns label and probabilities of each text.

        Args:
            texts: The texts.
            batch_size: Texts in a batch.

        Raises:
            InputError: If `texts` is one string, or an option is out of range.
        """
        classifier = self._predictor("classify", lambda: self.model)
        logits = self._predict(classifier, self.ids(texts), batch_size, lambda _, batch: {"tokens": batch})
        if not logits:
            return []
        probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(np.stack(logits)))
        return [Answer(self.classes[row.argmax()], row, self.classes) for row in probabilities]

    def _view(self, text: str) -> View:
        (ids,), (answer,) = self.ids([text]), self.classify([text])
        order = np.argsort(-answer.probabilities, kind="stable")
        return View(
            "classifier",
            self.spec.name,
            text,
            self.reader.pieces(ids),
            attention_of(self.model.attentions, ids),
            classes=[(self.classes[index], float(answer.probabilities[index])) for index in order],
            notes=notes_on_length(self.reader, text, len(ids) - 1),
        )
