"""The path that all attention layers share."""

import functools
import math
import operator

import keras
from keras import backend, ops

from zoo.layers.attention import cache as caches
from zoo.layers.attention import masks
from zoo.layers.core.kernels import has_fused_attention, map_rows
from zoo.layers.core.quantization import KeepsQuantization

# Numbers that a chunk of queries may cost, and above which chunks are worth their second forward pass.
CHUNK_BUDGET = 2**21
DENSE_LIMIT = 2**25
IMPLEMENTATIONS = ("auto", "dense", "blockwise", "fused")


class _GivenSeed(keras.random.SeedGenerator):
    """A seed that is known already: a chunk that is worked out twice drops out the same weights both times."""

    def __init__(self, seed):
        self.given = seed
        self._initial_seed = 0  # Keras draws from a generator without one in another way on PyTorch

    def next(self, ordered=True):
        return self.given


class BaseAttention(KeepsQuantization):
    """Base of the attention layers: project → score → mask → softmax → dropout → weighted sum → project.

    `weights = softmax(score(query, key) + bias)`, `output = weights · value`, where positions that the mask forbids
    have weight 0. A subclass says how queries and keys are projected and compared; it does not override `call`.

    Args:
        dropout: Rate of dropout on the attention weights, 0 ≤ dropout < 1.
        seed: Seed of the dropout, an integer or `None`.
        implementation: How the weights are worked out; the results agree. `"dense"`: all at once. `"blockwise"`: a
            chunk of queries at a time, and once more in the backward pass, so that memory grows with S and not with
            T · S; all at once where a user's score draws random numbers. `"fused"`: by the backend's own kernel
            (`keras.ops.dot_product_attention`), for scaled dot products without active dropout and without mask and
            bias at once; where it cannot, as with `"auto"`. `"auto"`: fused on PyTorch and on GPUs with JAX, else
            blockwise for sizes that are known and large, else dense.

    Call arguments:
        query: [B, T, Dq].
        value: [B, S, Dv].
        key: [B, S, Dk]; defaults to `value`.
        query_mask: Boolean [B, T].
        value_mask: Boolean [B, S].
        key_mask: Boolean [B, S].
        attention_mask: Boolean [B, T, S] (with heads also [B, N, T, S]).
        return_attention_scores: Whether to return the attention weights as well.
        training: Whether dropout is active.
        use_causal_mask: Whether query t sees only the keys up to S − T + t (with a cache: up to its own position).
        attention_bias: Float tensor that broadcasts to the scores, added before the softmax: [T, S]; [B, T, S], or with
            heads [N, T, S] or [B, N, T, S]; any axis may be 1.
        start_index: Place of the first query among the keys. Default: the queries stand at the end of the keys, or
            behind what the cache holds.
        memory: What `project_memory(value, key)` returned, to project a fixed memory once and not at every call;
            `value` and `key` are then ignored and may be `None`.
        cache: Dict from `create_cache` (layers that have it); the new positions are appended and the queries attend
            to all that is in it. Masks of values then cover the room of the cache, or of one that grows all that is in
            it with the new positions, [B, L].

    Returns:
        `output` [B, T, D]; `(output, weights)` with `return_attention_scores`; the new cache, if any, comes last.
        Weights are after the softmax and before dropout: [B, N, T, S], or [B, T, S] for single-head layers.

    Masking:
        All masks are boolean (True = may attend) and are ANDed. A query with nothing to attend to returns exact zeros,
        in output and weights. The output carries the query's mask.

    Raises:
        ValueError: For a floating point mask, a mask or bias of the wrong rank or size, or a query without value.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from zoo.layers import BaseAttention
        >>> class NearbyAttention(BaseAttention):
        ...     def compare(self, query, key, visible):
        ...         steps = ops.abs(visible.key_positions - visible.query_positions[:, None])  # [T, S]
        ...         return ops.matmul(query, ops.swapaxes(key, -1, -2)) - ops.cast(steps, query.dtype)
        >>> inputs = np.zeros((1, 3, 4), "float32")
        >>> _, weights = NearbyAttention()(inputs, inputs, return_attention_scores=True, use_causal_mask=True)
        >>> print(np.round(weights[0], 2))
        [[1.   0.   0.  ]
         [0.27 0.73 0.  ]
         [0.09 0.24 0.67]]
    """

    has_heads = False

    def __init__(self, dropout=0.0, seed=None, implementation="auto", **kwargs):
        super().__init__(**kwargs)
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be in [0, 1). Received: dropout={dropout}.")
        if implementation not in IMPLEMENTATIONS:
            raise ValueError(
                f"`implementation` must be one of {', '.join(IMPLEMENTATIONS)}. "
                f"Received: implementation={implementation!r}."
            )
        self.supports_masking = True
        self.dropout = dropout
        self.seed = seed
        self.implementation = implementation
        self.dropout_layer = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def project_query(self, query, start_index=0):
        """Returns the queries as `compare` takes them, [B, T, Dq] or [B, N, T, H].

        Args:
            query: [B, T, Dq].
            start_index: Place of the first one among the keys.
        """
        return query

    def project_memory(self, value, key=None, start_index=0):
        """Returns `{"key": ..., "value": ...}` as `compare` and the weighted sum take them.

        Args:
            value: [B, S, Dv].
            key: [B, S, Dk]; defaults to `value`.
            start_index: Place of the first one, for those that are appended to a cache.
        """
        return {"key": value if key is None else key, "value": value}

    def compare(self, query, key, visible):
        """Returns scores [B, T, S] or [B, N, T, S] of projected queries and keys.

        Args:
            query: From `project_query`.
            key: From `project_memory`.
            visible: The `Visibility`, which knows the positions.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `compare`.")

    def normalize(self, scores, query, visible):
        """Returns the attention weights.

        Args:
            scores: From `compare`, with biases.
            query: From `project_query`.
            visible: The `Visibility`.
        """
        return masks.masked_softmax(scores, visible.mask())

    def weighted_sum(self, weights, value, visible):
        """Returns the sum of the values, [B, T, Dv] or [B, N, T, H].

        Args:
            weights: After dropout.
            value: From `project_memory`.
            visible: The `Visibility`.
        """
        return ops.matmul(weights, value)

    def project_output(self, output):
        """Returns the layer's output from the weighted sum of the values."""
        return output

    def compare_layers(self):
        """Returns the sublayers whose weights `compare`, `normalize` or `weighted_sum` read."""
        return []

    def compare_weights(self):
        """Returns the weights of `compare_layers`; those that are not trained, too, as TensorFlow asks for them."""
        return [weight for layer in self.compare_layers() for weight in layer.weights]

    def is_repeatable(self):
        """Returns whether a second pass gives the same: a user's score may draw random numbers, or count its calls."""
        return all(len(layer.variables) == len(layer.weights) for layer in self.compare_layers())

    def pair_size(self):
        """Returns how many numbers a query and a key cost together while they are compared, in all heads."""
        return 1

    def first_position(self, lengths, causal):
        """Returns the place of the first query among the keys, where there is neither cache nor `start_index`.

        Args:
            lengths: `(T, S)`.
            causal: Whether a query sees only the keys up to its own place.
        """
        return lengths[1] - lengths[0]

    def __call__(self, query, *args, **kwargs):
        # Before Keras builds the layer, for which it would need shapes.
        given = {**dict(zip(("value", "key"), args, strict=False)), **kwargs}
        value, memory = given.get("value"), given.get("memory")
        if isinstance(query, (list, tuple)):
            raise ValueError("query and value are arguments of their own: `layer(query, value)`. Received: a list.")
        if value is None and memory is None:
            raise ValueError("`value` is missing; self-attention is `layer(x, x)`.")
        if memory is not None and not isinstance(memory, dict):
            raise ValueError(f"`memory` must be what `project_memory` returned. Received: {type(memory).__name__}.")
        for name, tensor in (("query", query), ("value", value), ("key", given.get("key"))):
            if len(getattr(tensor, "shape", (0, 0, 0))) != 3:
                raise ValueError(f"`{name}` must be [B, length, size]. Received: shape={tuple(tensor.shape)}.")
        return super().__call__(query, *args, **kwargs)

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        attention_bias=None,
        start_index=None,
        memory=None,
        cache=None,
    ):
        given = {
            "query_mask": query_mask,
            "value_mask": value_mask,
            "key_mask": key_mask,
            "attention_mask": attention_mask,
        }
        options = {
            "attention_bias": attention_bias,
            "return_attention_scores": return_attention_scores,
            "drop": bool(training) and self.dropout > 0,
        }
        if cache is not None:
            return self.step(query, value, key, cache, memory=memory, start_index=start_index, **given, **options)
        lengths = ops.shape(query)[1], ops.shape(value)[1] if memory is None else ops.shape(memory["value"])[-2]
        start_index = self.first_position(lengths, use_causal_mask) if start_index is None else start_index
        visible = masks.visibility(lengths, start_index, **given, causal=use_causal_mask, heads=self.has_heads)
        if memory is None:
            memory = self.project_memory(masks.blank(value, visible.key_mask), masks.blank(key, visible.key_mask))
        results = self._results(query, memory, visible, start_index, **options)
        return results if len(results) > 1 else results[0]

    def step(
        self, query, value, key, cache, memory, start_index, attention_bias, return_attention_scores, drop, **given
    ):
        """Returns what a call with a cache returns: the output, the weights if asked for, and the new cache.

        A layer whose cache is no keys and values overrides this together with `create_cache`.

        Args:
            query: As in a call, like all that follows.
            value: New values.
            key: New keys.
            cache: What came before them.
            memory: Projections of both, or `None`.
            start_index: Place of the first query, or `None`.
            attention_bias: Float tensor, or `None`.
            return_attention_scores: Whether the weights are wanted.
            drop: Whether dropout is active.
            **given: The masks.
        """
        place = caches.position(cache)
        if memory is None:
            if given["value_mask"] is not None or given["key_mask"] is not None:
                length = ops.shape(value)[1]
                seen = masks.visible_values(given["value_mask"], given["key_mask"], caches.room_for(cache, length))
                seen = masks.columns(seen, place, length)
                value, key = masks.blank(value, seen), masks.blank(key, seen)
            memory = self.project_memory(value, key, place)
        cache = caches.extend(cache, memory)
        lengths = ops.shape(query)[1], ops.shape(cache["value"])[-2]
        # A single query at the end of the keys sees all of them; where it may not, there is a mask to be worked out.
        causal = not (caches.grows(cache) and query.shape[1] == 1 and start_index is None)
        start_index = place if start_index is None else start_index
        visible = masks.visibility(lengths, start_index, **given, causal=causal, heads=self.has_heads)
        results = self._results(query, cache, visible, start_index, attention_bias, return_attention_scores, drop)
        return *results, cache

    def _results(self, query, memory, visible, start_index, attention_bias, return_attention_scores, drop):
        query = self.project_query(masks.blank(query, visible.query_mask), start_index)
        if attention_bias is not None:
            attention_bias = _checked_bias(attention_bias, (*query.shape[:-1], visible.key_positions.shape[0]))
        found = self.attend(query, memory, visible, attention_bias, return_attention_scores, drop)
        output = self._zero_empty_rows(self.project_output(found["output"]), found.get("seen"))
        return (output, found["weights"]) if return_attention_scores else (output,)

    def attend(self, query, memory, visible, attention_bias, return_attention_scores, drop):
        """Returns `output`, `weights` if asked for, and `seen` if anything is masked: whether a query sees any key.

        Args:
            query: From `project_query`.
            memory: `key` and `value`, from `project_memory`.
            visible: The `Visibility`.
            attention_bias: Float tensor that broadcasts to the scores, or `None`.
            return_attention_scores: Whether `weights` are wanted.
            drop: Whether dropout is active.
        """
        memory = {name: memory[name] for name in memory if name != "index"}
        bias = None if attention_bias is None else _with_rows(attention_bias, ops.shape(visible.query_positions)[0])
        if not drop and self._fuses(visible, bias):
            output, seen = self.fused_output(query, memory, visible, bias), self._seen(visible)
            # A kernel attends to everything alike where it may attend to nothing, maybe in one head alone.
            output = output if seen is None else ops.where(ops.cast(seen, "bool"), output, ops.zeros_like(output))
            fused = {"output": output, "seen": seen}
            if return_attention_scores:
                fused["weights"] = self._attend_plainly(query, memory, visible, bias, None, ["weights"])["weights"]
            return fused
        names = ["output"] + ["weights"] * bool(return_attention_scores) + ["seen"] * visible.hides
        seed = self.dropout_layer.seed_generator.next() if drop else None
        return self._attend_plainly(query, memory, visible, bias, seed, names)

    def _fuses(self, visible, bias):
        wanted = self.implementation == "fused" or (self.implementation == "auto" and has_fused_attention())
        return wanted and self.can_fuse(visible.hides, bias is not None)

    def can_fuse(self, masked, biased):
        """Returns whether `fused_output` is there for this score.

        Args:
            masked: Whether anything is masked.
            biased: Whether there is a bias.
        """
        return False

    def _seen(self, visible):
        """Returns 1 for each query that sees a key and 0 for the others, [B, T, 1] or [B, N, T, 1]."""
        if not visible.hides:
            return None
        row = ops.ones_like(visible.query_positions[:, None], dtype=self.compute_dtype)  # the mask may have one for all
        return ops.cast(ops.any(visible.mask(), axis=-1, keepdims=True), self.compute_dtype) * row

    def _attend_plainly(self, query, memory, visible, bias, seed, names):
        rows = {"query": query, **visible.rows(), **({} if bias is None else {"bias": bias})}

        def attend_rows(rows, memory, index):
            results = self.attend_rows(rows["query"], memory, visible.at(rows), rows.get("bias"), seed, index)
            return tuple(results[name] for name in names)

        size = self._chunk_size(query, memory)
        if size is None:
            results = attend_rows(rows, memory, 0)
        else:
            weights, fuse = self.compare_weights(), self.pair_size() > 1
            results = map_rows(attend_rows, rows, memory, weights, len(names), self.compute_dtype, size, fuse)
        return dict(zip(names, results, strict=True))

    def _chunk_size(self, query, memory):
        """Returns how many queries make a chunk, or `None` for all at once."""
        length, keys = query.shape[-2], memory["value"].shape[-2]
        forced = self.implementation == "blockwise"
        if self.implementation == "dense" or not (forced or (isinstance(length, int) and isinstance(keys, int))):
            return None
        if not self.is_repeatable():
            return None
        sizes = (*ops.shape(query)[:-1], ops.shape(memory["value"])[-2], self.pair_size())
        known = [size if isinstance(size, int) else 1 for size in sizes]  # a batch of unknown size is at least one row
        if backend.backend() == "jax" and not all(isinstance(size, int) for size in sizes):
            return None  # Keras infers shapes with symbols, which no loop can count to
        if length == 1 or (not forced and math.prod(known) <= DENSE_LIMIT):
            return None
        pairs = functools.reduce(operator.mul, (*sizes[:-3], *sizes[-2:]))  # of one query
        if isinstance(pairs, int) and isinstance(length, int):
            return min(length, max(1, CHUNK_BUDGET // pairs))
        return ops.minimum(sizes[-3], ops.maximum(1, CHUNK_BUDGET // pairs))

    def attend_rows(self, query, memory, visible, bias=None, seed=None, chunk=0):
        """Returns the `output`, `weights` and `seen` of some of the queries, all at once.

        Args:
            query: From `project_query`, cut to some of them.
            memory: `key` and `value`, from `project_memory`.
            visible: Their `Visibility`.
            bias: Float tensor that broadcasts to their scores, or `None`.
            seed: Seed of the dropout, or `None` where it is not active.
            chunk: Number of the chunk.
        """
        scores = self.compare(query, memory["key"], visible)
        if bias is not None:
            wide = backend.result_type(scores.dtype, "float32")  # float16 holds no score beside its lowest number
            scores = ops.cast(scores, wide) + ops.cast(bias, wide)
        weights = ops.cast(self.normalize(scores, query, visible), self.compute_dtype)
        kept = weights
        if seed is not None:
            seed = seed + ops.cast(ops.stack([chunk * 40503, 0]), seed.dtype)
            kept = keras.random.dropout(weights, self.dropout, seed=_GivenSeed(seed))
        output = self.weighted_sum(kept, memory["value"], visible)
        return {"output": output, "weights": weights, "seen": self._seen(visible)}

    def fused_output(self, query, memory, visible, bias):
        """Returns the weighted sum of the values by the backend's own kernel; see `attend` for the arguments."""
        raise NotImplementedError(f"{type(self).__name__} has no fused kernel.")

    def _zero_empty_rows(self, output, seen):
        """Returns `output` [B, T, D] with zeros where a query had nothing to attend to (the projection has a bias)."""
        if seen is None:
            return output
        seen = ops.any(seen, axis=1) if self.has_heads else ops.cast(seen, "bool")  # [B, T, 1]
        return ops.where(seen, output, ops.cast(0.0, output.dtype))

    def create_cache(self, batch_size, length=None):
        """Returns an empty cache for self-attention, step by step.

        Args:
            batch_size: B.
            length: Room for positions, L; `None` for a cache that grows. What comes behind the room is lost.
        """
        if not self.built:
            raise ValueError(f"Build {type(self).__name__}, or call it, first: a cache has the sizes of its keys.")
        value, key = (ops.zeros((1, 1, size), dtype=self.compute_dtype) for size in self.memory_sizes)
        one = self.project_memory(value, key)
        rows = 0 if length is None else length
        room = {
            name: ops.zeros((batch_size, *tensor.shape[1:-2], rows, tensor.shape[-1]), dtype=tensor.dtype)
            for name, tensor in one.items()
        }
        return room if length is None else {**room, "index": ops.zeros((), dtype="int32")}

    def compute_output_spec(self, *args, **kwargs):
        # Traced: Keras would derive it from the shape of the output alone, and lose the weights and the cache.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "seed": self.seed,
            "implementation": self.implementation,
        }


def _checked_bias(bias, shape):
    """Returns a bias as a tensor of finite numbers: a row of −∞ alone, which −1e9 is in float16, has no softmax.

    Args:
        bias: Float tensor.
        shape: Of the scores, `None` for sizes that are not known.

    Raises:
        ValueError: If it is no float tensor, or does not broadcast to that shape.
    """
    bias = ops.convert_to_tensor(bias)
    dtype = backend.standardize_dtype(bias.dtype)
    if not backend.is_float_dtype(dtype):
        raise ValueError(
            f"`attention_bias` must be floating point; boolean masks go to `attention_mask`. Received: dtype={dtype}."
        )
    pairs = zip(reversed(bias.shape), reversed(shape), strict=False)
    if len(bias.shape) > len(shape) or any(masks.differ(size, wanted) and size != 1 for size, wanted in pairs):
        raise ValueError(
            f"`attention_bias` must broadcast to the scores, {shape}. Received: shape={tuple(bias.shape)}."
        )
    return ops.maximum(bias, ops.cast(-65504.0 if dtype == "float16" else -3e38, dtype))


def _with_rows(bias, length):
    """Returns a bias that broadcasts to the scores with a row for each of `length` queries."""
    bias = bias[None] if len(bias.shape) == 1 else bias
    if bias.shape[-2] != 1:
        return bias
    shape = ops.shape(bias)
    return ops.broadcast_to(bias, (*shape[:-2], length, shape[-1]))
