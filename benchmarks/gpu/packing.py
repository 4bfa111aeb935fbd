"""Packed beside padded sentences: blocks of a Transformer, forward and backward."""

from collections.abc import Mapping
from typing import Any

import jax
import keras
import numpy as np

from benchmarks.gpu import lengths
from benchmarks.gpu.serving import Answer, described, time_calls
from benchmarks.gpu.steps import POLICIES
from zoo.layers import FeedForward, MultiHeadAttention, Segments

LAYOUTS = {"padded": lengths.padded, "sorted": lengths.sorted_by_length, "packed": lengths.packed}


class Blocks(keras.layers.Layer):
    """Pre-norm blocks of attention within sentences and feed-forward networks."""

    def __init__(self, task: Mapping[str, Any]):
        super().__init__(dtype=POLICIES[task["precision"]])
        policy, self.packs = self.dtype_policy, task["layout"] == "packed"
        attention = {"visibility": Segments()} if self.packs else {}
        sizes = task["heads"], task["dim"] // task["heads"]
        self.parts = [
            (
                keras.layers.LayerNormalization(dtype=policy),
                MultiHeadAttention(*sizes, **attention, dtype=policy),
                keras.layers.LayerNormalization(dtype=policy),
                FeedForward(task["hidden"], dtype=policy),
            )
            for _ in range(task["layers"])
        ]
        self.norm = keras.layers.LayerNormalization(dtype=policy)

    def build(self, shape: Any) -> None:
        for first, attention, second, network in self.parts:
            for layer in (first, second, network):
                layer.build(shape)
            attention.build(shape, shape)
        self.norm.build(shape)

    def call(self, inputs: Any, segments: Any) -> Any:
        """Returns [B, T, D] from inputs [B, T, D] and the number of each token's sentence [B, T], 0 for padding."""
        real = keras.ops.not_equal(segments, 0)
        options = {"segment_ids": segments} if self.packs else {}
        for first, attention, second, network in self.parts:
            normal = first(inputs)
            inputs = inputs + attention(normal, normal, query_mask=real, value_mask=real, **options)
            inputs = inputs + network(second(inputs))
        return self.norm(inputs)


class BlocksStep:
    """The gradients of all weights and inputs; the rate is that of real tokens."""

    def __init__(self, task: Mapping[str, Any]):
        self.segments = LAYOUTS[task["layout"]](task["rows"], task["width"])
        shape = (task["rows"], task["width"], task["dim"])
        self.blocks = Blocks(task)
        self.blocks.build(shape)
        dtype = self.blocks.compute_dtype
        self.inputs, self.direction = (
            jax.random.normal(jax.random.key(number), shape, dtype=dtype) for number in range(2)
        )

    def lower(self) -> Any:
        def gradients(weights: Any, others: Any, inputs: Any, segments: Any, direction: Any) -> Any:
            def run(weights: Any, inputs: Any) -> Any:
                return self.blocks.stateless_call(weights, others, inputs, segments)[0]

            return jax.vjp(run, weights, inputs)[1](direction)

        return jax.jit(gradients).lower(*self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        trained, others = self.blocks.trainable_variables, self.blocks.non_trainable_variables
        weights = [[variable.value for variable in group] for group in (trained, others)]
        return *weights, self.inputs, self.segments, self.direction

    def measure(self, compiled: Any, task: Mapping[str, Any]) -> Answer:
        arguments = jax.device_put(self._arguments())
        seconds, _ = time_calls(lambda: compiled(*arguments), jax.block_until_ready, task)
        real = int(np.count_nonzero(self.segments))
        share = real / self.segments.size
        answer = described(seconds, real, "real tokens", 0, task["card"])
        return {**answer, "remark": f"{share:.0%} of the positions are tokens"}
