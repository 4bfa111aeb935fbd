"""How probable each symbol of an answer is, and what could have stood in its place."""

from typing import Any, NamedTuple

import numpy as np

from zoo import decoding
from zoo.inference.decoders import SYMBOLS, Wrapper
from zoo.text import Tokenizer

ALTERNATIVES = 5
"""How many of the most probable symbols are named for each position."""


class Prediction(NamedTuple):
    """One position of an answer.

    Attributes:
        token: The symbol that stands there.
        log_prob: Its log probability, given what is before it.
        alternatives: The most probable symbols there and their log probabilities, best first.
    """

    token: str
    log_prob: float
    alternatives: list[tuple[str, float]]


class SymbolScorer(Wrapper):
    """How probable each symbol is, the same code in Python and in the exported graph.

    Args:
        scorer: A `Scorer` or a `TextScorer`.
        alternatives: How many of the most probable symbols are returned for each position.

    Call arguments:
        inputs: Those of the scorer.

    Returns:
        See `zoo.decoding.symbol_log_probs`.
    """

    def __init__(self, scorer: Any, alternatives: int = ALTERNATIVES) -> None:
        super().__init__(scorer)
        self.alternatives = alternatives

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        logits, ids = self.model.logits(inputs)
        return decoding.symbol_log_probs(logits, ids, SYMBOLS, self.alternatives)


def read_predictions(tokenizer: Tokenizer, ids: list[int], output: dict[str, np.ndarray]) -> list[Prediction]:
    """Returns what a `SymbolScorer` says of one row of ids, as symbols."""
    return [
        Prediction(token, float(log_prob), list(zip(tokenizer.pieces(symbols), map(float, values), strict=True)))
        for token, log_prob, symbols, values in zip(
            tokenizer.pieces(ids),
            output["log_probs"],
            output["alternatives"].tolist(),
            output["alternative_log_probs"],
            strict=False,  # rows are padded
        )
    ]
