"""Greedy decoding on JAX, of as many tokens as the source has."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from keras import ops

import zoo
from benchmarks.gpu.serving import Answer, described, time_calls
from benchmarks.gpu.steps import POLICIES
from benchmarks.peers.batches import END, FIRST
from zoo.decoding import Constraints
from zoo.inference.decoders import TOKENS
from zoo.inference.translator import Translator


class ExactLength(Translator):
    """A translator whose translations have as many tokens as the source, of which only the last may be the end."""

    def _constraints(self, source: Any, prefix: Any) -> Constraints:
        width = ops.shape(source)[1]
        limits = ops.zeros_like(source[:, 0]) + width
        return Constraints(TOKENS, limits, width, prefix, min_length=width - 1)


class Greedy:
    """Sentences that are decoded together."""

    def __init__(self, task: Mapping[str, Any]):
        vocabulary, shape = task["vocabulary"], (task["batch"], task["source_length"])
        sizes = {"source_vocab_size": vocabulary, "target_vocab_size": vocabulary, **task["options"]}
        model = zoo.create_model(task["model"], **sizes, dtype=POLICIES[task["precision"]])
        self.translator = ExactLength(model)
        self.source = np.random.default_rng(0).integers(FIRST, vocabulary, shape).astype("int32")

    def lower(self) -> Any:
        def decode(trained: Any, others: Any, source: Any) -> Any:
            return self.translator.stateless_call(trained, others, {"source": source})[0]["ids"]

        return jax.jit(decode).lower(*self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        groups = self.translator.trainable_variables, self.translator.non_trainable_variables
        return *([variable.value for variable in group] for group in groups), self.source

    def measure(self, compiled: Any, task: Mapping[str, Any]) -> Answer:
        arguments = jax.device_put(self._arguments())
        seconds, outputs = time_calls(lambda: compiled(*arguments), jax.block_until_ready, task)
        ids = np.asarray(outputs)[:, 0]
        if ids.shape != self.source.shape or (ids[:, :-1] == END).any():
            raise ValueError(f"Expected {self.source.shape} tokens. Received: {ids.shape}, or an end within them.")
        return described(seconds, ids.size, "tokens", 0, task["card"])
