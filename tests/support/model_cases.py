"""Small models of every name, each made once in a process."""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np
from support import models, seq2seq_models, text_models
from support.models import numpy

import zoo

SMALL = {**seq2seq_models.SMALL, **text_models.SMALL}
ROWS = [(name, number) for name, rows in SMALL.items() for number in range(len(rows))]


class Case(NamedTuple):
    """A small model with random weights, and what it answers.

    Args:
        name: Its name.
        number: Which of the rows of small options of that name it was made with.
        model: The model.
        inputs: A batch of different lengths, padded.
        expected: What the model answers to it.
    """

    name: str
    number: int
    model: keras.Model
    inputs: dict[str, np.ndarray]
    expected: np.ndarray

    @property
    def task(self) -> str:
        return zoo.get_spec(self.name).task

    @property
    def options(self) -> dict[str, Any]:
        return SMALL[self.name][self.number]


def create(name: str, number: int = 0, dtype: str = "float32", **options) -> keras.Model:
    """Returns a small model whose weights are all random, biases included; options may differ from those of its row."""
    task, options = zoo.get_spec(name).task, SMALL[name][number] | options
    if task == "seq2seq":
        return seq2seq_models.create(name, options, dtype)
    return models.create(name, dtype, **text_models.SIZES[task], **options)


def batch(task: str) -> dict[str, np.ndarray]:
    """Returns what models of a task read in tests."""
    if task == "seq2seq":
        return dict(zip(("source", "target"), seq2seq_models.batch(), strict=True))
    makers = {"classifier": text_models.sentences, "language_model": text_models.beginnings}
    return {"tokens": makers[task]() if task in makers else text_models.TEXTS}


@functools.cache
def case(name: str, number: int = 0) -> Case:
    """Returns a case, the same one whenever it is asked for; nothing may change its model."""
    model, inputs = create(name, number), batch(zoo.get_spec(name).task)
    return Case(name, number, model, inputs, numpy(model(inputs)))
