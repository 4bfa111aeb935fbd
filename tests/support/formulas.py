"""Scores in NumPy, one query at a time, for copies of whole models."""

import numpy as np
from support.models import numpy


def kernel(dense):
    return numpy(dense.kernel)


def compare(score, state, annotations):
    """Returns score(s, h_j) of a state or query with each annotation or key, [S]."""
    name = type(score).__name__
    if name == "DotScore":
        return annotations @ state
    if name == "ScaledDotScore":
        return annotations @ state / np.sqrt(len(state))
    if name == "CosineScore":
        temperature = np.exp(numpy(score.log_temperature)) if score.learn_temperature else score.temperature
        return annotations @ state / np.linalg.norm(annotations, axis=1) / np.linalg.norm(state) / temperature
    if name == "GeneralScore":
        return annotations @ kernel(score.key_dense) @ state
    if name == "EndlessLocationScore":
        return (state @ kernel(score.query_dense))[: len(annotations)]
    bias = numpy(score.query_dense.bias) if score.use_bias else 0
    hidden = np.tanh(state @ kernel(score.query_dense) + annotations @ kernel(score.key_dense) + bias)
    return hidden[:, 0] if name == "TanhConcatScore" else hidden @ kernel(score.score_dense)[:, 0]
