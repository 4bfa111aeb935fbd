"""Attention alone, forward and backward, on JAX: ours, and JAX's own, on inputs [B, T, N, H]."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.serving import Answer, described, time_calls
from benchmarks.gpu.steps import POLICIES
from benchmarks.peers.attention_kinds import lengths_of, operations
from zoo.layers import AdditiveScore, ALiBiPositions, MultiHeadAttention, SlidingWindow, SlidingWindowAttention
from zoo.layers.core.projections import split_heads
from zoo.layers.positions.relative import head_slopes

Task = Mapping[str, Any]


class _Unprojected:
    """Replaces the projections: inputs are the heads, [B, T, N · H]."""

    def build_projections(self, *shapes: Any) -> None:
        pass

    def project_query(self, query: Any, start_index: Any = 0) -> Any:
        return split_heads(query, self.key_dim)

    def project_memory(self, value: Any, key: Any = None, start_index: Any = 0) -> Any:
        key = self.score.project_key(split_heads(key, self.key_dim))
        return {"key": key, "value": split_heads(value, self.value_dim)}


class Heads(_Unprojected, MultiHeadAttention):
    """Multi-head attention without projections."""


class WindowHeads(_Unprojected, SlidingWindowAttention):
    """Sliding-window attention without projections."""


def ours(task: Task) -> Callable[..., Any]:
    """Returns our attention as a function of query, key and value [B, T, N, H]."""
    kind, heads, size = task["attention"], task["heads"], task["size"]
    options: dict[str, Any] = {"output_projection": False, "dtype": POLICIES[task["precision"]]}
    call: dict[str, Any] = {} if kind in ("padded", "additive") else {"use_causal_mask": True}
    if kind == "padded":
        call["value_mask"] = np.arange(task["length"]) < lengths_of(task)[:, None]
    if kind == "alibi":
        options["positions"] = ALiBiPositions()
    if kind == "additive":
        options["score"] = AdditiveScore()
    if kind == "window" and task.get("blocks"):
        layer = WindowHeads(heads, size, task["window"] - 1, **options)
    else:
        visibility = SlidingWindow(task["window"] - 1, 0) if kind == "window" else None
        layer = Heads(heads, size, visibility=visibility, **options)
    shape = (task["batch"], task["length"], heads * size)
    layer.build(shape, shape)

    def attend(query: Any, key: Any, value: Any) -> Any:
        flat = [jnp.reshape(tensor, shape) for tensor in (query, value, key)]
        return jnp.reshape(layer(*flat, **call), query.shape)

    return attend


def of_jax(task: Task) -> Callable[..., Any]:
    """Returns `jax.nn.dot_product_attention` as a function of query, key and value [B, T, N, H]."""
    kind, length = task["attention"], task["length"]
    options: dict[str, Any] = {"is_causal": kind != "padded", "implementation": task["implementation"]}
    if kind == "padded":
        options["key_value_seq_lengths"] = jnp.asarray(lengths_of(task), "int32")
        options["query_seq_lengths"] = jnp.full((task["batch"],), length, "int32")
    if kind == "window":
        options["local_window_size"] = (task["window"] - 1, 0)

    def attend(query: Any, key: Any, value: Any) -> Any:
        if kind != "alibi":
            return jax.nn.dot_product_attention(query, key, value, **options)
        steps = jnp.abs(jnp.arange(length)[:, None] - jnp.arange(length))
        bias = -jnp.asarray(head_slopes(task["heads"]))[:, None, None] * steps
        return jax.nn.dot_product_attention(query, key, value, bias[None].astype(query.dtype), **options)

    return attend


class Pass:
    """A pass forward and backward, with the gradients of query, key and value."""

    def __init__(self, task: Task):
        self.attend = of_jax(task) if "implementation" in task else ours(task)
        self.shape, self.dtype = (task["batch"], task["length"], task["heads"], task["size"]), task["precision"]

    def gradients(self, query: Any, key: Any, value: Any, direction: Any) -> Any:
        return jax.vjp(self.attend, query, key, value)[1](direction)

    def lower(self) -> Any:
        return jax.jit(self.gradients).lower(*[jax.ShapeDtypeStruct(self.shape, self.dtype)] * 4)

    def measure(self, compiled: Any, task: Task) -> Answer:
        # Created here, since those of all lengths together would take much memory.
        inputs = [jax.random.normal(jax.random.key(number), self.shape, self.dtype) for number in range(4)]
        seconds, gradients = time_calls(lambda: compiled(*inputs), jax.block_until_ready, task)
        is_finite = all(bool(jnp.isfinite(gradient).all()) for gradient in gradients)
        figures = described(seconds, task["batch"] * task["length"], "tokens", operations(task), task["card"])
        return {**figures, "remark": "" if is_finite else "gradients are not finite"}
