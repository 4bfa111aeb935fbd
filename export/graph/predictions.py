"""The log probability of each token and its most probable alternatives, as outputs of signatures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from export.graph.signatures import stacked
from export.graph.tokenizers import TokenizerGraph
from zoo.inference.predictions import Prediction


def predicted(outputs: Mapping[str, tf.Tensor], tokenizer: TokenizerGraph) -> dict[str, tf.Tensor]:
    """Returns log probabilities and alternatives, given the result of `zoo.decoding.token_log_probs`.

    `token_log_probs` are float32 [B, T], 0 for padding; `alternatives` string [B, T, K] and `alternative_log_probs`
    float32 [B, T, K] are the most probable tokens of each position, best first.
    """
    tokens = outputs["alternatives"]
    flat = tf.reshape(tokens, [-1, tf.shape(tokens)[2]])
    return {
        "token_log_probs": outputs["log_probs"],
        "alternatives": tf.reshape(tokenizer.pieces(flat), tf.shape(tokens)),
        "alternative_log_probs": outputs["alternative_log_probs"],
    }


def expected_predictions(answers: Iterable[Sequence[Prediction]]) -> dict[str, Any]:
    """Returns the expected outputs of `predicted`, given the predictions of a run."""
    rows = list(answers)
    alternatives = [[prediction.alternatives for prediction in row] for row in rows]
    return {
        "token_log_probs": stacked([[prediction.log_prob for prediction in row] for row in rows], 0.0),
        "alternatives": stacked([[[token for token, _ in pairs] for pairs in row] for row in alternatives], ""),
        "alternative_log_probs": stacked(
            [[[value for _, value in pairs] for pairs in row] for row in alternatives], 0.0
        ),
    }
