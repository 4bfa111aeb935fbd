"""The log probability of each token of a result, and its most probable alternatives."""

from typing import Any, NamedTuple

import numpy as np

from zoo import decoding
from zoo.inference.decoders import TOKENS, Wrapper
from zoo.text import Tokenizer

ALTERNATIVES = 5
"""The number of alternatives for each position."""


class Prediction(NamedTuple):
    """One position of a result.

    Attributes:
        token: The token at this position.
        log_prob: Its log probability, given all previous tokens.
        alternatives: The most probable tokens at this position and their log probabilities, best first.
    """

    token: str
    log_prob: float
    alternatives: list[tuple[str, float]]


class TokenScorer(Wrapper):
    """The log probability of each token, with the same code in Python and in the exported graph.

    Args:
        scorer: A `Scorer` or a `TextScorer`.
        alternatives: The number of most probable tokens to return for each position.

    Call arguments:
        inputs: The inputs of the scorer.

    Returns:
        See `zoo.decoding.token_log_probs`.
    """

    def __init__(self, scorer: Any, alternatives: int = ALTERNATIVES) -> None:
        super().__init__(scorer)
        self.alternatives = alternatives

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        logits, ids = self.model.logits(inputs)
        return decoding.token_log_probs(logits, ids, TOKENS, self.alternatives)


def read_predictions(tokenizer: Tokenizer, ids: list[int], output: dict[str, np.ndarray]) -> list[Prediction]:
    """Returns the outputs of a `TokenScorer` for one row of ids as `Prediction`s."""
    return [
        Prediction(token, float(log_prob), list(zip(tokenizer.pieces(tokens), map(float, values), strict=True)))
        for token, log_prob, tokens, values in zip(
            tokenizer.pieces(ids),
            output["log_probs"],
            output["alternatives"].tolist(),
            output["alternative_log_probs"],
            strict=False,  # rows are padded
        )
    ]
