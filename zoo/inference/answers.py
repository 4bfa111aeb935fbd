"""Results of runs, as tuples whose representations are summaries of at most ten lines."""

import html
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_ROWS = 8


class _Fields(NamedTuple):
    label: str
    probabilities: np.ndarray


class Answer(_Fields):
    """The result of a classifier for a text: the tuple `(label, probabilities)`.

    Attributes:
        label: The most probable class.
        probabilities: The probability of each class, in the order of `classes`, float32 [C].
        classes: The labels.

    Args:
        label: See above.
        probabilities: See above.
        classes: See above.
    """

    classes: tuple[str, ...]

    def __new__(cls, label: str, probabilities: np.ndarray, classes: Sequence[str]) -> "Answer":
        answer = super().__new__(cls, label, probabilities)
        answer.classes = tuple(classes)
        return answer

    def __getnewargs__(self) -> tuple[Any, ...]:
        return *self, self.classes

    def _replace(self, **values: Any) -> "Answer":
        return Answer(**{**self._asdict(), "classes": self.classes, **values})

    @property
    def ranked(self) -> dict[str, float]:
        """The probability of each label, the most probable first."""
        order = np.argsort(-self.probabilities, kind="stable")
        return {self.classes[index]: float(self.probabilities[index]) for index in order}

    def __repr__(self) -> str:
        shown = [f"{label} {probability:.1%}" for label, probability in self._shown()]
        more = len(self.classes) - len(shown)
        return f"Answer: {', '.join(shown)}{f' and {more} more classes' if more else ''}"

    def _repr_html_(self) -> str:
        cells = [
            f"<tr><td>{html.escape(label)}</td><td>{probability:.1%}</td></tr>" for label, probability in self._shown()
        ]
        return f"<table><tr><th>label</th><th>probability</th></tr>{''.join(cells)}</table>"

    def _shown(self) -> list[tuple[str, float]]:
        return list(self.ranked.items())[:_ROWS]


class TextAttention(tuple[Any, ...]):
    """The attention within a text, `(tokens, weights)`, or between two, `(source_tokens, target_tokens, weights)`.

    The weights are [layers, heads, T, S]. Each printed row contains a token and the tokens with the largest weights, by
    the mean over layers and heads.
    """

    def __repr__(self) -> str:
        layers, heads, rows, columns = self[-1].shape
        lines = [f"TextAttention: {layers} layers, {heads} heads, {rows} × {columns} tokens"]
        lines += [f"  {token} → {others}" for token, others in self._shown()]
        if rows > _ROWS:
            lines.append(f"  and {rows - _ROWS} more tokens")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        cells = [
            f"<tr><td>{html.escape(token)}</td><td>{html.escape(others)}</td></tr>" for token, others in self._shown()
        ]
        return f"<table><tr><th>token</th><th>attends to</th></tr>{''.join(cells)}</table>"

    def _shown(self) -> list[tuple[str, str]]:
        keys, queries, mean = self[0], self[-2], np.asarray(self[-1], np.float32).mean(axis=(0, 1))
        rows = []
        for token, row in list(zip(queries, mean, strict=True))[:_ROWS]:
            most = [index for index in np.argsort(-row, kind="stable")[:3] if row[index] > 0]
            rows.append((token, ", ".join(f"{keys[index]} {row[index]:.0%}" for index in most)))
        return rows
