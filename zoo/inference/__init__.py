"""Loads trained work directories for inference: `load_run(path)`, with one class per task."""

import os
from collections.abc import Sequence
from pathlib import Path

import keras

from zoo.errors import InputError
from zoo.inference.answers import Answer, TextAttention
from zoo.inference.base_run import MAX_TEXT_BYTES, Run
from zoo.inference.classifier_run import MAX_TEXT_LENGTH, ClassifierRun
from zoo.inference.ensemble import EnsembleRun
from zoo.inference.language_model_run import Continuation, LanguageModelRun, Score
from zoo.inference.sentence_encoder_run import SentenceEncoderRun
from zoo.inference.seq2seq_run import MAX_SOURCE_LENGTH, MAX_TARGET_LENGTH, Hypothesis, Seq2SeqRun
from zoo.registry import get_spec, list_models
from zoo.workdir import WorkDir

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
    "TextAttention",
    "Score",
    "SentenceEncoderRun",
    "Seq2SeqRun",
    "load_model",
    "load_run",
]

_RUNS = {
    "seq2seq": Seq2SeqRun,
    "classifier": ClassifierRun,
    "language_model": LanguageModelRun,
    "sentence_encoder": SentenceEncoderRun,
}


def load_run(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    source_language: str | None = None,
    target_language: str | None = None,
    draft: str | os.PathLike[str] | None = None,
) -> Run:
    """Returns the run of a work directory, of the class of its task, or the ensemble of a list of them.

    Args:
        path: The work directory, or a list of them.
        source_language: See `Seq2SeqRun.with_languages`.
        target_language: See `Seq2SeqRun.with_languages`.
        draft: The work directory of a model that drafts tokens, see `Run.with_draft`.

    Raises:
        InputError: If it is not a work directory, its training has not finished, or it supports no such language or
            draft; and see `EnsembleRun`.
    """
    run = _RUNS[Run.spec_of(path).task](path) if isinstance(path, str | os.PathLike) else EnsembleRun(path)
    languages = {"source_language": source_language, "target_language": target_language}
    for name, code in languages.items():
        if code is not None and not isinstance(run, Seq2SeqRun):
            raise InputError(f"--{name} is for seq2seq models; {path} is a {run.spec.task} model. Received: {code}.")
    if isinstance(run, Seq2SeqRun) and (source_language, target_language) != (None, None):
        run = run.with_languages(source_language, target_language)
    return run if draft is None else run.with_draft(load_run(draft))


def load_model(path: str | os.PathLike[str]) -> keras.Model:
    """Returns the model of a `.keras` file or a work directory, after registering the classes of all named models.

    Raises:
        InputError: If there is no such file, or Keras cannot load it.
    """
    file = WorkDir(path).model if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise InputError(f"{file} is not a model file.")
    for name in list_models():
        get_spec(name).load_class()
    try:
        return keras.saving.load_model(file)
    except (ValueError, TypeError, OSError) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise InputError(f"{file} contains no model that can be loaded: {reason}") from error
