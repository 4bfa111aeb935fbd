"""The attention contract as one matrix: every attention layer in any situation, against float64 loops.

A situation is drawn by Hypothesis: sizes, masks, bias, cache, dtype policy, mode, implementation, training. One test
checks all that the contract promises there; see references.py for what must come out.
"""

import dataclasses
import zlib
from dataclasses import dataclass

import keras
import numpy as np
import pytest
import references
from cases import CASES, first_of_each_class, with_each
from contract import arrays, compiled, random_array, randomize, to_numpy
from hypothesis import Phase, example, given, note, seed, settings
from hypothesis import strategies as st
from keras import ops

from zoo import layers
from zoo.layers.attention import linear as linear_attention
from zoo.layers.attention import sliding_window as sliding_window_attention
from zoo.layers.core import execution

BACKEND = keras.backend.backend()
# JAX compiles each operation for each size, which takes it minutes for what takes TensorFlow seconds.
BRIEF = BACKEND == "jax"
ROOM = 2  # places of a cache that stay empty
RATE = 0.5
TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 0.06, "mixed_float16": 0.01}
SUM_TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 2**-8, "mixed_float16": 2**-11}  # weights rounded once
# What hidden positions are filled with; in float16, larger numbers leave the range in the projections.
HUGE = {"float32": 1e4, "mixed_bfloat16": 1e4, "mixed_float16": 1e2}
LARGE = 140.0  # products of queries and keys of this size are beyond float16 until they are scaled
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
        policy: Dtype policy.
        mode: "eager", "graph" or "xla".
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
        if self.cached:
            changes |= {"causal": True, "start": None}
            # A place is predicted from the number of keys, which in a cache is not that of a full pass.
            if self.sizes[1] > self.sizes[2] or not case.whole:
                changes["cached"] = False
            elif isinstance(layer, layers.LinearAttention):
                changes |= {"attention_mask": None, "bias": None}
        return dataclasses.replace(self, **changes)


def _has_scaled_products(layer):
    plain = not isinstance(layer, layers.LinearAttention)
    return plain and isinstance(getattr(layer, "score", None), layers.ScaledDotScore)


def _draw(often, *rarely):
    """Returns a strategy for a value that is mostly the first."""
    return st.sampled_from([often] * (len(rarely) + 1) + list(rarely))


def situations(sizes, modes):
    """Returns a strategy; the simplest situation is a decoding step, a single query that sees all keys."""
    return st.builds(
        Situation,
        sizes=sizes,
        **dict.fromkeys(VECTORS, _draw(None, "some", "all but one", "all")),
        attention_mask=_draw(None, "pairs", "shared", "heads"),
        causal=st.sampled_from([True, False]),
        start=_draw(None, -1, 0, 2, 4),
        bias=_draw(None, "keys", "pairs", "all"),
        cached=_draw(False, True),
        policy=_draw("float32", "mixed_bfloat16", "mixed_float16"),
        mode=st.sampled_from(modes),
        training=_draw(False, True),
        backward=st.booleans(),
        implementation=st.sampled_from(["auto", "dense", "blockwise", "fused"]),
        budget=st.sampled_from([1, 300]),
        poison=st.sampled_from(["nan", "huge"]),
        large=st.sampled_from([False] * 5 + [True]),
        seed=st.integers(0, 99),
    )


def _narrow(case, **windows):
    """Returns a case whose windows are narrower than the sequences."""

    def make(policy):
        layer = case.make(policy)
        for name, value in windows.items():
            setattr(layer, name, value)
        return layer

    return dataclasses.replace(case, name=f"narrow_{case.name}", make=make)


_BY_NAME = {case.name: case for case in CASES}
# Positions come with a multi-head layer.
_WHOLE = [case for case in CASES if isinstance(case.make("float32"), layers.BaseAttention)]
if BRIEF:
    _WHOLE = first_of_each_class(_WHOLE)
MATRIX = _WHOLE + [
    _narrow(_BY_NAME["sliding_window_attention"], window=1),
    _narrow(_BY_NAME["block_local_attention"], block_size=2),
    _narrow(_BY_NAME["monotonic_local_attention"], window=1),
]
every_case = pytest.mark.parametrize("case", MATRIX, ids=lambda case: case.name)
one_of_each = with_each(MATRIX)

_built, _plain = {}, {}  # layers, and their weights without masks


def _layer(case, policy):
    """Returns the layer of a case with dropout, the same each time: building takes as long as several calls."""
    if (case.name, policy) not in _built:
        layer = case.make(policy)
        if not isinstance(layer, layers.LinearAttention):
            layer = type(layer).from_config({**layer.get_config(), "dropout": RATE, "seed": 3})
        layer.build(*case.inputs.values())
        _built[case.name, policy] = randomize(layer)
    return _built[case.name, policy]


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Makes several chunks and blocks out of a few positions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "DENSE_LIMIT", 200)
        patch.setattr(execution, "CHUNK_BUDGET", 1)
        patch.setattr(sliding_window_attention, "MIN_ROWS", 2)
        patch.setattr(linear_attention, "BLOCK_SIZE", 2)
        yield


class Matrix:
    """One layer in one situation: its inputs and masks, and what the reference makes of them.

    Attributes:
        shape: (B, N, T, S).
        floats: `query`, `value` and `key`; `attention_bias` if there is one; `earlier` queries, if there is a cache.
        masks: Those that are given, as they are given.
        full: All masks, where those that are not given allow everything.
        allowed: Their conjunction, [B, N, T, S].
        weights: Expected, [B, N, T, S].
        output: Expected, [B, T, D].
    """

    def __init__(self, case, situation):
        self.case, self.layer = case, _layer(case, situation.policy)
        self.exact = _layer(case, "float32")
        self.situation = situation = situation.suited(case, self.layer)
        batch, queries, keys = situation.sizes
        self.shape = (batch, case.weights[1] if self.layer.has_heads else 1, queries, keys)
        self.first = references.first_place(self.layer, queries, keys, situation.causal, situation.start)
        self.floats = self._floats()
        self.full = self._full_masks()
        self.masks = {name: mask for name, mask in self.full.items() if getattr(situation, name)}
        self.allowed = references.visible(self.layer, self.shape, self.full, situation.causal, self.first)
        self.bias = np.broadcast_to(self.floats.get("attention_bias", np.zeros(1)), self.shape)
        if not self.layer.has_heads:  # [B, T, S] as arguments
            for arrays in (self.floats, self.masks):
                for name in ("attention_bias", "attention_mask"):
                    if name in arrays and arrays[name].ndim == 4:
                        arrays[name] = arrays[name][:, 0]
        elif situation.attention_mask == "pairs":
            self.masks["attention_mask"] = self.masks["attention_mask"][:, 0]
        elif situation.attention_mask == "shared":
            self.masks["attention_mask"] = self.masks["attention_mask"][:, :1]
        self.weights = self._expected_weights()
        self.output = references.output(self.exact, self.floats["value"], self.weights, self.first)

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

    def _expected_weights(self):
        situation, keys = self.situation, self.shape[-1]
        setting = (self.case.name, situation.sizes, self.first, situation.large)
        if setting not in _plain:
            self.exact.implementation = "dense"
            inputs = (self.floats[name] for name in ("query", "value", "key"))
            _, plain = self.exact(*inputs, start_index=self.first, return_attention_scores=True)
            _plain[setting] = to_numpy(plain).reshape(self.shape).astype("float64")
        plain = _plain[setting]
        if self.case.whole:
            return references.weights(plain, self.allowed, self.bias)
        lengths = np.sum(self.full["value_mask"] & self.full["key_mask"], axis=1)
        query = self.floats["query"]
        plain = plain / references.gaussian(self.exact, query, np.full(len(query), keys), self.shape)
        weights = references.weights(plain, self.allowed, self.bias)
        return weights * references.gaussian(self.exact, query, lengths, self.shape)

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
        cache, earlier = self.layer.create_cache(self.shape[0], keys + ROOM), floats.pop("earlier", None)
        for name in ("attention_bias", "attention_mask", "value_mask", "key_mask"):
            for arguments in (floats, others):
                if name in arguments:
                    arguments[name] = _with_room(arguments[name])
        if before:
            hidden = {name: others[name] for name in ("value_mask", "key_mask") if name in others}
            cache = self.layer(earlier, value[:, :before], key[:, :before], cache=cache, **hidden)[-1]
        results = self.layer(query, value[:, before:], key[:, before:], cache=cache, **floats, **others, **options)
        return (results[0], *(weights[..., :keys] for weights in results[1:-1]))

    @property
    def has_weights(self):
        """Whether weights can be asked for."""
        return not (self.situation.cached and isinstance(self.layer, layers.LinearAttention))

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
            return sum(ops.sum(ops.cast(each, "float32") * _direction(each)) for each in results)

        if backward:
            differentiated = {"tensorflow": _tensorflow_gradients, "jax": _jax_gradients, "torch": _torch_gradients}
            function = differentiated[BACKEND](call, loss, self.layer)
        else:

            def function(*inputs):
                return _stateless(self.layer, lambda: call(*inputs)), {}

        mode = self.situation.mode
        function = function if mode == "eager" else compiled(function, mode == "xla")

        def run(floats):
            others = dict(self.masks)
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
        execution.CHUNK_BUDGET = self.situation.budget
        if self.layer.dropout:
            state = self.layer.dropout_layer.seed_generator.state
            state.assign(np.ones(state.shape, "uint32"))


def _direction(tensor):
    return ops.convert_to_tensor(random_array(tuple(int(size) for size in tensor.shape), 97))


def _random_mask(kind, shape, seed):
    mask = np.ones(shape, bool) if kind is None else np.random.default_rng(seed).random(shape) < 0.6
    if kind in ("all", "all but one"):
        mask[: 1 if kind == "all but one" else None] = False
    return mask


def _with_room(tensor):
    """Returns masks and biases with the places that stay empty, which need no mask."""
    ends = ops.ones_like(tensor[..., :1])
    return ops.concatenate([tensor] + [ends] * ROOM, axis=-1)


def _as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def _stateless(layer, function, variables=(), values=()):
    """Returns `function()`; JAX allows no change of a seed while it traces."""
    if BACKEND != "jax":
        return function()
    seeds = layer.non_trainable_variables
    mapping = [*((seed, seed.value) for seed in seeds), *zip(variables, values, strict=True)]
    with keras.StatelessScope(state_mapping=mapping):
        return function()


def _tensorflow_gradients(function, loss, layer):
    import tensorflow as tf

    def run(floats, others):
        with tf.GradientTape() as tape:
            tape.watch(list(floats.values()))
            results = function(floats, others)
            total = loss(results)
        sources = {**floats, **{variable.path: variable.value for variable in layer.trainable_variables}}
        found = tape.gradient(total, list(sources.values()), unconnected_gradients="zero")
        return results, dict(zip(sources, map(tf.convert_to_tensor, found), strict=True))

    return run


def _jax_gradients(function, loss, layer):
    import jax

    variables = layer.trainable_variables

    def run(floats, others):
        def stateless(floats, values):
            results = _stateless(layer, lambda: function(floats, others), variables, values)
            return loss(results), results

        values = [variable.value for variable in variables]
        found, results = jax.grad(stateless, argnums=(0, 1), has_aux=True)(floats, values)
        return results, {**found[0], **dict(zip([variable.path for variable in variables], found[1], strict=True))}

    return run


def _torch_gradients(function, loss, layer):
    import torch

    def run(floats, others):
        floats = {name: tensor.detach().requires_grad_() for name, tensor in floats.items()}
        results = function(floats, others)
        sources = {**floats, **{variable.path: variable.value for variable in layer.trainable_variables}}
        found = torch.autograd.grad(loss(results), list(sources.values()), allow_unused=True)
        found = [torch.zeros_like(x) if g is None else g for x, g in zip(sources.values(), found, strict=True)]
        return tuple(each.detach() for each in results), dict(zip(sources, found, strict=True))

    return run


# Checks.


def _check_weights(matrix, weights):
    situation = matrix.situation
    shape = matrix.shape if matrix.layer.has_heads else (matrix.shape[0], *matrix.shape[2:])
    assert weights.shape == shape
    weights = weights.reshape(matrix.shape)
    assert np.all(np.isfinite(weights)), "weights are finite"
    np.testing.assert_array_equal(weights[~matrix.allowed], 0.0, "weights are zero where the mask forbids")
    if not situation.large:
        clear = matrix.allowed & (matrix.weights > 1e-5)
        assert np.all(weights[clear] > 0), "weights are positive where the mask allows"
        _assert_near(weights, matrix.weights, TOLERANCE[situation.policy], "weights of the reference, without dropout")
    if matrix.case.whole:
        sums, seen = weights.sum(axis=-1), matrix.allowed.any(axis=-1)
        np.testing.assert_allclose(
            sums, seen, atol=SUM_TOLERANCE[situation.policy], err_msg="weights of a row sum to 1"
        )


def _check_output(matrix, output):
    situation = matrix.situation
    assert output.shape == matrix.output.shape
    assert np.all(np.isfinite(output)), "output is finite"
    empty = ~matrix.allowed.any(axis=(1, 3))
    np.testing.assert_array_equal(output[empty], 0.0, "output is zero where a query sees nothing")
    if situation.training and matrix.layer.dropout:
        if not matrix.layer.has_heads and situation.policy == "float32":
            _check_dropped(matrix, output)
    elif not situation.large:
        _assert_near(output, matrix.output, TOLERANCE[situation.policy], "output of the reference")


def _check_dropped(matrix, output):
    """Checks that each weight has been dropped, or divided by the rate of those that are kept."""
    for b in range(len(output)):
        # Values are longer than there are keys: the output tells with which weights they were added.
        kept = output[b] @ np.linalg.pinv(matrix.floats["value"][b].astype("float64"))
        full = matrix.weights[b, 0] / (1 - RATE)
        either = np.minimum(np.abs(kept), np.abs(kept - full))
        assert np.all(either < 1e-4), "weights are dropped or scaled up"


def _check_gradients(matrix, gradients):
    situation = matrix.situation
    for name, gradient in gradients.items():
        assert np.all(np.isfinite(gradient)), f"gradient of {name} is finite"
    seen_keys, seen_queries = matrix.allowed.any(axis=(1, 2)), matrix.allowed.any(axis=(1, 3))
    for name, seen in (("query", seen_queries), ("value", seen_keys), ("key", seen_keys)):
        if name == "query" or not situation.cached:
            np.testing.assert_array_equal(gradients[name][~seen], 0.0, f"gradient of a {name} without effect is zero")
    if situation.policy == "float32" and not (situation.training or situation.large):
        dense = dataclasses.replace(situation, mode="eager", implementation="dense", cached=False)
        dense = Matrix(matrix.case, dense)
        _, expected = dense.function(scores=matrix.has_weights, backward=True)(dense.floats)
        for name in expected:
            _assert_near(gradients[name], expected[name], 1e-4, f"gradient of {name} as of the dense path")


def _check_poison(matrix, function, before, gradients):
    """Checks that what masks hide has no effect, not on a single bit."""
    situation = matrix.situation
    poisoned, hidden_key = _poisoned(matrix)
    results, changed = function(poisoned)
    same = np.ones(matrix.shape[:3], bool) if hidden_key is None else ~matrix.allowed[..., hidden_key]
    what = f"hidden positions ({situation.poison}) change nothing"
    rows = same.all(axis=1)
    np.testing.assert_array_equal(results[0][rows], before[0][rows], f"{what} in the output")
    if matrix.has_weights:
        weights, expected = (each[1].reshape(matrix.shape) for each in (results, before))
        np.testing.assert_array_equal(weights[same], expected[same], f"{what} in the weights")
    if hidden_key is None:
        for name, gradient in changed.items():
            np.testing.assert_array_equal(gradient, gradients[name], f"{what} in the gradient of {name}")


def _poisoned(matrix):
    """Returns the inputs with hidden positions replaced, and the key that only pairs hide, or `None`."""
    situation = matrix.situation
    hidden = {"query": ~matrix.full["query_mask"], "key": ~(matrix.full["value_mask"] & matrix.full["key_mask"])}
    hidden["value"] = hidden["key"]
    key = None
    if situation.poison == "huge" and not matrix.allowed.all():
        key = int(np.argmin(matrix.allowed.sum(axis=(0, 1, 2))))  # the one that the fewest queries see
    floats = dict(matrix.floats)
    for name, mask in hidden.items():
        if key is not None and name != "query":
            mask = mask | (np.arange(mask.shape[1]) == key)
        bad = np.float32(np.nan if situation.poison == "nan" else HUGE[situation.policy])
        bad = bad * random_array(floats[name].shape, 89)
        floats[name] = np.where(mask[:, :, None], bad, floats[name])
    return floats, key


def _check_unasked(matrix, output):
    (unasked,), _ = matrix.function(scores=False)(matrix.floats)
    told = "asking for the weights changes nothing"
    if matrix.situation.mode == "eager" and BACKEND != "jax":
        np.testing.assert_array_equal(unasked, output, told)
    else:  # another program, which a compiler arranges in another way; JAX compiles loops in any mode
        _assert_near(unasked, output, TOLERANCE[matrix.situation.policy], told)


def _check_symbolic(matrix, results):
    inputs = (keras.KerasTensor(matrix.floats[name].shape) for name in ("query", "value", "key"))
    specs = matrix.layer(*inputs, use_causal_mask=matrix.situation.causal, return_attention_scores=True)
    for spec, result in zip(specs, results, strict=False):
        assert spec.shape == result.shape, "symbolic shapes are the true ones"


def _assert_near(result, expected, tolerance, told):
    atol = tolerance * max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(result, expected, rtol=0, atol=atol, err_msg=told)


def _check_additive_masks(case):
    layer, shapes = _layer(case, "float32"), {"query_mask": (2, 3), "value_mask": (2, 5), "key_mask": (2, 5)}
    for name, shape in {**shapes, "attention_mask": (2, 3, 5)}.items():
        with pytest.raises(ValueError, match=f"`{name}` must be boolean"):
            layer(*arrays(case).values(), **{name: np.full(shape, -1e9, "float32")})


def _rows(mask):
    """Returns a mask in a form that can be read: nested lists of rows such as 110."""
    return "".join(str(int(each)) for each in mask) if mask.ndim == 1 else [_rows(each) for each in mask]


def check(case, situation):
    """Checks all that the contract says of a layer in a situation."""
    if situation.attention_mask == "additive":
        return _check_additive_masks(case)
    matrix = Matrix(case, situation)
    note(f"suited to the layer: {matrix.situation}, implementation of the case: {case.make('float32').implementation}")
    for name, mask in {**matrix.masks, "allowed": matrix.allowed}.items():
        note(f"{name}, {mask.shape}: {_rows(mask)}")
    note(f"place of the first query: {matrix.first}")
    function = matrix.function(scores=matrix.has_weights, backward=matrix.situation.backward)
    results, gradients = function(matrix.floats)
    _check_output(matrix, results[0])
    if matrix.has_weights:
        _check_weights(matrix, results[1])
        _check_unasked(matrix, results[0])
    if gradients:
        _check_gradients(matrix, gradients)
    if not matrix.allowed.all():
        _check_poison(matrix, function, results, gradients)
    if matrix.situation.mode != "eager":
        _check_symbolic(matrix, results)


EXAMPLES = (
    # What Keras' own layers get wrong, what ours got wrong, and what is rarely drawn: one of each.
    Situation(query_mask="some", value_mask="all but one", implementation="fused", backward=True),  # ignored; uniform
    Situation(  # NaN in rows to spare of the last chunk
        sizes=(1, 5, 3),
        attention_mask="heads",
        causal=True,
        bias="all",
        implementation="blockwise",
        budget=50,
        backward=True,
    ),
    Situation(sizes=(2, 2, 5), cached=True, value_mask="some"),
)
MORE = (
    # What Keras' own layers get wrong, and what they do then.
    Situation(sizes=(2, 1, 5), causal=True, implementation="fused"),  # see key 0 alone
    Situation(policy="mixed_float16", large=True, implementation="fused"),  # NaN
    Situation(attention_mask="additive"),  # read as boolean
    # What ours got wrong.
    Situation(attention_mask="heads", implementation="fused", sizes=(3, 5, 3)),  # uniform, where one head sees nothing
    # Rarely drawn.
    Situation(bias="all", implementation="fused"),  # kernels that take a bias take no mask beside it
)
SIZES = [(2, 1, 5), (2, 3, 5), (1, 5, 3), (3, 5, 5), (2, 7, 7), (1, 2, 7), (2, 1, 1)]


def explore(case, chosen, drawn, count):
    """Checks a layer in situations that are chosen, and in others, which each layer has of its own at every run.

    Args:
        case: The layer.
        chosen: Situations.
        drawn: Strategy for the others.
        count: How many others, of which Hypothesis takes the simplest first.
    """

    # Explaining a failure would take more time than finding it.
    @seed(zlib.crc32(case.name.encode()))
    @settings(max_examples=count, deadline=None, database=None, phases=[Phase.explicit, Phase.generate, Phase.shrink])
    @given(situation=drawn)
    def run(situation):
        check(case, situation)

    for situation in chosen:
        run = example(situation=situation)(run)
    run()


@one_of_each
def test_contract(case):
    drawn = situations(st.sampled_from(SIZES), ["eager"] * 28 + ["graph", "xla"])
    explore(case, EXAMPLES, drawn, 2 if BRIEF else 3)


@pytest.mark.slow
@every_case
def test_contract_at_length(case):
    drawn = situations(st.tuples(*[st.integers(1, 7)] * 3), ["eager", "eager", "graph", "xla"])
    explore(case, MORE, drawn, 10)
