"""A model's outputs for one text as plain data: the JSON that the explorer's page reads and saves.

A view is a JSON object:

    {"format": "attention-zoo-view", "version": 1,
     "task": "seq2seq" | "classifier" | "language_model", "model": NAME, "text": TEXT,
     "tokens": [S input tokens],                                empty for a language model, whose answer contains them
     "attention": {"encoder": ATTENTION},                       between these tokens
     "answers": [ANSWER, …],                                    best first; empty for a classifier
     "classes": [{"label": LABEL, "probability": P}, …],        of a classifier, most probable first; else empty
     "notes": [TEXT, …]}                                        notes for the user, such as that a text was truncated

    ANSWER = {"text": TEXT, "log_prob": P or null, "hypothesis": number in `nbest` or null for the default answer,
              "given": number of its tokens that are the prompt of a language model,
              "tokens": [T tokens] or null if they are not loaded yet,
              "before": [T tokens: the previous token of each, beginning with the start],
              "predictions": [{"log_prob": P, "alternatives": [[TOKEN, P], …]}, …]  one for each token, or none
              "attention": {"cross": ATTENTION, "decoder": ATTENTION}}

    ATTENTION = {"heads": N, "rows": T, "columns": S, "layers": [WEIGHTS or null if they are not loaded yet, …]}

Row t of `cross` and `decoder` is the attention that predicts `tokens[t]`: to the input tokens, and to `before`.
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
        layers: For each layer float [N, T, S], or `None` if it is not loaded yet.
    """

    layers: Sequence[np.ndarray | None]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, rows and columns: N, T, S."""
        loaded = next((weights for weights in self.layers if weights is not None), None)
        if loaded is None or loaded.ndim != 3:
            raise InputError("`layers` must contain weights [heads, T, S] of at least one layer.")
        heads, rows, columns = loaded.shape
        return heads, rows, columns

    def to_json(self) -> dict[str, Any]:
        """Returns the attention as ATTENTION of the format."""
        heads, rows, columns = self.shape
        layers = [weights if weights is None else encoded(weights) for weights in self.layers]
        return {"heads": heads, "rows": rows, "columns": columns, "layers": layers}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Attention":
        """Returns the attention from ATTENTION of the format."""
        shape = value["heads"], value["rows"], value["columns"]
        return cls([layer if layer is None else _decoded(layer, shape) for layer in value["layers"]])


@dataclasses.dataclass(frozen=True)
class AnswerView:
    """One answer of a translator or a language model; see the format.

    Attributes:
        text: Its text.
        log_prob: Its log probability, `None` if it is unknown.
        hypothesis: Its number among the n-best, `None` for the default answer.
        tokens: Its T tokens, `None` if they are not loaded yet.
        before: The previous token of each of them.
        log_probs: The log probability of each token; empty if they are unknown.
        alternatives: The most probable alternatives of each token, best first, with their log probabilities.
        attention: `Attention` by kind, `cross` and `decoder`.
        given: Number of its tokens that belong to the prompt.
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
        """Returns the answer as ANSWER of the format."""
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
        """Returns the answer from ANSWER of the format."""
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
    """A model's outputs for one text; see the format.

    Attributes:
        task: `"seq2seq"`, `"classifier"` or `"language_model"`.
        model: The displayed name of the model.
        text: The text.
        tokens: The input tokens; empty for a language model.
        attention: `Attention` by kind, `encoder`.
        answers: Its answers, best first.
        classes: Labels and their probabilities, the most probable first.
        notes: Notes for the user.
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
        """Returns the view from a JSON object of the format.

        Args:
            value: The object, from `json.loads`.

        Raises:
            InputError: If it is not a view, is damaged, or has another version.
        """
        if not isinstance(value, Mapping) or value.get("format") != FORMAT or value.get("task") not in TASKS:
            raise InputError(f"This is not a view of the explorer, which requires the format {FORMAT!r} and a task.")
        if value.get("version") != VERSION:
            raise InputError(f"The view has version {value.get('version')!r}; this explorer reads version {VERSION}.")
        try:
            classes = [(entry["label"], entry["probability"]) for entry in value["classes"]]
            answers = [AnswerView.from_json(answer) for answer in value["answers"]]
            attention = _attentions(value["attention"])
            texts = value["task"], value["model"], value["text"], value["tokens"]
            return cls(*texts, attention, answers, classes, value["notes"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"The view is damaged: {type(error).__name__} at {error}.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "list[View]":
        """Returns the views of a JSON file that was saved by the page.

        Args:
            path: The file, with one view or a list of views.

        Raises:
            InputError: If it cannot be read, or contains anything but views.

        Example:
            (view,) = View.load("attention.json")
            weights = view.answers[0].attention["cross"].layers[-1]  # [heads, T, S]
        """
        try:
            value = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read as JSON: {error}.") from error
        if value == []:
            raise InputError(f"{path} contains no views.")
        return [cls.from_json(entry) for entry in (value if isinstance(value, list) else [value])]


def _number(value: float | None) -> float | None:
    """Returns a number for JSON; infinities and NaN become `None`."""
    return float(value) if value is not None and math.isfinite(value) else None


def encoded(weights: np.ndarray) -> str:
    """Returns weights as WEIGHTS of the format.

    Args:
        weights: The weights of one layer, float [N, T, S], between 0 and 1; NaN becomes 0.
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
    """Yields each layer, float [N, T, S], of weights [layers, N, T', S'], without padding rows and columns."""
    for layer in weights:
        yield layer[:, np.asarray(rows, bool)][:, :, np.asarray(columns, bool)]
