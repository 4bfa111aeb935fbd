"""An attention layer in a situation: how it is called, and what the references say must come out."""

import contextlib
import dataclasses
from dataclasses import dataclass

import keras
import numpy as np
import pytest
from keras import ops
from support.layers import references
from support.layers.contract import compiled, random_array, randomize, to_numpy
from support.layers.differentiation import DIFFERENTIATED, call_stateless, with_unknown_lengths

from zoo import layers
from zoo.layers.attention.state_attention import StateAttention
from zoo.layers.execution import plan

BACKEND = keras.backend.backend()

ROOM = 2  # places of a cache that stay empty

RATE = 0.5

LARGE = 140.0  # products of queries and keys of this size are beyond float16 until they are scaled

WITH_STATES = (layers.LinearAttention, StateAttention)  # whose caches hold no keys

VECTORS = ("query_mask", "value_mask", "key_mask")


@dataclass(frozen=True)
class Situation:
    """What a layer is called with, and how.

    Args:
        sizes: B, T and S.
        query_mask: What the mask is: `None`, "some" (random), "all but one" (one sequence is hidden) or "all" (hidden).
        value_mask: Likewise.
        key_mask: Likewise.
        attention_mask: `None`, or a random mask of "pairs" [B, T, S], "shared" [B, 1, T, S] or "heads" [B, N, T, S];
            without a head axis, all are pairs.
        causal: Whether there is a causal mask.
        start: `start_index`.
        bias: `None`, or a random bias of "keys" [1, S], "pairs" [T, S] or "all" [B, N, T, S].
        cached: Whether all keys but the last T are in a cache already; where there cannot be a cache, a causal mask.
        grows: Whether that cache grows, and does not have room for more.
        tells: Whether the call tells the segments of the queries and not only those of the keys.
        policy: Dtype policy.
        mode: "eager", "graph", "xla" or, on TensorFlow, "unknown": a graph that does not know the lengths.
        training: Whether dropout is active.
        backward: Whether gradients are worked out, too.
        implementation: Of the layer.
        budget: `CHUNK_BUDGET`; with 1, each query is a chunk.
        poison: What replaces hidden positions: "huge" numbers, also those that pairs hide, or "nan".
        large: Whether queries and keys are so large that float16 only just holds their scores, where these are scaled.
        seed: Of masks and biases.
    """

    sizes: tuple[int, int, int] = (2, 3, 5)
    query_mask: str | None = None
    value_mask: str | None = None
    key_mask: str | None = None
    attention_mask: str | None = None
    causal: bool = False
    start: int | None = None
    bias: str | None = None
    cached: bool = False
    grows: bool = False
    tells: bool = False
    policy: str = "float32"
    mode: str = "eager"
    training: bool = False
    backward: bool = False
    implementation: str = "auto"
    budget: int = 1
    poison: str = "nan"
    large: bool = False
    seed: int = 0

    def suited(self, case, layer):
        """Returns this situation without what the layer does not have."""
        changes = {}
        if self.attention_mask and not layer.has_heads:
            changes["attention_mask"] = "pairs"
        if not _has_scaled_products(layer):
            changes["large"] = False
        if isinstance(layer, StateAttention):
            changes |= {"causal": True, "bias": None} | ({} if layer.supports_pair_masks else {"attention_mask": None})
        if isinstance(layer, layers.MonotonicAttention):
            changes["cached"] = False
            if layer.hard:
                changes |= {"policy": "float32", "training": False}  # it decides
        if references.choice(layer.visibility) is not None:
            changes["policy"] = "float32"  # a choice changes with the rounding of scores
        if self.cached:
            changes |= {"causal": True, "start": None}
            # A place is predicted from the number of keys, which in a cache is not that of a full pass.
            if self.sizes[1] > self.sizes[2] or getattr(layer, "alignment", None) == "predictive":
                changes["cached"] = False
            elif isinstance(layer, WITH_STATES):
                changes |= {"attention_mask": None, "bias": None}
        return dataclasses.replace(self, **changes)


def _has_scaled_products(layer):
    plain = not isinstance(layer, WITH_STATES)
    return plain and isinstance(getattr(layer, "score", None), layers.ScaledDotScore)


_built, _plain = {}, {}  # layers, and their weights without masks


def layer_of(case, policy):
    """Returns the layer of a case with dropout, the same each time: building takes as long as several calls."""
    if (case.name, policy) not in _built:
        layer = case.make(policy)
        if not isinstance(layer, WITH_STATES):
            layer = type(layer).from_config({**layer.get_config(), "dropout": RATE, "seed": 3})
        layer.build(*case.inputs.values())
        _built[case.name, policy] = randomize(layer)
    return _built[case.name, policy]


class Matrix:
    """One layer in one situation: its inputs and masks, and what the reference makes of them.

    Attributes:
        shape: (B, N, T, S).
        floats: `query`, `value` and `key`; `attention_bias` if there is one; `earlier` queries, if there is a cache.
        masks: Those that are given, as they are given.
        full: All masks, where those that are not given allow everything.
        visible: Their conjunction, [B, N, T, S].
        allowed: What of it the layer's rule chooses, mostly all.
        weights: Expected, [B, N, T, S].
        output: Expected, [B, T, D].
    """

    def __init__(self, case, situation):
        self.case, self.exact = case, layer_of(case, "float32")
        self.situation = situation = situation.suited(case, self.exact)
        self.layer = layer_of(case, situation.policy)
        batch, queries, keys = situation.sizes
        self.shape = (batch, case.weights[1] if self.layer.has_heads else 1, queries, keys)
        self.first = references.first_place(self.layer, queries, keys, situation.causal, situation.start)
        self.floats = self._floats()
        self.full = self._full_masks()
        self.masks = {name: mask for name, mask in self.full.items() if getattr(situation, name)}
        self.told = self._told()
        self.visible = self.allowed = references.visible(
            self.layer, self.shape, self.full, situation.causal, self.first, self._told_of_pair
        )
        self.bias = np.broadcast_to(self.floats.get("attention_bias", np.zeros(1)), self.shape)
        if not self.layer.has_heads:  # [B, T, S] as arguments
            for arrays in (self.floats, self.masks):
                for name in ("attention_bias", "attention_mask"):
                    if name in arrays and arrays[name].ndim == 4:
                        arrays[name] = arrays[name][:, 0]
        elif situation.attention_mask == "shared" or (
            situation.attention_mask == "pairs" and self.shape[0] == self.shape[1] != 1
        ):  # of rank 3, the first axis could be that of the heads as well, which is refused
            self.masks["attention_mask"] = self.masks["attention_mask"][:, :1]
        elif situation.attention_mask == "pairs":
            self.masks["attention_mask"] = self.masks["attention_mask"][:, 0]
        self.weights = self._expected_weights()
        query, value = self.floats["query"], self.floats["value"]
        if isinstance(self.exact, StateAttention):
            self.output = references.of_states(self.exact, query, value, self.weights, self.allowed)
        else:
            self.output = references.output(self.exact, query, value, self.weights, self.first)

    def _floats(self):
        batch, heads, queries, keys = self.shape
        lengths = {"query": queries, "value": keys, "key": keys}
        # Of the sizes alone, so that the weights without masks are worked out once.
        floats = {
            name: random_array((batch, lengths[name], shape[-1]), [queries, keys, index])
            for index, (name, shape) in enumerate(self.case.inputs.items())
        }
        if self.situation.large:
            floats |= {name: floats[name] * np.float32(LARGE) for name in ("query", "key")}
        if self.situation.bias:
            shape = {"keys": (1, keys), "pairs": (queries, keys), "all": self.shape}[self.situation.bias]
            floats["attention_bias"] = random_array(shape, [self.situation.seed, 11])
        if self.situation.cached and keys > queries:
            floats["earlier"] = random_array((batch, keys - queries, floats["query"].shape[-1]), 5)
        return floats

    def _full_masks(self):
        batch, heads, queries, keys = self.shape
        shapes = {"query_mask": (batch, queries), "value_mask": (batch, keys), "key_mask": (batch, keys)}
        masks = {
            name: _random_mask(getattr(self.situation, name), shape, [self.situation.seed, index])
            for index, (name, shape) in enumerate(shapes.items())
        }
        kind = self.situation.attention_mask
        shape = {None: (1, 1, 1, 1), "heads": self.shape}.get(kind, (batch, 1, queries, keys))
        masks["attention_mask"] = np.broadcast_to(
            _random_mask(kind and "some", shape, [self.situation.seed, 7]), self.shape
        )
        return masks

    def _told(self):
        """Returns what the call tells the layer's rule, by name, and keeps what it says of the queries."""
        batch, _, queries, keys = self.shape
        rng, needs = np.random.default_rng([self.situation.seed, 13]), getattr(self.layer.visibility, "needs", ())
        told = {
            "segment_ids": np.sort(rng.integers(0, 3, (batch, keys)), axis=1),
            "query_segment_ids": rng.integers(0, 3, (batch, queries)),
            "prefix_length": rng.integers(0, keys + 2, batch),
        }
        self.query_segments = told["query_segment_ids"]
        if not self.situation.tells:
            del told["query_segment_ids"]
            places = self.first + np.arange(queries)
            inside, has_keys = (places >= 0) & (places < keys), np.clip(places, 0, max(keys - 1, 0))
            if keys:
                self.query_segments = np.where(inside, told["segment_ids"][:, has_keys], -1)
        return {name: told[name].astype("int32") for name in told if name in needs}

    def _told_of_pair(self, b, t, s):
        of_pair = {"query_segment_ids": self.query_segments[b, t]} if "segment_ids" in self.told else {}
        places = {"segment_ids": (b, s), "prefix_length": (b,)}
        return of_pair | {name: self.told[name][place] for name, place in places.items() if name in self.told}

    def _expected_weights(self):
        situation, keys = self.situation, self.shape[-1]
        chooses = references.choice(self.layer.visibility)
        setting = (self.case.name, situation.sizes, self.first, situation.large, situation.seed * bool(self.told))
        setting += (situation.tells and bool(self.told),)
        if setting not in _plain:
            self.exact.implementation = "dense"
            inputs = (self.floats[name] for name in ("query", "value", "key"))
            needs_scores = chooses or not self.exact.has_softmax
            with _scores_as_weights(self.exact) if needs_scores else contextlib.nullcontext():
                _, plain = self.exact(*inputs, start_index=self.first, return_attention_scores=True, **self.told)
            _plain[setting] = to_numpy(plain).reshape(self.shape).astype("float64")
        plain = _plain[setting]
        if isinstance(self.exact, layers.MonotonicAttention):
            return references.monotonic(self.exact, self.floats, self.allowed, self.bias)
        if isinstance(self.exact, layers.DifferentialAttention):
            return references.difference(self.exact, self._both_parts(), self.allowed, self.bias)
        if isinstance(self.exact, StateAttention):
            hidden = ~(self.full["value_mask"] & self.full["key_mask"])
            if hidden.any() and not self.exact.supports_pair_masks:
                plain = references.state_weights(self.exact, self.floats, hidden, self.first)
            return np.where(self.allowed, plain, 0.0)
        if chooses:
            self.allowed = references.chosen(chooses, plain, self.visible, self.first)
        if chooses or not self.exact.has_softmax:
            return references.weights_of_scores(self.exact, plain, self.allowed, self.bias)
        if self.case.whole:
            return references.weights(plain, self.allowed, self.bias)
        lengths = np.sum(self.full["value_mask"] & self.full["key_mask"], axis=1)
        query = self.floats["query"]
        plain = plain / references.gaussian(self.exact, query, np.full(len(query), keys), self.shape)
        weights = references.weights(plain, self.allowed, self.bias)
        return weights * references.gaussian(self.exact, query, lengths, self.shape)

    def _both_parts(self):
        """Returns both softmaxes of differential attention, without masks or bias."""
        results = []
        for part in (0.0, 1.0):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self.exact, "subtracted_part", lambda part=part: ops.convert_to_tensor(part))
                inputs = (self.floats[name] for name in ("query", "value", "key"))
                _, plain = self.exact(*inputs, start_index=self.first, return_attention_scores=True)
                results.append(to_numpy(plain).astype("float64"))
        return results[0], results[0] - results[1]

    # Calls.

    def call(self, floats, others, scores=True):
        """Returns a tuple of the output and, with `scores`, the weights; keys in the cache that stay empty are cut."""
        results = self._call(dict(floats), dict(others), scores)
        dtypes = {keras.backend.standardize_dtype(result.dtype) for result in results}
        assert dtypes == {self.layer.compute_dtype}, "results are in the compute dtype"
        return results

    def _call(self, floats, others, scores):
        situation = self.situation
        query, value, key = (floats.pop(name) for name in ("query", "value", "key"))
        options = {"training": situation.training, "return_attention_scores": scores}
        if not situation.cached:
            return _as_tuple(
                self.layer(query, value, key, use_causal_mask=situation.causal, **floats, **others, **options)
            )
        keys = self.shape[-1]
        before = keys - self.shape[-2]
        grows = situation.grows and not isinstance(self.layer, WITH_STATES)
        cache = self.layer.create_cache(self.shape[0], None if grows else keys + ROOM)
        earlier = floats.pop("earlier", None)
        for name in ("attention_bias", "attention_mask", "value_mask", "key_mask", "segment_ids"):
            for arguments in (floats, others):
                if name in arguments and not grows:
                    arguments[name] = _with_room(arguments[name])
        if before:
            hidden = {name: others[name] for name in ("value_mask", "key_mask", "segment_ids") if name in others}
            hidden = {name: each[:, :before] if grows else each for name, each in hidden.items()}
            hidden |= {"prefix_length": others["prefix_length"]} if "prefix_length" in others else {}
            cache = self.layer(earlier, value[:, :before], key[:, :before], cache=cache, **hidden)[-1]
        results = self.layer(query, value[:, before:], key[:, before:], cache=cache, **floats, **others, **options)
        return (results[0], *(weights[..., :keys] for weights in results[1:-1]))

    @property
    def has_weights(self):
        """Whether weights can be asked for."""
        return not (self.situation.cached and isinstance(self.layer, WITH_STATES))

    def function(self, scores, backward=False):
        """Returns a function of the floats, in the mode of the situation: results, and gradients by name.

        Args:
            scores: Whether the weights are asked for.
            backward: Whether the gradients of a random projection of the results are worked out; without, there are
                none.
        """

        def call(floats, others):
            return self.call(floats, others, scores)

        def loss(results):
            shapes = [self.output.shape, self.shape if self.layer.has_heads else (self.shape[0], *self.shape[2:])]
            pairs = zip(results, shapes, strict=False)
            return sum(ops.sum(ops.cast(each, "float32") * _direction(shape)) for each, shape in pairs)

        if backward:
            function = DIFFERENTIATED[BACKEND](call, loss, self.layer)
        else:

            def function(*inputs):
                return call_stateless(self.layer, lambda: call(*inputs)), {}

        mode = self.situation.mode
        if mode == "unknown" and BACKEND == "tensorflow":
            function = with_unknown_lengths(function)
        elif mode != "eager":
            function = compiled(function, mode == "xla")

        def run(floats):
            others = {**self.masks, **self.told}
            if self.situation.start is not None:
                others["start_index"] = np.int32(self.situation.start)
            self._prepare()
            results = function(
                {name: ops.convert_to_tensor(value) for name, value in floats.items()},
                {name: ops.convert_to_tensor(value) for name, value in others.items()},
            )
            return keras.tree.map_structure(to_numpy, results)

        return run

    def _prepare(self):
        """Sets what the situation says of the layer, and lets every call drop the same weights."""
        self.layer.implementation = self.situation.implementation
        plan.CHUNK_BUDGET = self.situation.budget
        if self.layer.dropout:
            state = self.layer.dropout_layer.seed_generator.state
            state.assign(np.ones(state.shape, "uint32"))


def _direction(shape):
    return ops.convert_to_tensor(random_array(shape, 97))


def _random_mask(kind, shape, seed):
    mask = np.ones(shape, bool) if kind is None else np.random.default_rng(seed).random(shape) < 0.6
    if kind in ("all", "all but one"):
        mask[: 1 if kind == "all but one" else None] = False
    return mask


def _with_room(tensor):
    """Returns masks and biases with the places that stay empty, which need no mask."""
    ends = ops.ones_like(tensor[..., :1])
    return ops.concatenate([tensor] + [ends] * ROOM, axis=-1)


@contextlib.contextmanager
def _scores_as_weights(layer):
    """Makes a layer return its scores in place of its weights."""
    layer.normalize = lambda scores, query, visibility: scores
    yield
    del layer.normalize


def _as_tuple(results):
    return results if isinstance(results, tuple) else (results,)
