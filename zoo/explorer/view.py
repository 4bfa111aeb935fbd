"""What a model did with one text, as plain data: the JSON that the explorer's page reads and saves.

A view is a JSON object:

    {"format": "attention-zoo-view", "version": 1,
     "task": "seq2seq" | "classifier" | "language_model", "model": NAME, "text": TEXT,
     "tokens": [S tokens that were read],                       of a language model none: it writes all that it reads
     "attention": {"encoder": ATTENTION},                       between these tokens
     "answers": [ANSWER, …],                                    best first; of a classifier none
     "classes": [{"label": LABEL, "probability": P}, …],        of a classifier, the most probable first
     "notes": [TEXT, …]}                                        what a person should know, such as that a text was cut

    ANSWER = {"text": TEXT, "log_prob": P or null, "hypothesis": number in `nbest` or null for the default answer,
              "given": how many of its tokens were there before: the prompt of a language model,
              "tokens": [T tokens] or null if nobody has asked for this answer's inside yet,
              "before": [T tokens: what stood before each of them, the start first],
              "predictions": [{"log_prob": P, "alternatives": [[TOKEN, P], …]}, …]  one for each token, or none
              "attention": {"cross": ATTENTION, "decoder": ATTENTION}}

    ATTENTION = {"heads": N, "rows": T, "columns": S, "layers": [WEIGHTS or null if nobody has asked yet, …]}

Row t of `cross` and `decoder` is the attention that predicts `tokens[t]`: to what was read, and to `before`.
WEIGHTS are N × T × S numbers, each the weight times 65,535, rounded, as unsigned 16-bit integers, little-endian, in
base64. P of tokens and answers are natural logarithms, or null if they are not finite.
"""

import base64
import binascii
import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import InputError

FORMAT, VERSION = "attention-zoo-view", 1
TASKS = ("seq2seq", "classifier", "language_model")
_ONE = 65535  # a weight of 1

Alternatives = Sequence[tuple[str, float]]


@dataclasses.dataclass(frozen=True)
class Attention:
    """Weights of one kind of attention.

    Attributes:
        layers: For each layer float [N, T, S], or `None` where nobody has asked for it yet.
    """

    layers: Sequence[np.ndarray | None]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, rows and columns: N, T, S."""
        known = next((weights for weights in self.layers if weights is not None), None)
        if known is None or known.ndim != 3:
            raise InputError("Attention needs weights [heads, T, S] of at least one layer.")
        heads, rows, columns = known.shape
        return heads, rows, columns

    def to_json(self) -> dict[str, Any]:
        """Returns the ATTENTION of the format."""
        heads, rows, columns = self.shape
        layers = [weights if weights is None else encoded(weights) for weights in self.layers]
        return {"heads": heads, "rows": rows, "columns": columns, "layers": layers}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Attention":
        """Returns the attention that ATTENTION describes."""
        shape = value["heads"], value["rows"], value["columns"]
        return cls([layer if layer is None else _decoded(layer, shape) for layer in value["layers"]])


@dataclasses.dataclass(frozen=True)
class AnswerView:
    """One answer of a translator or a language model; see the format.

    Attributes:
        text: What it says.
        log_prob: Its log probability, `None` if that is unknown.
        hypothesis: Which of the n-best it is, `None` for the default answer.
        tokens: Its T tokens, `None` if nobody has asked yet.
        before: What stood before each of them.
        log_probs: The log probability of each token; empty if they are unknown.
        alternatives: For each token the most probable ones in its place, best first, with their log probabilities.
        attention: `Attention` by kind, `cross` and `decoder`.
        given: How many of its tokens are the prompt's.
    """

    text: str
    log_prob: float | None = None
    hypothesis: int | None = None
    tokens: Sequence[str] | None = None
    before: Sequence[str] = ()
    log_probs: Sequence[float] = ()
    alternatives: Sequence[Alternatives] = ()
    attention: Mapping[str, Attention] = dataclasses.field(default_factory=dict)
    given: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the ANSWER of the format."""
        predictions = [
            {"log_prob": _number(log_prob), "alternatives": [[token, _number(value)] for token, value in alternatives]}
            for log_prob, alternatives in zip(self.log_probs, self.alternatives, strict=True)
        ]
        return {
            "text": self.text,
            "log_prob": _number(self.log_prob),
            "hypothesis": self.hypothesis,
            "given": self.given,
            "tokens": None if self.tokens is None else list(self.tokens),
            "before": list(self.before),
            "predictions": predictions,
            "attention": {kind: attention.to_json() for kind, attention in self.attention.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "AnswerView":
        """Returns the answer that ANSWER describes."""
        predictions = value["predictions"]
        return cls(
            value["text"],
            value["log_prob"],
            value["hypothesis"],
            value["tokens"],
            value["before"],
            [prediction["log_prob"] for prediction in predictions],
            [[(token, log_prob) for token, log_prob in prediction["alternatives"]] for prediction in predictions],
            _attentions(value["attention"]),
            value["given"],
        )


@dataclasses.dataclass(frozen=True)
class View:
    """What a model did with one text; see the format.

    Attributes:
        task: `"seq2seq"`, `"classifier"` or `"language_model"`.
        model: The model's name, to be shown.
        text: The text.
        tokens: What the model read of it; empty for a language model.
        attention: `Attention` by kind, `encoder`.
        answers: Its answers, best first.
        classes: Labels and their probabilities, the most probable first.
        notes: What a person should know.
    """

    task: str
    model: str
    text: str
    tokens: Sequence[str] = ()
    attention: Mapping[str, Attention] = dataclasses.field(default_factory=dict)
    answers: Sequence[AnswerView] = ()
    classes: Sequence[tuple[str, float]] = ()
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON object of the format."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "task": self.task,
            "model": self.model,
            "text": self.text,
            "tokens": list(self.tokens),
            "attention": {kind: attention.to_json() for kind, attention in self.attention.items()},
            "answers": [answer.to_json() for answer in self.answers],
            "classes": [{"label": label, "probability": _number(probability)} for label, probability in self.classes],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, value: Any) -> "View":
        """Returns the view that a JSON object describes.

        Args:
            value: The object, as `json.loads` returns it.

        Raises:
            InputError: If it is no view, or one of a later version.
        """
        if not isinstance(value, Mapping) or value.get("format") != FORMAT or value.get("task") not in TASKS:
            raise InputError(f"This is no view of the explorer: it needs a format of {FORMAT!r} and a task.")
        if value.get("version") != VERSION:
            raise InputError(f"The view has version {value.get('version')!r}; this explorer reads version {VERSION}.")
        try:
            classes = [(entry["label"], entry["probability"]) for entry in value["classes"]]
            answers = [AnswerView.from_json(answer) for answer in value["answers"]]
            attention = _attentions(value["attention"])
            texts = value["task"], value["model"], value["text"], value["tokens"]
            return cls(*texts, attention, answers, classes, value["notes"])
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"The view is damaged: {type(error).__name__} at {error}.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "list[View]":
        """Returns the views of a JSON file that the page has saved.

        Args:
            path: The file; one view or a list of them.

        Raises:
            InputError: If it cannot be read, or holds no views.

        Example:
            (view,) = View.load("attention.json")
            weights = view.answers[0].attention["cross"].layers[-1]  # [heads, T, S]
        """
        try:
            value = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read as JSON: {error}.") from error
        return [cls.from_json(entry) for entry in (value if isinstance(value, list) else [value])]


def _number(value: float | None) -> float | None:
    """Returns a number that JSON has; infinities and what is no number are `None`."""
    return float(value) if value is not None and math.isfinite(value) else None


def encoded(weights: np.ndarray) -> str:
    """Returns WEIGHTS of the format.

    Args:
        weights: Of one layer, float [N, T, S], between 0 and 1; what is not finite counts as 0.
    """
    numbers = np.rint(np.clip(np.nan_to_num(weights), 0.0, 1.0) * _ONE)
    return base64.b64encode(numbers.astype("<u2").tobytes()).decode("ascii")


def _decoded(text: str, shape: tuple[int, int, int]) -> np.ndarray:
    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), "<u2")
        return (numbers.astype(np.float32) / _ONE).reshape(shape)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"The view is damaged: weights are not {' × '.join(map(str, shape))} ({error}).") from error


def _attentions(value: Mapping[str, Any]) -> dict[str, Attention]:
    return {kind: Attention.from_json(attention) for kind, attention in value.items()}


def layers_of(weights: np.ndarray, rows: Sequence[bool], columns: Sequence[bool]) -> Iterator[np.ndarray]:
    """Yields float [N, T, S] of each layer of weights [layers, N, T', S'], only rows and columns that are real."""
    for layer in weights:
        yield layer[:, np.asarray(rows, bool)][:, :, np.asarray(columns, bool)]
