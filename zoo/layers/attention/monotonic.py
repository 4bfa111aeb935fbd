"""Monotonic attention: each query continues at the key of the previous query, and never goes back."""

import dataclasses
from typing import Any

import keras
from keras import ops

from zoo.layers.attention.single_head import Attention
from zoo.layers.core.dropout import FixedSeed, seeds_of_parts
from zoo.layers.core.loops import scan_states
from zoo.layers.core.softmax import LOWEST_SCORE
from zoo.layers.execution.plan import has_zero
from zoo.layers.visibility.visibility import Visibility


@dataclasses.dataclass(frozen=True)
class _MonotonicVisibility(Visibility):
    """A `Visibility` with the other inputs of monotonic weights.

    Args:
        previous: Weights of the query before the first one, [B, S].
        seed: Seed of the noise, or `None` for no noise.
        hard: Whether decisions are hard.
    """

    previous: Any = None
    seed: Any = None
    hard: bool = False


@keras.saving.register_keras_serializable(package="attention_zoo")
class MonotonicAttention(Attention):
    """Hard monotonic attention, trained by its expectation: each query continues where the previous query stopped.

    From that key on, query i inspects one key after another, and stops at key j with probability p:

        e_ij = score(q_i, k_j) + r + ε_ij,   p_ij = σ(e_ij)
        q_ij = (1 − p_{i,j−1}) q_{i,j−1} + α_{i−1,j}
        α_ij = p_ij q_ij,                    α_0 = (1, 0, 0, …)

    In training α is the expected attention, and ε is noise `N(0, noise²)`, which drives the scores away from 0.
    Otherwise decisions are hard: query i attends to the first key j with `e_ij > 0`, beginning where the previous query
    stopped. If there is no such key, it and all later queries attend to nothing. The weights of a query sum to 1 or
    less. Masked keys are skipped; after a masked query the next one begins where the masked query would have begun.

    In a recurrent cell the weights of a step are a state, and `AttentionRNN` draws the noise of all steps at once. Time
    and memory are O(T · S²) in training, otherwise O(T · S).

    Args:
        score: See `Attention`. Default: a `NormalizedAdditiveScore`.
        noise: Standard deviation of ε in training, 0 or more.
        initial_offset: Initial value of r, which is learned. If it is negative, an untrained layer stops late.
        hard: Whether decisions are hard outside training; otherwise weights are those of training without noise.
        **kwargs: `dropout`, `seed` and `visibility` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; there are no caches. `memory` may contain `previous`
    [B, S], the weights of the query before the first one. A bias is added to e.

    Raises:
        ValueError: For a negative `noise` or a `normalization`, and from `create_cache`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import DotScore, MonotonicAttention
        >>> query = np.array([[[1.0], [-1.0], [1.0]]], "float32")
        >>> value = np.array([[[-2.0], [3.0], [-1.0], [2.0]]], "float32")
        >>> layer = MonotonicAttention(DotScore(), initial_offset=0.0)
        >>> _, weights = layer(query, value, return_attention_scores=True)
        >>> print(weights[0].numpy().astype(int))
        [[0 1 0 0]
         [0 0 1 0]
         [0 0 0 1]]

    Reference:
        Raffel et al. 2017, "Online and Linear-Time Attention by Enforcing Monotonic Alignments", sections 2.2 to 2.5,
        equations 11 to 14, https://arxiv.org/abs/1704.00784
    """

    saved_options = ("noise", "initial_offset", "hard")
    is_recurrent = True
    supports_choosing_rules = False

    def __init__(self, score="normalized_additive", noise=1.0, initial_offset=-1.0, hard=True, **kwargs):
        super().__init__(score, **kwargs)
        if not noise >= 0:
            raise ValueError(f"`noise` must be a number, 0 or more. Received: noise={noise}.")
        if not self.has_softmax:
            raise ValueError(
                f"{type(self).__name__} takes no `normalization`: it computes weights by its own rule. "
                f"Received: normalization={self.normalization!r}."
            )
        self.noise = noise
        self.initial_offset = initial_offset
        self.hard = hard
        self.noise_generator = keras.random.SeedGenerator(self.seed)

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        initializer = keras.initializers.Constant(self.initial_offset)
        self.offset = self.add_weight(name="offset", shape=(), initializer=initializer)

    def with_noise_seed(self, memory, training):
        """Returns the memory; in training, it contains the seed of the noise for all queries or steps."""
        if not training or not self.noise:
            return memory
        return {**memory, "seed": self.noise_generator.next()}

    def initial_weights(self, batch_size, length):
        """Returns the weights before the first query, [B, S], which begins at the first key."""
        weights = ops.cast(ops.equal(ops.arange(length, dtype="int32"), 0), self.compute_dtype)
        return ops.broadcast_to(weights[None], (batch_size, length))

    def attend(self, query, memory, visibility, attention_bias, return_attention_scores, training):
        if "previous" not in memory:
            previous = self.initial_weights(ops.shape(query)[0], ops.shape(memory["value"])[1])
            memory = self.with_noise_seed({**memory, "previous": previous}, training)
        fields = {field.name: getattr(visibility, field.name) for field in dataclasses.fields(Visibility)}
        visibility = _MonotonicVisibility(
            **fields, previous=memory["previous"], seed=memory.get("seed"), hard=self.hard and not training
        )
        memory = {name: memory[name] for name in ("key", "value")}
        return super().attend(query, memory, visibility, attention_bias, return_attention_scores, training)

    @property
    def needs_query_position(self):
        return self.noise > 0  # the noise differs between positions

    def normalize(self, scores, query, visibility):
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        scores = ops.cast(scores, dtype) + ops.cast(self.offset, dtype)
        if visibility.seed is not None:
            seed = seeds_of_parts(visibility.seed, visibility.query_positions[0])
            scores = scores + self.noise * keras.random.normal(ops.shape(scores), dtype=dtype, seed=FixedSeed(seed))
        mask = visibility.mask()
        if mask is not None:
            scores = ops.where(mask, scores, ops.cast(LOWEST_SCORE, dtype))
        previous = ops.cast(visibility.previous, dtype)
        if has_zero(scores.shape):
            return ops.zeros_like(scores)
        step = _hard_weights if visibility.hard else _expected_weights
        if scores.shape[1] == 1:
            return step(previous[:, None], scores)
        return self._step_by_step(step, previous, scores)

    def _step_by_step(self, step, previous, scores):
        """Returns the weights of all queries, each computed from those of the previous query."""
        is_real = ops.any(scores > LOWEST_SCORE, axis=-1, keepdims=True)

        def next_weights(weights, inputs):
            scores, is_real = inputs
            return ops.where(is_real, step(weights, scores), weights)

        # `scan_states` returns the states before each step. A masked step at the end adds the state after the last one,
        # and guarantees a step even without queries.
        inputs = [ops.pad(ops.swapaxes(tensor, 0, 1), ((0, 1), (0, 0), (0, 0))) for tensor in (scores, is_real)]
        weights, _ = scan_states(next_weights, previous, inputs)
        return ops.where(is_real, ops.swapaxes(weights, 0, 1)[:, 1:], 0.0)

    def create_cache(self, batch_size, length=None, rolling=False):
        """Raises an error: the weights of the previous query are passed in `memory`, or are a state of a cell."""
        raise ValueError(
            f"{type(self).__name__} has no cache: pass `memory=layer.project_memory(value)`, with the weights of the "
            "previous query as `previous`."
        )


def _expected_weights(previous, scores):
    """Returns the expected weights of a query, [..., S], from the previous query's weights and its own scores."""
    log_continue = ops.log_sigmoid(-scores)  # log(1 − p)
    log_passed = ops.cumsum(log_continue, axis=-1) - log_continue  # all keys before
    # From k to j: Π_{k ≤ l < j} (1 − p_l).
    reached = ops.exp(ops.minimum(log_passed[..., None, :] - log_passed[..., None], 0.0))
    positions = ops.arange(ops.shape(scores)[-1], dtype="int32")
    reached = ops.where(positions[:, None] <= positions, reached, 0.0)
    return ops.sigmoid(scores) * ops.squeeze(ops.matmul(previous[..., None, :], reached), -2)


def _hard_weights(previous, scores):
    """Returns 1 at the key at which a query stops, [..., S], from the previous query's weights and its own scores."""
    stops = ops.cast(scores > 0, scores.dtype) * ops.cast(ops.cumsum(previous, axis=-1) > 0.5, scores.dtype)
    return stops * ops.cast(ops.cumsum(stops, axis=-1) < 1.5, scores.dtype)
