"""The parts of the explorer's `View` that runs of all tasks share."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from zoo.explorer import AnswerView, Attention
from zoo.inference.predictions import Prediction
from zoo.text import Tokenizer

CUT = "Only the first {count} tokens of this text are shown: the model reads no more at once."
"""The note in the view of a text that is too long."""


def notes_on_length(reader: Tokenizer, text: str, count: int) -> list[str]:
    """Returns a note if a text has more tokens than the `count` that are shown."""
    (tokens,) = reader.encode([text])
    return [CUT.format(count=count)] if len(tokens) > count else []


def answer_view(
    text: str,
    log_prob: float,
    number: int | None,
    before: Sequence[str],
    predictions: Sequence[Prediction],
    attention: dict[str, Attention],
    prompt_length: int = 0,
) -> AnswerView:
    """Returns the view of a text that a model wrote; see `AnswerView`."""
    return AnswerView(
        text,
        log_prob,
        number,
        [prediction.token for prediction in predictions],
        before,
        [prediction.log_prob for prediction in predictions],
        [prediction.alternatives for prediction in predictions],
        attention,
        prompt_length,
    )


def attention_of(attentions: Any, *rows: list[int]) -> dict[str, Attention]:
    """Returns each kind of attention of a model, from its `attentions` and one row of ids for each of its inputs."""
    weights = attentions(*(np.array([row], "int32") for row in rows))
    arrays = {kind: keras.ops.convert_to_numpy(values)[0] for kind, values in weights.items()}
    return {kind: Attention(list(layers.astype(np.float32))) for kind, layers in arrays.items()}
