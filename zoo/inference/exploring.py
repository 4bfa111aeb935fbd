"""The explorer's `View` of each text of a run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from zoo.explorer import AnswerView, Attention, View
from zoo.inference.predictions import Prediction
from zoo.vocabulary import START

if TYPE_CHECKING:
    from zoo.inference.base_run import Run
    from zoo.inference.classifier_run import ClassifierRun
    from zoo.inference.language_model_run import LanguageModelRun
    from zoo.inference.seq2seq_run import Hypothesis, Seq2SeqRun

CUT = "Only the first {count} tokens of this text are shown: the model reads no more at once."
"""The note in the view of a text that is too long."""


def translation_view(run: "Seq2SeqRun", text: str, beam_size: int, **options: Any) -> View:
    """Returns the view of a text and its best translations.

    Args:
        run: The run.
        text: The source text.
        beam_size: Number of translations.
        **options: Options of decoding.
    """
    (hypotheses,), (source,) = run.nbest([text], beam_size=beam_size, **options), run.source_ids([text])
    predictions = run.predictions([text] * len(hypotheses), hypotheses)
    weights = [_weights(run.model.attentions, source, [START, *best.ids[:-1]]) for best in hypotheses]
    encoder = {kind: values for kind, values in weights[0].items() if kind == "encoder"} if weights else {}
    return View(
        "seq2seq",
        run.spec.name,
        text,
        run.reader.pieces(source),
        encoder,
        [
            _translation(run, number, *parts)
            for number, parts in enumerate(zip(hypotheses, predictions, weights, strict=True))
        ],
        notes=_notes(run, text, len(source) - 1),
    )


def _translation(
    run: "Seq2SeqRun",
    number: int,
    hypothesis: "Hypothesis",
    predictions: list[Prediction],
    weights: dict[str, Attention],
) -> AnswerView:
    kinds = {kind: values for kind, values in weights.items() if kind != "encoder"}
    before = run.tokenizers.target.pieces([START, *hypothesis.ids[:-1]])
    return _answer(hypothesis.text, hypothesis.log_prob, number, before, predictions, kinds)


def classification_view(run: "ClassifierRun", text: str) -> View:
    """Returns the view of a text and its classes.

    Args:
        run: The run.
        text: The text.
    """
    (ids,), (answer,) = run.ids([text]), run.classify([text])
    order = np.argsort(-answer.probabilities, kind="stable")
    return View(
        "classifier",
        run.spec.name,
        text,
        run.reader.pieces(ids),
        _weights(run.model.attentions, ids),
        classes=[(run.classes[index], float(answer.probabilities[index])) for index in order],
        notes=_notes(run, text, len(ids) - 1),
    )


def continuation_view(run: "LanguageModelRun", text: str, **options: Any) -> View:
    """Returns the view of a text and its continuation.

    Args:
        run: The run.
        text: The prompt.
        **options: Options of `LanguageModelRun.continuations`.
    """
    (continuation,), (prompt,) = run.continuations([text], **options), run.ids([text])
    whole = text + continuation.text
    (ids,), (predictions,) = run.ids([whole]), run.predictions([whole])
    before, weights = run.reader.pieces(ids), _weights(run.model.attentions, ids)
    length = min(len(prompt) - 1, len(ids))
    answer = _answer(continuation.text, continuation.log_prob, None, before, predictions, weights, length)
    return View("language_model", run.spec.name, text, answers=[answer], notes=_notes(run, whole, len(ids)))


def _notes(run: "Run", text: str, count: int) -> list[str]:
    """Returns a note if a text has more tokens than are shown."""
    (tokens,) = run.reader.encode([text])
    return [CUT.format(count=count)] if len(tokens) > count else []


def _answer(
    text: str,
    log_prob: float,
    number: int | None,
    before: Sequence[str],
    predictions: Sequence[Prediction],
    attention: dict[str, Attention],
    prompt_length: int = 0,
) -> AnswerView:
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


def _weights(attentions: Any, *rows: list[int]) -> dict[str, Attention]:
    """Returns each kind of attention of a model, given one row of ids for each of its inputs."""
    weights = attentions(*(np.array([row], "int32") for row in rows))
    arrays = {kind: keras.ops.convert_to_numpy(values)[0] for kind, values in weights.items()}
    return {kind: Attention(list(layers.astype(np.float32))) for kind, layers in arrays.items()}
