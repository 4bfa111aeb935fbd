"""The common calls, which `compute_attention` computes: which they are, and that the general path agrees with it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from keras import ops
from support.layers.contract import compiled, random_array, to_numpy
from support.layers.descriptions import KINDS, NORMALIZATIONS, SCORES

import zoo
from zoo import layers
from zoo.layers.execution import plan
from zoo.layers.execution.plan import recorded_choices

X, MASK = random_array((2, 5, 8), 1), np.array([[True] * 3 + [False] * 2, [False] * 5])


PACKAGE = str(Path(zoo.__file__).parent)


def heads(kind=layers.MultiHeadAttention, **options):
    """Returns a layer; on PyTorch a kernel would compute its calls."""
    return kind(2, 4, **{"implementation": "dense", **options})


def is_plain(layer, *inputs, **call):
    """Returns whether `compute_attention` computes a call of the layer."""
    calls, original = [], layer.compute_attention
    layer.__dict__["compute_attention"] = lambda *arguments: calls.append(True) or original(*arguments)
    layer(*(inputs or (X, X)), **call)
    del layer.__dict__["compute_attention"]
    return bool(calls)


def quantized(layer):
    layer(X, X)
    for dense in (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense):
        dense.quantize("int8")
    return layer


def adapted(layer):
    layer(X, X)
    layer.query_dense.enable_lora(2)
    return layer


class Renamed(layers.MultiHeadAttention):
    """Overrides no step."""

    def helper(self):
        return None


PLAIN = {
    "heads": (heads, {}),
    "causal": (heads, {"use_causal_mask": True}),
    "padding": (heads, {"value_mask": MASK}),
    "every mask": (heads, {"query_mask": MASK, "value_mask": MASK, "key_mask": MASK, "use_causal_mask": True}),
    "a key": (heads, {"key": X}),
    "weights": (heads, {"return_attention_scores": True}),
    "dropout": (lambda: heads(dropout=0.5), {"training": True}),
    "no output projection": (lambda: heads(output_projection=False, use_bias=False), {}),
    "half precision": (lambda: heads(dtype="mixed_float16"), {}),
    "a subclass that overrides no step": (lambda: heads(Renamed), {}),
    "quantised projections": (lambda: quantized(heads()), {}),
    "adapted projections": (lambda: adapted(heads()), {}),
    "one head": (layers.AdditiveAttention, {"value_mask": MASK}),
    "one head with projections": (lambda: layers.SelfAttention(4, implementation="dense"), {"use_causal_mask": True}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_common_calls_are_plain(name):
    make, call = PLAIN[name]
    layer = make()
    assert is_plain(layer, **call) and is_plain(layer, **call)
    assert layer.explain_execution(X, X, **call).path == "dense"


def _overriding(step, kind=layers.MultiHeadAttention):
    def method(self, *arguments, **options):
        return getattr(super(Overriding, self), step)(*arguments, **options)

    Overriding = type("Overriding", (kind,), {step: method})
    return lambda: heads(Overriding)


def _cached(layer):
    layer.build(X.shape, X.shape)
    return {"cache": layer.create_cache(2, 5)}


def _memory(layer):
    layer.build(X.shape, X.shape)
    return {"memory": layer.project_memory(X)}


STEPS = (
    *("project_query", "project_memory", "keys_to_compare", "attend", "attend_rows", "compare", "compare_heads"),
    *("cap_scores", "normalize", "weighted_sum", "sum_heads", "finish", "project_output"),
)
NOT_PLAIN = {
    "a mask of pairs": (heads, {"attention_mask": np.ones((2, 5, 5), bool)}),
    "a bias": (heads, {"attention_bias": np.ones((5, 5), "float32")}),
    "a position": (heads, {"start_index": 0}),
    "a cache": (heads, _cached),
    "a memory": (heads, _memory),
    "segments": (lambda: heads(visibility=layers.Segments()), {"segment_ids": np.ones((2, 5), "int32")}),
    "a rule": (lambda: heads(visibility=layers.SlidingWindow(1)), {}),
    "positions": (lambda: heads(positions=layers.RotaryPositions()), {}),
    "normalised heads": (lambda: heads(qk_norm=True), {}),
    "a soft-cap": (lambda: heads(logit_softcap=2.0), {}),
    "a gate": (lambda: heads(output_gate=True), {}),
    "sparsemax": (lambda: heads(normalization="sparsemax"), {}),
    "a sink": (lambda: layers.Attention("dot", normalization="sink"), {}),
    "another score": (lambda: heads(score="dot"), {}),
    "a score for each head": (lambda: heads(share_score=False), {}),
    "chunks": (lambda: heads(implementation="blockwise"), {"use_causal_mask": True}),
    "other layers": (lambda: layers.TalkingHeadsAttention(2, 4, implementation="dense"), {}),
    **{f"a class with {step}": (_overriding(step), {}) for step in STEPS},
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_other_calls_are_not(name):
    make, call = NOT_PLAIN[name]
    layer = make()
    assert not is_plain(layer, **(call(layer) if callable(call) else call))


def test_a_layer_that_changes_after_its_first_call():
    def zero(*arguments, **options):
        return ops.zeros((2, 2, 5, 5))

    changes = (
        lambda layer: setattr(layer, "compare_heads", zero),
        lambda layer: setattr(layer, "implementation", "blockwise"),
        lambda layer: setattr(layer, "logit_softcap", 2.0),
        lambda layer: setattr(layer.score, "compare", zero),
        lambda layer: setattr(layer.normalization, "normalize", zero),
    )
    for change in changes:
        layer = heads()
        assert is_plain(layer)
        before = to_numpy(layer(X, X))
        change(layer)
        assert not is_plain(layer)
        if change is not changes[1]:
            assert not np.allclose(to_numpy(layer(X, X)), before)
    layer = heads(dropout=0.5)
    expected = to_numpy(layer(X, X, training=False))
    assert not np.allclose(to_numpy(layer(X, X, training=True)), expected)
    layer.dropout = 0.0
    assert is_plain(layer, training=True)
    np.testing.assert_array_equal(to_numpy(layer(X, X, training=True)), expected)


def test_sizes_decide(monkeypatch):
    layer = layers.DotAttention()
    assert is_plain(layer) and not is_plain(layer, X, X[:, :0]) and is_plain(layer, X[:, :0], X)
    monkeypatch.setattr(plan, "DENSE_LIMIT", 49)
    layer = layers.DotAttention()
    assert layer.explain_execution(X, X).path != "dense" and not is_plain(layer)


def test_a_layer_that_is_not_built_raises():
    for layer in (heads(), layers.DotAttention()):
        with pytest.raises(ValueError, match=f"Build or call {type(layer).__name__}"):
            layer.call(ops.convert_to_tensor(X), ops.convert_to_tensor(X))


def test_a_common_call_takes_few_functions():
    layer, inputs, frames = heads(), ops.convert_to_tensor(X), []
    layer(inputs, inputs)

    def record(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            frames.append((frame.f_code.co_filename, frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        layer(inputs, inputs)
    finally:
        sys.setprofile(before)
    assert 0 < len(frames) <= 30 and len({file for file, _ in frames}) <= 5, frames


def test_a_trace_records_the_steps():
    layer = heads()
    output = to_numpy(layer(X, X))
    trace = zoo.trace(layer, X, X)
    assert {"query", "key", "value", "weights", "weighted_sum"} <= {*trace}
    np.testing.assert_allclose(trace["output"], output, atol=1e-6)


_masks = st.sampled_from([None, None, "some", "all but one", "none"])


def _mask(kind, shape):
    if kind is None:
        return None
    mask = np.random.default_rng(len(kind)).random(shape) < 0.6
    mask[: {"some": 0, "all but one": 1, "none": 2}[kind]] = False
    return mask


COMMON = {
    "score": "scaled_dot",
    "normalization": "softmax",
    "policy": "float32",
    "lengths": (3, 5),
    "masks": ("some", "all but one", None),
    "causal": True,
    "training": True,
    "has_key": True,
}


@settings(max_examples=20, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from([*KINDS]),
    score=st.sampled_from(["scaled_dot"] * 3 + [*SCORES]),
    normalization=st.sampled_from(["softmax"] * 8 + [*NORMALIZATIONS]),
    policy=st.sampled_from(["float32", "float32", "mixed_bfloat16", "mixed_float16"]),
    lengths=st.tuples(st.sampled_from([0, 1, 3, 5]), st.sampled_from([0, 1, 3, 5])),
    masks=st.tuples(_masks, _masks, _masks),
    causal=st.booleans(),
    training=st.booleans(),
    has_key=st.booleans(),
)
@example(kind="heads", **COMMON)
@example(kind="projected", **COMMON)
@example(kind="single", **COMMON)
def test_the_general_path_agrees(kind, score, normalization, policy, lengths, masks, causal, training, has_key):
    make, _ = KINDS[kind]
    layer = make(policy, score, "none", normalization=normalization, dropout=0.3)
    queries, keys = lengths
    query, value, key = (random_array((2, *shape), 7) for shape in ((queries, 11), (keys, 13), (keys, 11)))
    value, key = (value, key) if has_key else (key, None)
    sizes = {"query_mask": queries, "value_mask": keys, "key_mask": keys}
    chosen = {name: _mask(kind, (2, size)) for (name, size), kind in zip(sizes.items(), masks, strict=True)}

    def results():
        state = layer.dropout_layer.seed_generator.state
        state.assign(np.ones(state.shape, "uint32"))
        call = {"use_causal_mask": causal, "training": training, "return_attention_scores": True}
        return [to_numpy(result) for result in layer(query, value, key, **chosen, **call)]

    results()  # builds it
    computed = results()
    with recorded_choices():  # by the general path
        expected = results()
    for result, wanted in zip(computed, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_masks_of_one_tensor_in_one_graph():
    layer = heads()
    pairs = [{"query_mask": first, "value_mask": second} for first in (MASK, ~MASK) for second in (MASK, ~MASK)]
    expected = [to_numpy(layer(X, X.copy(), **masks)) for masks in pairs]

    def outputs(inputs, mask):
        masks = {True: mask, False: ops.logical_not(mask)}
        return [layer(inputs, inputs, query_mask=masks[i], value_mask=masks[j]) for i in masks for j in masks]

    inputs = ops.convert_to_tensor(X), ops.convert_to_tensor(MASK)
    for function in (outputs, compiled(outputs, xla=False)):
        for output, other in zip(function(*inputs), expected, strict=True):
            np.testing.assert_allclose(to_numpy(output), other, atol=1e-6)


def test_a_subclass_may_call_its_result_seen():
    class Older(layers.MultiHeadAttention):
        def attend(self, *arguments):
            results = super().attend(*arguments)
            return {"output": results["output"], "seen": results["any_visible"]}

    layer = heads(Older, use_bias=True, kernel_initializer="ones")
    layer(X, X)
    layer.output_dense.bias.assign(np.ones(8))
    output = to_numpy(layer(X, X, value_mask=MASK))
    assert output[0].all() and not output[1].any()
