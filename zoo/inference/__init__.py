"""Trained work directories, loaded for use: `load_run(path)`, one class for each task."""

import os
from collections.abc import Sequence

from zoo.inference.base_run import MAX_TEXT_BYTES, Run
from zoo.inference.classifier_run import MAX_TEXT_LENGTH, Answer, ClassifierRun
from zoo.inference.ensemble import EnsembleRun
from zoo.inference.language_model_run import Continuation, LanguageModelRun, Score
from zoo.inference.sentence_encoder_run import SentenceEncoderRun
from zoo.inference.seq2seq_run import MAX_SOURCE_LENGTH, MAX_TARGET_LENGTH, Hypothesis, Seq2SeqRun

__all__ = [
    "MAX_SOURCE_LENGTH",
    "MAX_TARGET_LENGTH",
    "MAX_TEXT_BYTES",
    "MAX_TEXT_LENGTH",
    "Answer",
    "ClassifierRun",
    "Continuation",
    "EnsembleRun",
    "Hypothesis",
    "LanguageModelRun",
    "Run",
    "Score",
    "SentenceEncoderRun",
    "Seq2SeqRun",
    "load_run",
]

_RUNS = {
    "seq2seq": Seq2SeqRun,
    "classifier": ClassifierRun,
    "language_model": LanguageModelRun,
    "sentence_encoder": SentenceEncoderRun,
}


def load_run(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Run:
    """Returns the run of a work directory, in the class of its task; of a list of them, their ensemble.

    Raises:
        InputError: If it is not a work directory, or its training has not finished; and see `EnsembleRun`.
    """
    if isinstance(path, str | os.PathLike):
        return _RUNS[Run.spec_of(path).task](path)
    return EnsembleRun(path)
