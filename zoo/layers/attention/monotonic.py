"""Attention that goes through the keys from the first to the last, and never back."""

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
class _Followed(Visibility):
    """Visibility of queries that follow others.

    Args:
        previous: Weights of the query before the first one, [B, S].
        seed: Seed of the noise, or `None` for none.
        decides: Whether decisions are hard.
    """

    previous: Any = None
    seed: Any = None
    decides: bool = False


@keras.saving.register_keras_serializable(package="attention_zoo")
class MonotonicAttention(Attention):
    """Hard monotonic attention, trained by its expectation: each query goes on where the one before it has stopped.

    From there query i looks at one key after the other, and stops at key j with probability p:

        e_ij = score(q_i, k_j) + r + ε_ij,   p_ij = σ(e_ij)
        q_ij = (1 − p_{i,j−1}) q_{i,j−1} + α_{i−1,j}
        α_ij = p_ij q_ij,                    α_0 = (1, 0, 0, …)

    In training α is the expected attention, and ε is noise `N(0, noise²)`, which teaches the scores to be far from 0.
    Otherwise decisions are hard: query i attends to the first key j from where the query before it has stopped, with
    `e_ij > 0`, and to nothing if there is none; then those after it attend to nothing either. Weights of a query sum to
    1 or less. Hidden keys are passed over; a masked query leaves the next one where it would have begun itself.

    Within a recurrent cell each step goes on where the step before has stopped, and the noise of all steps is drawn by
    `AttentionRNN`. In training time and memory are O(T · S²), otherwise O(T · S).

    Args:
        score: What `get_score` takes. Default: a `NormalizedAdditiveScore`.
        noise: Standard deviation of ε in training, 0 or more.
        initial_offset: r at first, a number; a negative one lets the attention look further before it has learned
            where to stop. r is learned.
        hard: Whether decisions are hard outside training; if not, weights are those of training without noise.
        **kwargs: `dropout`, `seed` and `visibility` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; there are no caches. `memory` may have `previous` [B, S],
    the weights of the query before the first one. A bias is added to e.

    Raises:
        ValueError: For a negative `noise`, or another normalisation; and if a cache is asked for.

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
    follows = True
    may_choose = False

    def __init__(self, score="normalized_additive", noise=1.0, initial_offset=-1.0, hard=True, **kwargs):
        super().__init__(score, **kwargs)
        if not noise >= 0:
            raise ValueError(f"`noise` must be a number, 0 or more. Received: noise={noise}.")
        if not self.has_softmax:
            raise ValueError(
                f"{type(self).__name__} makes weights of scores by its own rule: it takes no `normalization`. "
                f"Received: normalization={self.normalization!r}."
            )
        self.noise = noise
        self.initial_offset = initial_offset
        self.hard = hard
        self.noise_generator = keras.random.SeedGenerator(self.seed)

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        first = keras.initializers.Constant(self.initial_offset)
        self.offset = self.add_weight(name="offset", shape=(), initializer=first)

    def draw(self, memory, training):
        """Returns a memory with what is drawn once for all steps, in training."""
        if not training or not self.noise:
            return memory
        return {**memory, "seed": self.noise_generator.next()}

    def first_weights(self, batch_size, length):
        """Returns the weights before the first query, [B, S]: it begins at the first key."""
        first = ops.cast(ops.equal(ops.arange(length, dtype="int32"), 0), self.compute_dtype)
        return ops.broadcast_to(first[None], (batch_size, length))

    def attend(self, query, memory, visible, attention_bias, return_attention_scores, training):
        if "previous" not in memory:
            previous = self.first_weights(ops.shape(query)[0], ops.shape(memory["value"])[1])
            memory = self.draw({**memory, "previous": previous}, training)
        fields = {field.name: getattr(visible, field.name) for field in dataclasses.fields(Visibility)}
        followed = _Followed(
            **fields, previous=memory["previous"], seed=memory.get("seed"), decides=self.hard and not training
        )
        memory = {name: memory[name] for name in ("key", "value")}
        return super().attend(query, memory, followed, attention_bias, return_attention_scores, training)

    @property
    def needs_query_position(self):
        """Whether a single query needs its position, `start_index`: the noise of each step is another."""
        return self.noise > 0

    def normalize(self, scores, query, visible):
        scores = ops.cast(scores, "float32") + ops.cast(self.offset, "float32")
        if visible.seed is not None:
            seed = seeds_of_parts(visible.seed, visible.query_positions[0])
            scores = scores + self.noise * keras.random.normal(ops.shape(scores), seed=FixedSeed(seed))
        mask = visible.mask()
        if mask is not None:
            scores = ops.where(mask, scores, LOWEST_SCORE)
        previous = ops.cast(visible.previous, "float32")
        if has_zero(scores.shape):
            return ops.zeros_like(scores)
        step = _decide if visible.decides else _expect
        if scores.shape[1] == 1:
            return step(previous[:, None], scores)
        return self._step_by_step(step, previous, scores)

    def _step_by_step(self, step, previous, scores):
        """Returns the weights of all queries, each of which goes on from the one before."""
        real = ops.any(scores > LOWEST_SCORE, axis=-1, keepdims=True)

        def follow(before, inputs):
            scores, real = inputs
            return ops.where(real, step(before, scores), before)

        # After the last query there is one that is not real: there may be no other, and it sees what they all leave.
        inputs = [ops.pad(ops.swapaxes(tensor, 0, 1), ((0, 1), (0, 0), (0, 0))) for tensor in (scores, real)]
        before, _ = scan_states(follow, previous, inputs)
        return ops.where(real, ops.swapaxes(before, 0, 1)[:, 1:], 0.0)

    def create_cache(self, batch_size, length=None, rolling=False):
        """Raises an error: how far the queries have come is among the states of a cell, or in `memory`."""
        raise ValueError(
            f"{type(self).__name__} has no cache: give `memory=layer.project_memory(value)` with `previous`, the "
            "weights of the query before."
        )


def _expect(previous, scores):
    """Returns the expected weights of a query, [..., S], from those of the one before and its scores."""
    going_on = ops.log_sigmoid(-scores)  # log(1 − p)
    passed = ops.cumsum(going_on, axis=-1) - going_on  # of all keys before
    reached = ops.exp(
        ops.minimum(passed[..., None, :] - passed[..., None], 0.0)
    )  # from k to j: Π_{k ≤ l < j} (1 − p_l)
    later = ops.arange(ops.shape(scores)[-1])
    reached = ops.where(later[:, None] <= later, reached, 0.0)
    return ops.sigmoid(scores) * ops.squeeze(ops.matmul(previous[..., None, :], reached), -2)


def _decide(previous, scores):
    """Returns 1 for the key at which a query stops, [..., S], from the weights of the one before and its scores."""
    stops = ops.cast(scores > 0, "float32") * ops.cast(ops.cumsum(previous, axis=-1) > 0.5, "float32")
    return stops * ops.cast(ops.cumsum(stops, axis=-1) < 1.5, "float32")
