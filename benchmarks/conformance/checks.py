"""The checks: each takes a subject and says nothing if all is well, and otherwise what happened.

They raise `Broken` with what happened, or `NotApplicable` where the layer does not offer what they are about. The name
of a function is the name of its check.
"""

import inspect
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from benchmarks.conformance.subjects import (
    BATCH,
    KEYS,
    MASKS,
    POSITIONS,
    QUERIES,
    NotApplicable,
    random_array,
    to_numpy,
)

FLOAT32 = 1e-5  # of the largest number of a result
MIXED = {"mixed_float16": 0.01, "mixed_bfloat16": 0.06}
FAR = 4097  # bfloat16 has no such number


class Broken(Exception):
    """What a layer did that it should not have done."""


@dataclass(frozen=True)
class Check:
    """A check by name.

    Args:
        name: What a layer that passes can be relied on for.
        item: The item of the contract, or what else asks for it.
        groups: Which layers it is for: "attention", "positions" or "all".
        function: The check.
    """

    name: str
    item: str
    groups: str
    function: Callable

    def suits(self, subject) -> bool:
        """Returns whether it is for this kind of layer."""
        return self.groups in ("all", "positions" if subject.group == POSITIONS else "attention")


CHECKS: list[Check] = []


def check(item, groups="attention"):
    """Adds a function to the checks."""

    def add(function):
        CHECKS.append(Check(function.__name__.replace("_", " "), item, groups, function))
        return function

    return add


def _must(condition, told):
    if not condition:
        raise Broken(told)


def _distance(first, second):
    """Returns the largest difference of two arrays, in parts of the largest number; or infinity."""
    difference = np.abs(np.asarray(first, "float64") - np.asarray(second, "float64"))
    if first.shape != second.shape or not np.all(np.isfinite(difference)):
        return math.inf
    return float(difference.max() / max(1.0, np.abs(second).max()))


def _lengths(subject):
    """Returns the lengths of queries and keys."""
    return (KEYS if subject.is_self_attention else QUERIES), KEYS


def _mask(subject, role, seed=0):
    """Returns a random mask that leaves every query the first key and hides another one."""
    length, keys = _lengths(subject)
    shape = {"query_mask": (BATCH, length), "attention_mask": (BATCH, length, keys)}.get(role, (BATCH, keys))
    mask = np.random.default_rng([seed, MASKS.index(role)]).random(shape) < 0.6
    mask[..., 0], mask[..., -1] = True, False
    return mask


def _offered(subject, *roles):
    """Returns those of the arguments that the layer has; there must be one."""
    found = [role for role in roles if subject.offers(role)]
    if not found:
        subject.argument(roles[0])
    return found


def _weights(subject):
    """Checks that a layer returns its weights."""
    return bool(subject.argument("scores"))


def _hide_keys(subject, mask):
    """Returns the arguments that hide the keys where `mask` [B, S] is False, by whatever argument the layer has."""
    if _offered(subject, "value_mask", "attention_mask")[0] == "value_mask":
        return {"value_mask": mask}
    return {"attention_mask": np.repeat(mask[:, None], _lengths(subject)[0], axis=1)}


def _influence(subject, layer, inputs, targets, **options):
    """Returns, as boolean [B, T, S], the outputs t that change with position s of some of the inputs."""
    before, _ = subject.run(layer, inputs, **options)
    seen = []
    for place in range(inputs[targets[0]].shape[1]):
        changed = {name: value.copy() for name, value in inputs.items()}
        for name in targets:
            changed[name][:, place] = random_array(changed[name][:, place].shape, [place, 83])
        after, _ = subject.run(layer, changed, **options)
        seen.append(np.any(after != before, axis=-1))
    return np.stack(seen, axis=-1)


def _compare_sight(subject, seen, allowed, real=None):
    """Checks that every query saw what it may see, and nothing else; only those at `real` [B, T] if that is given."""
    wrong = seen != np.broadcast_to(allowed, seen.shape)
    if real is not None:
        wrong = wrong & real[:, :, None]
    if subject.is_self_attention:  # a query changes itself
        wrong = wrong & ~np.eye(seen.shape[1], seen.shape[2], dtype=bool)
    for b, t, s in np.argwhere(wrong)[:1]:
        verb = "saw" if seen[b, t, s] else "did not see"
        raise Broken(
            f"query {t} of {seen.shape[1]} {verb} key {s} of {seen.shape[2]} ({wrong.sum()} of {wrong.size} are wrong)"
        )


def _how_read(subject, layer, role):
    """Returns what a layer makes of a mask of 0 and −1e9, or `None` where it refuses it."""
    inputs, mask = subject.inputs(), _mask(subject, role)
    try:
        found, _ = subject.run(layer, inputs, **{role: np.where(mask, 0.0, -1e9).astype("float32")})
    except Exception:
        return None
    readings = {
        "ignored": {},
        "read as boolean and so inverted": {role: ~mask},
        "accepted and read as additive": {role: mask},
    }
    for text, given in readings.items():
        if _distance(found, subject.run(layer, inputs, **given)[0]) < FLOAT32:
            return text
    return "accepted"


@check("1")
def float_masks_are_refused(subject):
    layer, told = subject.build(), {}
    for role in _offered(subject, *MASKS):
        told.setdefault(_how_read(subject, layer, role), {})[f"`{subject.argument(role)}`"] = None
    told.pop(None, None)
    _must(not told, "; ".join(f"{' and '.join(names)} of 0 and −1e9 {how}" for how, names in told.items()))


@check("1")
def masks_are_ANDed(subject):  # noqa: N802
    roles = [role for role in ("value_mask", "key_mask", "attention_mask") if subject.offers(role)]
    causal = subject.offers("causal") and not subject.causal
    if len(roles) + causal < 2:
        raise NotApplicable("there are not two kinds of masks to combine")
    inputs = subject.inputs(queries=KEYS)
    given, allowed = {}, np.repeat((np.tri(KEYS) if causal else np.ones((KEYS, KEYS)))[None] > 0, BATCH, axis=0)
    for number, role in enumerate(roles):  # each hides a key of its own, another one in each sequence
        hidden = np.arange(KEYS) == np.arange(1, BATCH + 1)[:, None] + number
        given[role] = ~np.repeat(hidden[:, None], KEYS, axis=1) if role == "attention_mask" else ~hidden
        allowed &= ~hidden[:, None]
    seen = _influence(subject, subject.build(), inputs, subject.memory, causal=causal, **given)
    # Where one mask is for queries and keys at once, a layer may do either with a masked query.
    _compare_sight(subject, seen, allowed, given.get("value_mask") if subject.is_self_attention else None)


@check("1")
def a_query_mask_is_respected(subject):
    layer, inputs = subject.build(), subject.inputs()
    role = _offered(subject, "query_mask")[0]
    mask, told = _mask(subject, role), []
    scores = subject.offers("scores")
    if subject.residual and not scores:
        raise NotApplicable("the output holds the block's input, and there are no weights")
    output, weights = subject.run(layer, inputs, scores=scores, **{role: mask})
    if not subject.residual and np.any(output[~mask]):
        plain, _ = subject.run(layer, inputs, scores=scores)
        ignored = np.array_equal(plain, output)
        told.append("ignored" if ignored else f"output of a masked query is {np.abs(output[~mask]).max():.2g}")
    if weights is not None and np.any(np.moveaxis(weights, -2, 1)[~mask]):
        told.append(f"weights of a masked query sum to {np.moveaxis(weights, -2, 1)[~mask].sum(-1).max():.2g}")
    _must(not told, "; ".join(told))


@check("1")
def each_head_can_have_a_mask(subject):
    if subject.num_heads is None:
        raise NotApplicable("there is one head")
    _offered(subject, "attention_mask")
    layer, inputs = subject.build(), subject.inputs()
    queries, keys = _lengths(subject)
    mask = np.random.default_rng(3).random((BATCH, subject.num_heads, queries, keys)) < 0.5
    mask[..., 0] = True
    if not subject.offers("scores"):
        mask[:, :, :, 1] = False
        seen = _influence(subject, layer, inputs, subject.memory, attention_mask=mask)
        return _compare_sight(subject, seen, mask.any(axis=1))
    _, weights = subject.run(layer, inputs, scores=True, attention_mask=mask)
    _must(np.array_equal(weights > 0, mask), "the weights do not follow the mask of their head")


@check("1")
def a_float_bias_is_added_to_the_scores(subject):
    subject.argument("bias")
    _weights(subject)
    layer, inputs = subject.build(), subject.inputs()
    queries, keys = _lengths(subject)
    bias = random_array((BATCH, *((1,) if subject.num_heads else ()), queries, keys), 5)
    _, plain = subject.run(layer, inputs, scores=True)
    _, weights = subject.run(layer, inputs, scores=True, bias=bias)
    expected = plain * np.exp(bias)
    distance = _distance(weights, expected / expected.sum(-1, keepdims=True))
    _must(distance < FLOAT32, f"the weights are off by {distance:.2g}")


def _masked_inputs(subject, mask, names):
    """Returns inputs that are zero where `mask` is False, as Keras' `Masking` needs them, and such with masks."""
    inputs = subject.inputs()
    plain = {name: np.where(mask[..., None], value, 0.0) if name in names else value for name, value in inputs.items()}
    tensors = {name: ops.convert_to_tensor(value.astype("float32")) for name, value in plain.items()}
    carriers = {name: keras.layers.Masking()(tensors[name]) if name in names else tensors[name] for name in tensors}
    return plain, carriers


@check("Keras")
def masks_come_with_the_tensors(subject):
    _offered(subject, "value_mask", "attention_mask")
    layer, mask = subject.build(), _mask(subject, "value_mask")
    plain, carriers = _masked_inputs(subject, mask, subject.memory)
    expected, _ = subject.run(layer, plain, **_hide_keys(subject, mask))
    found = to_numpy(subject.call(layer, carriers)[0])
    real = mask if subject.is_self_attention else np.ones(found.shape[:2], bool)
    ignored = _distance(found[real], subject.run(layer, plain)[0][real]) < FLOAT32
    told = "ignored" if ignored else "not the output with the same mask as an argument"
    _must(_distance(found[real], expected[real]) < FLOAT32, told)


@check("Keras")
def the_output_carries_the_mask_of_the_query(subject):
    mask = _mask(subject, "value_mask" if subject.is_self_attention else "query_mask")
    _, carriers = _masked_inputs(subject, mask, ("query",))
    output, _ = subject.call(subject.build(), carriers)
    found = getattr(output, "_keras_mask", None)
    _must(found is not None, "the output carries no mask")
    _must(np.array_equal(ops.convert_to_numpy(found), mask), "the output carries another mask")


def _empty_rows(subject):
    """Yields arguments that leave the queries of the first sequence nothing to attend to."""
    queries, keys = _lengths(subject)
    for role in _offered(subject, "value_mask", "attention_mask"):
        mask = np.ones((BATCH, keys) if role == "value_mask" else (BATCH, queries, keys), bool)
        mask[0] = False
        yield role, {role: mask}


@check("2")
def output_is_zero_where_all_is_masked(subject):
    if subject.residual:
        raise NotApplicable("the output holds the block's input")
    layer, inputs, told = subject.build(), subject.inputs(), []
    for role, given in _empty_rows(subject):
        for scores in (False, True) if subject.offers("scores") else (False,):
            output, _ = subject.run(layer, inputs, scores=scores, **given)
            if np.any(output[0]):
                asked = "with scores" if scores else "without scores"
                told.append(f"`{subject.argument(role)}`, {asked}: up to {np.abs(output[0]).max():.2g}")
    _must(not told, "; ".join(told))


@check("2")
def weights_are_zero_where_all_is_masked(subject):
    _weights(subject)
    layer, inputs, told = subject.build(), subject.inputs(), []
    for role, given in _empty_rows(subject):
        _, weights = subject.run(layer, inputs, scores=True, **given)
        if np.any(weights[0]):
            told.append(f"`{subject.argument(role)}`: they sum to {weights[0].sum(-1).max():.2g}")
    _must(not told, "; ".join(told))


@check("2")
def gradients_are_finite_where_all_is_masked(subject):
    layer, told = subject.build(), []
    for role, given in _empty_rows(subject):
        given = {name: ops.convert_to_tensor(mask) for name, mask in given.items()}
        tensors = {name: tf.constant(value) for name, value in subject.inputs().items()}
        with tf.GradientTape() as tape:
            tape.watch(list(tensors.values()))
            output, _ = subject.call(layer, tensors, **given)
            loss = tf.reduce_sum(output * random_array(output.shape, 97))
        sources = {**tensors, **{variable.path: variable.value for variable in layer.trainable_variables}}
        for name, gradient in zip(sources, tape.gradient(loss, list(sources.values())), strict=True):
            if gradient is not None and not np.all(np.isfinite(to_numpy(gradient))):
                told.append(f"`{subject.argument(role)}`: gradient of {name}")
    _must(not told, "; ".join(told))


def _situations(subject):
    """Yields names of situations and their arguments."""
    yield "no mask", {}
    for role in MASKS:
        if subject.offers(role):
            yield f"`{subject.argument(role)}`", {role: _mask(subject, role)}
    if subject.offers("causal"):
        yield "causal", {"causal": True}
    if subject.offers("value_mask") or subject.offers("attention_mask"):
        yield from (("all masked", given) for _, given in list(_empty_rows(subject))[:1])


@check("3")
def asking_for_the_scores_changes_nothing(subject):
    _weights(subject)
    inputs, told = subject.inputs(), []
    for dropout, training in ((0.0, False), (0.5, False), (0.5, True)):
        for name, given in _situations(subject):
            plain, asked = (
                subject.run(subject.build(dropout=dropout), inputs, scores=scores, training=training, **given)[0]
                for scores in (False, True)
            )
            distance = _distance(asked, plain)
            if distance > FLOAT32:
                when = "" if not dropout else ", dropout in training" if training else ", dropout at inference"
                told.append(f"{name}{when}: the output changes by {distance:.2g}")
    _must(not told, "; ".join(told))


def _compiled_agrees(subject, xla):
    layer, inputs = subject.build(), subject.inputs()
    for name, given in list(_situations(subject)):
        for scores in (False, True) if subject.offers("scores") else (False,):
            flags = {key: value for key, value in given.items() if key == "causal"}
            masks = {key: ops.convert_to_tensor(value) for key, value in given.items() if key != "causal"}

            @tf.function(jit_compile=xla)
            def function(tensors, masks, scores=scores, flags=flags):
                return [each for each in subject.call(layer, tensors, scores, **flags, **masks) if each is not None]

            expected = [each for each in subject.run(layer, inputs, scores=scores, **given) if each is not None]
            tensors = {key: tf.constant(value) for key, value in inputs.items()}
            for found, reference in zip(function(tensors, masks), expected, strict=True):
                distance = _distance(to_numpy(found), reference)
                _must(distance < FLOAT32, f"{name}: off by {distance:.2g}")


@check("3", "all")
def a_graph_agrees_with_eager(subject):
    _compiled_agrees(subject, xla=False)


@check("3", "all")
def XLA_agrees_with_eager(subject):  # noqa: N802
    _compiled_agrees(subject, xla=True)


def _mixed_is_close(subject, policy):
    inputs, exact, layer = subject.inputs(), subject.build(), subject.build(policy)
    for name, given in _situations(subject):
        for scores in (False, True) if subject.offers("scores") else (False,):
            results = (subject.run(each, inputs, scores=scores, **given) for each in (layer, exact))
            for found, expected in zip(*results, strict=True):
                if found is not None:
                    distance = _distance(found, expected)
                    _must(distance < MIXED[policy], f"{name}: off by {distance:.2g}")


@check("3", "all")
def mixed_float16_is_close_to_float32(subject):
    _mixed_is_close(subject, "mixed_float16")


@check("3", "all")
def mixed_bfloat16_is_close_to_float32(subject):
    _mixed_is_close(subject, "mixed_bfloat16")


@check("3")
def large_activations_stay_finite_in_float16(subject):
    inputs = {name: value * subject.large for name, value in subject.inputs().items()}
    layer, worst = subject.build("mixed_float16", inputs=inputs), {}
    for _, given in _situations(subject):
        for scores in (False, True) if subject.offers("scores") else (False,):
            output, _ = subject.run(layer, inputs, scores=scores, **given)
            if not np.all(np.isfinite(output)):
                where = "with scores" if scores else "without scores"
                worst[where] = max(worst.get(where, 0.0), np.mean(~np.isfinite(output)))
    _must(
        not worst, "; ".join(f"{where} up to {share:.0%} of the output is not finite" for where, share in worst.items())
    )


@check("3")
def decoding_with_a_cache_agrees_with_the_full_pass(subject):
    if subject.steps is None:
        raise NotApplicable("there is no cache")
    sizes = subject.sizes if subject.residual else {name: 11 for name in subject.sizes}
    inputs = subject.inputs(queries=KEYS, sizes=sizes, seed=3)
    if not subject.residual:
        inputs = {name: inputs["query"] for name in inputs}
    layer = subject.build(inputs=inputs)
    if not (
        hasattr(getattr(layer, "self_attention", layer), "create_cache") or "cache" in " ".join(subject.parameters)
    ):
        raise NotApplicable("there is no cache")
    causal = subject.offers("causal") and not subject.causal
    ruled = causal or subject.causal
    mask = {} if ruled else {"attention_mask": np.repeat(np.tri(KEYS, dtype=bool)[None], BATCH, axis=0)}
    expected, _ = subject.run(layer, inputs, causal=causal, **mask)
    distance = _distance(subject.steps(subject, layer, inputs, first=2), expected)
    _must(distance < FLOAT32, f"off by {distance:.2g}")


@check("4")
def the_causal_mask_hides_the_future(subject):
    layer, inputs = subject.build(), subject.inputs(queries=KEYS)
    if not subject.causal:
        subject.argument("causal")
    targets, options = (("query",), {}) if subject.causal else (subject.memory, {"causal": True})
    seen = _influence(subject, layer, inputs, targets, **options)
    _compare_sight(subject, seen, np.tri(KEYS, dtype=bool))
    if subject.offers("scores") and not subject.causal:
        _, weights = subject.run(layer, inputs, scores=True, causal=True)
        _must(not np.any(np.triu(weights, 1)), "with scores the weights of the future are not zero")


@check("4")
def the_causal_mask_knows_the_offset(subject):
    if subject.causal or subject.is_self_attention:
        raise NotApplicable("queries and keys are as many")
    subject.argument("causal")
    allowed = np.arange(KEYS) <= KEYS - QUERIES + np.arange(QUERIES)[:, None]
    seen = _influence(subject, subject.build(), subject.inputs(), subject.memory, causal=True)
    _compare_sight(subject, seen, allowed)


def _leak(subject, layer, inputs, real, mask, content, **options):
    """Returns whether outputs at `real` [B, T] change, not in the least, with what stands at masked places."""
    targets = subject.memory
    changed = {
        name: np.where(mask[..., None], value, content(value.shape)).astype("float32") if name in targets else value
        for name, value in inputs.items()
    }
    scores = subject.offers("scores")
    before, after = (subject.run(layer, each, scores=scores, **options) for each in (inputs, changed))
    if not np.array_equal(before[0][real], after[0][real]):
        return True
    return scores and not np.array_equal(*(np.moveaxis(each[1], -2, 1)[real] for each in (before, after)))


@check("5")
def masked_keys_cannot_leak(subject):
    layer, inputs, mask = subject.build(), subject.inputs(), _mask(subject, "value_mask", seed=2)
    real = mask if subject.is_self_attention else np.ones((BATCH, QUERIES), bool)
    sizes = (1.0, 1e4, 1e12)
    told = [
        f"{size:g}"
        for size in sizes
        if _leak(
            subject,
            layer,
            inputs,
            real,
            mask,
            lambda shape, size=size: size * random_array(shape, 89),
            **_hide_keys(subject, mask),
        )
    ]
    _must(not told, f"numbers of size {' and '.join(told)} do")


@check("5")
def masked_NaN_and_infinity_cannot_leak(subject):  # noqa: N802
    layer, inputs, mask = subject.build(), subject.inputs(), _mask(subject, "value_mask", seed=2)
    real = mask if subject.is_self_attention else np.ones((BATCH, QUERIES), bool)
    told = [
        str(content)
        for content in (np.nan, np.inf)
        if _leak(
            subject, layer, inputs, real, mask, lambda shape, c=content: np.full(shape, c), **_hide_keys(subject, mask)
        )
    ]
    _must(not told, f"{' and '.join(told)} do")


@check("5")
def the_future_cannot_leak(subject):
    inputs = subject.inputs(queries=KEYS)
    if not subject.causal:
        subject.argument("causal")
    targets, options = (("query",), {}) if subject.causal else (subject.memory, {"causal": True})
    layer, last = subject.build(), KEYS - 2
    before, _ = subject.run(layer, inputs, **options)
    for size in (1.0, 1e4, 1e12):
        changed = {name: value.copy() for name, value in inputs.items()}
        for name in targets:
            changed[name][:, last:] = size * random_array(changed[name][:, last:].shape, 89)
        after, _ = subject.run(layer, changed, **options)
        _must(np.array_equal(after[:, :last], before[:, :last]), f"numbers of size {size:g} do")


def _score_shape(subject):
    queries, keys = _lengths(subject)
    return (BATCH, *((subject.num_heads,) if subject.num_heads else ()), queries, keys)


@check("6")
def scores_have_their_shape(subject):
    _weights(subject)
    _, weights = subject.run(subject.build(), subject.inputs(), scores=True)
    _must(weights.shape == _score_shape(subject), f"{weights.shape} instead of {_score_shape(subject)}")


@check("6")
def scores_have_that_shape_symbolically(subject):
    _weights(subject)
    symbolic = {name: keras.KerasTensor(value.shape) for name, value in subject.inputs().items()}
    _, weights = subject.call(subject.make(), symbolic, scores=True)
    _must(weights is not None, "the symbolic call returns no weights")
    _must(tuple(weights.shape) == _score_shape(subject), f"{tuple(weights.shape)} instead of {_score_shape(subject)}")


@check("6")
def scores_are_behind_the_softmax(subject):
    _weights(subject)
    _, weights = subject.run(subject.build(), subject.inputs(), scores=True)
    _must(
        np.abs(weights.sum(-1) - 1).max() < FLOAT32,
        f"rows sum to {weights.sum(-1).min():.2g} … {weights.sum(-1).max():.2g}",
    )


@check("6")
def scores_are_before_dropout(subject):
    _weights(subject)
    if not subject.pure_weights:
        raise NotApplicable("dropout elsewhere in the block changes the weights, too")
    layer, inputs = subject.build(dropout=0.5), subject.inputs()
    output, weights = subject.run(layer, inputs, scores=True)
    trained, kept = subject.run(layer, inputs, scores=True, training=True)
    _must(not np.array_equal(trained, output), "dropout does nothing in training")
    _must(np.array_equal(kept, weights), f"in training {np.mean((kept == 0) & (weights > 0)):.0%} of them are zero")


@check("6")
def scores_are_in_the_compute_dtype(subject):
    _weights(subject)
    layer = subject.build("mixed_bfloat16")
    tensors = {name: ops.convert_to_tensor(value) for name, value in subject.inputs().items()}
    _, weights = subject.call(layer, tensors, scores=True)
    found = keras.backend.standardize_dtype(weights.dtype)
    _must(found == "bfloat16", f"{found} under mixed_bfloat16")


@check("4", "positions")
def start_index_goes_on_with_the_sequence(subject):
    layer, inputs = subject.build(), subject.inputs()["query"]
    full = to_numpy(subject.apply(layer, ops.convert_to_tensor(inputs)))
    for start in (2, tf.constant(2)):
        tail = to_numpy(subject.apply(layer, ops.convert_to_tensor(inputs[:, 2:]), start_index=start))
        _must(_distance(tail, full[:, 2:]) < FLOAT32, f"off by {_distance(tail, full[:, 2:]):.2g}")


@check("3", "positions")
def far_positions_keep_their_precision(subject):
    inputs = ops.convert_to_tensor(subject.inputs()["query"])
    expected = to_numpy(subject.apply(subject.build(), inputs, start_index=FAR))
    told = []
    for policy, tolerance in MIXED.items():
        distance = _distance(to_numpy(subject.apply(subject.build(policy), inputs, start_index=FAR)), expected)
        told += [f"{policy}, from position {FAR}: off by {distance:.2g}"] if distance > tolerance else []
    _must(not told, "; ".join(told))


@check("Keras", "all")
def every_option_is_in_the_config(subject):
    layer = subject.make()
    config = layer.get_config()
    options = inspect.signature(type(layer)).parameters.values()
    named = [option.name for option in options if option.kind in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY)]
    missing = [f"`{name}`" for name in named if name not in config]
    _must(not missing, f"without {', '.join(missing)}")


@check("Keras", "all")
def the_config_makes_the_same_layer(subject):
    layer, inputs = subject.build("mixed_bfloat16", 0.25), subject.inputs()
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    found = json.loads(json.dumps(again.get_config()))
    differing = [name for name in config if found.get(name) != config[name]]
    _must(not differing, f"`{'`, `'.join(differing)}` changed")
    subject.run(again, inputs)
    again.set_weights(layer.get_weights())
    _must(np.array_equal(subject.run(again, inputs)[0], subject.run(layer, inputs)[0]), "another output")


@check("Keras", "all")
def a_saved_model_reloads(subject):
    layer, inputs = subject.build(), subject.inputs()
    symbolic = {name: keras.Input(value.shape[1:]) for name, value in inputs.items()}
    model = keras.Model(list(symbolic.values()), subject.call(layer, symbolic)[0])
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.keras")
        loaded = keras.saving.load_model(Path(folder) / "model.keras")
    found = to_numpy(loaded([ops.convert_to_tensor(value) for value in inputs.values()]))
    _must(np.array_equal(found, subject.run(layer, inputs)[0]), "another output")
