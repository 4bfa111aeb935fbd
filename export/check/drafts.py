"""Counts how many drafted tokens a model confirms: `export.saved_model … --draft_text FILE`."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from export.graph.model_graph import TEXT
from export.graph.served_model import model_graph
from export.options import ExportOptions
from zoo.errors import InputError
from zoo.inference import Run

MAX_TEXTS = 100


@contextlib.contextmanager
def counted_calls(model: Any) -> Iterator[tf.Variable]:
    """Makes a model count the calls by which it predicts tokens, in graphs that are traced in this context."""
    count = tf.Variable(0)

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            count.assign_add(1)
            return method(*arguments, **options)

        return call

    names = [name for name in ("decode_step", "decode_steps") if hasattr(model, name)]
    for name in names:
        object.__setattr__(model, name, counted(getattr(model, name)))
    try:
        yield count
    finally:
        for name in names:
            object.__delattr__(model, name)


def confirmed_drafts(run: Run, options: ExportOptions, path: Path) -> str:
    """Returns a line with the number of tokens for each call of the model, and the share of drafted ones confirmed.

    That share is a lower bound: it counts `draft_length` drafted tokens a call, and near an end there are fewer.

    Args:
        run: The run, with its draft model if it has one.
        options: The options of the export, with a `draft_length` of at least 1.
        path: A text file; its first `MAX_TEXTS` lines that are not blank are answered one by one. Invalid UTF-8 is
            replaced, as `export.client` does.

    Raises:
        InputError: If all lines are blank.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()][:MAX_TEXTS]
    if not lines:
        raise InputError(f"--draft_text: {path} has no text.")
    num_tokens = 0
    with counted_calls(run.model) as calls:
        graph = model_graph(run, replace(options, weights="float32", dynamic_batching=False))

        @tf.function(input_signature=[TEXT], autograph=False)
        def answer(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            ids = graph.read(text)
            return ids, graph.compute(ids)["ids"]

        for line in lines:
            ids, answered = answer(tf.constant([line]))
            num_tokens += int(np.count_nonzero(answered))
            if run.spec.task == "language_model":  # The answer begins with the prompt.
                num_tokens -= int(np.count_nonzero(ids))
        num_calls = max(1, int(calls))
    length = options.draft_length  # type: ignore[attr-defined]
    share = max(0, num_tokens - num_calls) / (num_calls * length)
    return (
        f"drafts of {length} tokens: {num_tokens / num_calls:.2f} tokens for each call of the model, "
        f"at least {share:.0%} of the drafted tokens confirmed ({len(lines)} lines of {path.name})"
    )
