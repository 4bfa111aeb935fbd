"""The checks of the attention contract: functions of a subject, whose names are those of the checks.

A check raises `Broken` with a description, or `NotApplicable` if the layer lacks the feature that it checks.
"""

import functools
import inspect
import itertools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from benchmarks.conformance.probes import (
    FLOAT32,
    hide_keys,
    influence,
    offered_roles,
    query_and_key_length,
    random_mask,
    reading_of_float_mask,
    relative_distance,
    require,
    require_close,
    require_influence,
    require_none,
)
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

MIXED = {"mixed_float16": 0.01, "mixed_bfloat16": 0.06}
FAR = 4097  # which bfloat16 cannot represent


@dataclass(frozen=True)
class Check:
    """A check by name."""

    name: str  # what a layer guarantees if it passes
    item: str  # the item of the contract, or "Keras"
    groups: str  # the kind of layers: "attention", "positions" or "all"
    function: Callable

    def suits(self, subject) -> bool:
        """Returns whether the check applies to this kind of layer."""
        return self.groups in ("all", "positions" if subject.group == POSITIONS else "attention")


CHECKS: list[Check] = []


def check(item, groups="attention", needs=()):
    """Adds a function to the checks; it applies to layers with the arguments `needs`."""

    def add(function):
        def run(subject):
            for role in needs:
                subject.argument(role)
            function(subject)

        CHECKS.append(Check(function.__name__.replace("_", " "), item, groups, run))
        return function

    return add


@check("1")
def float_masks_are_refused(subject):
    layer, arguments = subject.build(), {}
    for role in offered_roles(subject, *MASKS):
        arguments.setdefault(reading_of_float_mask(subject, layer, role), {})[f"`{subject.argument(role)}`"] = None
    arguments.pop(None, None)
    require_none([f"{' and '.join(names)} of 0 and −1e9 {how}" for how, names in arguments.items()])


@check("1")
def masks_are_ANDed(subject):  # noqa: N802
    roles = [role for role in ("value_mask", "key_mask", "attention_mask") if subject.offers(role)]
    causal = subject.offers("causal") and not subject.causal
    if len(roles) + causal < 2:
        raise NotApplicable("there are not two kinds of masks to combine")
    inputs = subject.inputs(queries=KEYS)
    masks, allowed = {}, np.repeat((np.tri(KEYS) if causal else np.ones((KEYS, KEYS)))[None] > 0, BATCH, axis=0)
    for number, role in enumerate(roles):  # each masks another key, different in each sequence
        hidden = np.arange(KEYS) == np.arange(1, BATCH + 1)[:, None] + number
        masks[role] = ~np.repeat(hidden[:, None], KEYS, axis=1) if role == "attention_mask" else ~hidden
        allowed &= ~hidden[:, None]
    changed = influence(subject, subject.build(), inputs, subject.memory, causal=causal, **masks)
    # If one mask applies to queries and keys, the output of a masked query is not specified.
    require_influence(subject, changed, allowed, masks.get("value_mask") if subject.is_self_attention else None)


@check("1")
def a_query_mask_is_respected(subject):
    layer, inputs = subject.build(), subject.inputs()
    role = offered_roles(subject, "query_mask")[0]
    mask, problems = random_mask(subject, role), []
    scores = subject.offers("scores")
    if subject.residual and not scores:
        raise NotApplicable("the output holds the block's input, and there are no weights")
    output, weights = subject.run(layer, inputs, scores=scores, **{role: mask})
    if not subject.residual and np.any(output[~mask]):
        plain, _ = subject.run(layer, inputs, scores=scores)
        ignored = np.array_equal(plain, output)
        problems.append("ignored" if ignored else f"output of a masked query is {np.abs(output[~mask]).max():.2g}")
    if weights is not None and np.any(weights_of_masked := np.moveaxis(weights, -2, 1)[~mask]):
        problems.append(f"weights of a masked query sum to {weights_of_masked.sum(-1).max():.2g}")
    require_none(problems)


@check("1")
def each_head_can_have_a_mask(subject):
    if subject.num_heads is None:
        raise NotApplicable("there is one head")
    offered_roles(subject, "attention_mask")
    layer, inputs = subject.build(), subject.inputs()
    queries, keys = query_and_key_length(subject)
    mask = np.random.default_rng(3).random((BATCH, subject.num_heads, queries, keys)) < 0.5
    mask[..., 0] = True
    if not subject.offers("scores"):
        mask[:, :, :, 1] = False
        changed = influence(subject, layer, inputs, subject.memory, attention_mask=mask)
        return require_influence(subject, changed, mask.any(axis=1))
    _, weights = subject.run(layer, inputs, scores=True, attention_mask=mask)
    require(np.array_equal(weights > 0, mask), "the weights do not follow the mask of their head")


@check("1", needs=("bias", "scores"))
def a_float_bias_is_added_to_the_scores(subject):
    layer, inputs = subject.build(), subject.inputs()
    queries, keys = query_and_key_length(subject)
    bias = random_array((BATCH, *((1,) if subject.num_heads else ()), queries, keys), 5)
    _, plain = subject.run(layer, inputs, scores=True)
    _, weights = subject.run(layer, inputs, scores=True, bias=bias)
    expected = plain * np.exp(bias)
    require_close(weights, expected / expected.sum(-1, keepdims=True), "the weights are off by")


def _masked_inputs(subject, mask, names):
    """Returns inputs that are zero where `mask` is False, and the same as tensors with Keras' masks."""
    inputs = subject.inputs()
    plain = {name: np.where(mask[..., None], value, 0.0) if name in names else value for name, value in inputs.items()}
    tensors = {name: ops.convert_to_tensor(value.astype("float32")) for name, value in plain.items()}
    carriers = {name: keras.layers.Masking()(tensors[name]) if name in names else tensors[name] for name in tensors}
    return plain, carriers


@check("Keras")
def masks_come_with_the_tensors(subject):
    offered_roles(subject, "value_mask", "attention_mask")
    layer, mask = subject.build(), random_mask(subject, "value_mask")
    plain, carriers = _masked_inputs(subject, mask, subject.memory)
    expected, _ = subject.run(layer, plain, **hide_keys(subject, mask))
    output = to_numpy(subject.call(layer, carriers)[0])
    real = mask if subject.is_self_attention else np.ones(output.shape[:2], bool)
    ignored = relative_distance(output[real], subject.run(layer, plain)[0][real]) < FLOAT32
    problems = "ignored" if ignored else "not the output with the same mask as an argument"
    require(relative_distance(output[real], expected[real]) < FLOAT32, problems)


@check("Keras")
def the_output_carries_the_mask_of_the_query(subject):
    mask = random_mask(subject, "value_mask" if subject.is_self_attention else "query_mask")
    _, carriers = _masked_inputs(subject, mask, ("query",))
    output, _ = subject.call(subject.build(), carriers)
    output_mask = getattr(output, "_keras_mask", None)
    require(output_mask is not None, "the output carries no mask")
    require(np.array_equal(ops.convert_to_numpy(output_mask), mask), "the output carries another mask")


def _empty_rows(subject):
    """Yields masks that are False for all keys of the first sequence."""
    queries, keys = query_and_key_length(subject)
    for role in offered_roles(subject, "value_mask", "attention_mask"):
        mask = np.ones((BATCH, keys) if role == "value_mask" else (BATCH, queries, keys), bool)
        mask[0] = False
        yield role, {role: mask}


@check("2")
def output_is_zero_where_all_is_masked(subject):
    if subject.residual:
        raise NotApplicable("the output holds the block's input")
    layer, inputs, problems = subject.build(), subject.inputs(), []
    for role, masks in _empty_rows(subject):
        for scores in subject.with_or_without_scores:
            output, _ = subject.run(layer, inputs, scores=scores, **masks)
            if np.any(output[0]):
                call = "with scores" if scores else "without scores"
                problems.append(f"`{subject.argument(role)}`, {call}: up to {np.abs(output[0]).max():.2g}")
    require_none(problems)


@check("2", needs=("scores",))
def weights_are_zero_where_all_is_masked(subject):
    layer, inputs, problems = subject.build(), subject.inputs(), []
    for role, masks in _empty_rows(subject):
        _, weights = subject.run(layer, inputs, scores=True, **masks)
        if np.any(weights[0]):
            problems.append(f"`{subject.argument(role)}`: they sum to {weights[0].sum(-1).max():.2g}")
    require_none(problems)


@check("2")
def gradients_are_finite_where_all_is_masked(subject):
    layer, problems = subject.build(), []
    for role, masks in _empty_rows(subject):
        masks = {name: ops.convert_to_tensor(mask) for name, mask in masks.items()}
        tensors = {name: tf.constant(value) for name, value in subject.inputs().items()}
        with tf.GradientTape() as tape:
            tape.watch(list(tensors.values()))
            output, _ = subject.call(layer, tensors, **masks)
            loss = tf.reduce_sum(output * random_array(output.shape, 97))
        sources = {**tensors, **{variable.path: variable.value for variable in layer.trainable_variables}}
        for name, gradient in zip(sources, tape.gradient(loss, list(sources.values())), strict=True):
            if gradient is not None and not np.all(np.isfinite(to_numpy(gradient))):
                problems.append(f"`{subject.argument(role)}`: gradient of {name}")
    require_none(problems)


def _situations(subject):
    """Yields names of situations and their arguments."""
    yield "no mask", {}
    for role in MASKS:
        if subject.offers(role):
            yield f"`{subject.argument(role)}`", {role: random_mask(subject, role)}
    if subject.offers("causal"):
        yield "causal", {"causal": True}
    if subject.offers("value_mask") or subject.offers("attention_mask"):
        yield from (("all masked", masks) for _, masks in list(_empty_rows(subject))[:1])


@check("3", needs=("scores",))
def returning_the_scores_changes_nothing(subject):
    inputs, problems = subject.inputs(), []
    for dropout, training in ((0.0, False), (0.5, False), (0.5, True)):
        for name, masks in _situations(subject):
            plain, with_scores = (
                subject.run(subject.build(dropout=dropout), inputs, scores=scores, training=training, **masks)[0]
                for scores in (False, True)
            )
            distance = relative_distance(with_scores, plain)
            if distance > FLOAT32:
                when = "" if not dropout else ", dropout in training" if training else ", dropout at inference"
                problems.append(f"{name}{when}: the output changes by {distance:.2g}")
    require_none(problems)


def _calls(subject):
    """Yields names of situations and the arguments of calls, without and with the scores."""
    for (name, masks), scores in itertools.product(_situations(subject), subject.with_or_without_scores):
        yield name, {"scores": scores, **masks}


def _compiled_agrees(subject, xla):
    layer, inputs = subject.build(), subject.inputs()
    for name, options in _calls(subject):
        flags = {key: options.pop(key) for key in ("scores", "causal") if key in options}
        masks = {key: ops.convert_to_tensor(value) for key, value in options.items()}

        @tf.function(jit_compile=xla)
        def compiled(tensors, masks, flags=flags):
            results = subject.call(layer, tensors, **flags, **masks)
            return [result for result in results if result is not None]

        expected = [result for result in subject.run(layer, inputs, **flags, **options) if result is not None]
        tensors = {key: tf.constant(value) for key, value in inputs.items()}
        for result, reference in zip(compiled(tensors, masks), expected, strict=True):
            require_close(to_numpy(result), reference, f"{name}: off by")


for compiler, xla in (("a graph", False), ("XLA", True)):
    CHECKS.append(Check(f"{compiler} agrees with eager", "3", "all", functools.partial(_compiled_agrees, xla=xla)))


def _mixed_is_close(subject, policy):
    inputs, exact, layer = subject.inputs(), subject.build(), subject.build(policy)
    for name, options in _calls(subject):
        results = (subject.run(tested, inputs, **options) for tested in (layer, exact))
        for result, expected in zip(*results, strict=True):
            if result is not None:
                require_close(result, expected, f"{name}: off by", MIXED[policy])


for policy in MIXED:
    is_close = functools.partial(_mixed_is_close, policy=policy)
    CHECKS.append(Check(f"{policy.replace('_', ' ')} is close to float32", "3", "all", is_close))


@check("3")
def large_activations_stay_finite_in_float16(subject):
    inputs = {name: value * subject.large for name, value in subject.inputs().items()}
    layer, worst = subject.build("mixed_float16", inputs=inputs), {}
    for _, options in _calls(subject):
        output, _ = subject.run(layer, inputs, **options)
        if not np.all(np.isfinite(output)):
            where = "with scores" if options["scores"] else "without scores"
            worst[where] = max(worst.get(where, 0.0), np.mean(~np.isfinite(output)))
    require_none([f"{where} up to {share:.0%} of the output is not finite" for where, share in worst.items()])


@check("3")
def decoding_with_a_cache_agrees_with_the_full_pass(subject):
    if subject.steps is None:
        raise NotApplicable("there is no cache")
    inputs = subject.inputs(queries=KEYS, sizes=None if subject.residual else dict.fromkeys(subject.sizes, 11), seed=3)
    if not subject.residual:
        inputs = dict.fromkeys(inputs, inputs["query"])
    layer = subject.build(inputs=inputs)
    has_cache = hasattr(getattr(layer, "self_attention", layer), "create_cache")
    if not has_cache and "cache" not in " ".join(subject.parameters):
        raise NotApplicable("there is no cache")
    causal = subject.offers("causal") and not subject.causal
    mask = {"attention_mask": np.repeat(np.tri(KEYS, dtype=bool)[None], BATCH, axis=0)}
    expected, _ = subject.run(layer, inputs, causal=causal, **({} if causal or subject.causal else mask))
    require_close(subject.steps(subject, layer, inputs, first=2), expected)


def _causal_view(subject):
    """Returns the inputs to which the causal mask applies, and the options that make the layer causal."""
    if subject.causal:
        return ("query",), {}
    subject.argument("causal")
    return subject.memory, {"causal": True}


@check("4")
def the_causal_mask_hides_the_future(subject):
    layer, inputs = subject.build(), subject.inputs(queries=KEYS)
    targets, options = _causal_view(subject)
    changed = influence(subject, layer, inputs, targets, **options)
    require_influence(subject, changed, np.tri(KEYS, dtype=bool))
    if subject.offers("scores") and not subject.causal:
        _, weights = subject.run(layer, inputs, scores=True, causal=True)
        require(not np.any(np.triu(weights, 1)), "with scores the weights of the future are not zero")


@check("4")
def the_causal_mask_depends_on_the_offset(subject):
    if subject.causal or subject.is_self_attention:
        raise NotApplicable("there are as many queries as keys")
    subject.argument("causal")
    allowed = np.arange(KEYS) <= KEYS - QUERIES + np.arange(QUERIES)[:, None]
    changed = influence(subject, subject.build(), subject.inputs(), subject.memory, causal=True)
    require_influence(subject, changed, allowed)


def _require_no_leak(subject, contents, kind=""):
    """Checks that `contents` of masked keys, functions from a shape to an array by name, change no real position."""
    layer, inputs, mask = subject.build(), subject.inputs(), random_mask(subject, "value_mask", seed=2)
    real = mask if subject.is_self_attention else np.ones((BATCH, QUERIES), bool)
    options = {"scores": subject.offers("scores"), **hide_keys(subject, mask)}
    before = subject.run(layer, inputs, **options)

    def changes(content):
        changed = {
            name: np.where(mask[..., None], value, content(value.shape)).astype("float32")
            if name in subject.memory
            else value
            for name, value in inputs.items()
        }
        after = subject.run(layer, changed, **options)
        same = np.array_equal(before[0][real], after[0][real])
        if same and options["scores"]:
            same = np.array_equal(*(np.moveaxis(weights, -2, 1)[real] for _, weights in (before, after)))
        return not same

    leaks = [name for name, content in contents.items() if changes(content)]
    require(not leaks, f"{kind}{' and '.join(leaks)} do")


@check("5")
def masked_keys_cannot_leak(subject):
    sizes = (1.0, 1e4, 1e12)
    contents = {f"{size:g}": lambda shape, size=size: size * random_array(shape, 89) for size in sizes}
    _require_no_leak(subject, contents, "numbers of size ")


@check("5")
def masked_NaN_and_infinity_cannot_leak(subject):  # noqa: N802
    contents = {str(value): lambda shape, value=value: np.full(shape, value) for value in (np.nan, np.inf)}
    _require_no_leak(subject, contents)


@check("5")
def the_future_cannot_leak(subject):
    inputs = subject.inputs(queries=KEYS)
    targets, options = _causal_view(subject)
    layer, last = subject.build(), KEYS - 2
    before, _ = subject.run(layer, inputs, **options)
    for size in (1.0, 1e4, 1e12):
        changed = {name: value.copy() for name, value in inputs.items()}
        for name in targets:
            changed[name][:, last:] = size * random_array(changed[name][:, last:].shape, 89)
        after, _ = subject.run(layer, changed, **options)
        require(np.array_equal(after[:, :last], before[:, :last]), f"numbers of size {size:g} do")


def _require_score_shape(subject, weights):
    expected = (BATCH, *filter(None, [subject.num_heads]), *query_and_key_length(subject))
    require(tuple(weights.shape) == expected, f"{tuple(weights.shape)} instead of {expected}")


@check("6", needs=("scores",))
def scores_have_their_shape(subject):
    _, weights = subject.run(subject.build(), subject.inputs(), scores=True)
    _require_score_shape(subject, weights)


@check("6", needs=("scores",))
def scores_have_that_shape_symbolically(subject):
    symbolic = {name: keras.KerasTensor(value.shape) for name, value in subject.inputs().items()}
    _, weights = subject.call(subject.make(), symbolic, scores=True)
    require(weights is not None, "the symbolic call returns no weights")
    _require_score_shape(subject, weights)


@check("6", needs=("scores",))
def scores_are_after_the_softmax(subject):
    _, weights = subject.run(subject.build(), subject.inputs(), scores=True)
    sums = weights.sum(-1)
    require(np.abs(sums - 1).max() < FLOAT32, f"rows sum to {sums.min():.2g} … {sums.max():.2g}")


@check("6", needs=("scores",))
def scores_are_before_dropout(subject):
    if not subject.pure_weights:
        raise NotApplicable("dropout elsewhere in the block changes the weights, too")
    layer, inputs = subject.build(dropout=0.5), subject.inputs()
    output, weights = subject.run(layer, inputs, scores=True)
    trained, weights_in_training = subject.run(layer, inputs, scores=True, training=True)
    require(not np.array_equal(trained, output), "dropout does nothing in training")
    share = np.mean((weights_in_training == 0) & (weights > 0))
    require(np.array_equal(weights_in_training, weights), f"in training {share:.0%} of them are zero")


@check("6", needs=("scores",))
def scores_are_in_the_compute_dtype(subject):
    layer = subject.build("mixed_bfloat16")
    tensors = {name: ops.convert_to_tensor(value) for name, value in subject.inputs().items()}
    _, weights = subject.call(layer, tensors, scores=True)
    dtype = keras.backend.standardize_dtype(weights.dtype)
    require(dtype == "bfloat16", f"{dtype} under mixed_bfloat16")


@check("4", "positions")
def start_index_continues_the_sequence(subject):
    layer, inputs = subject.build(), subject.inputs()["query"]
    full = to_numpy(subject.apply(layer, ops.convert_to_tensor(inputs)))
    for start in (2, tf.constant(2)):
        tail = to_numpy(subject.apply(layer, ops.convert_to_tensor(inputs[:, 2:]), start_index=start))
        require_close(tail, full[:, 2:])


@check("3", "positions")
def far_positions_keep_their_precision(subject):
    inputs = ops.convert_to_tensor(subject.inputs()["query"])
    expected = to_numpy(subject.apply(subject.build(), inputs, start_index=FAR))
    problems = []
    for policy, tolerance in MIXED.items():
        distance = relative_distance(to_numpy(subject.apply(subject.build(policy), inputs, start_index=FAR)), expected)
        problems += [f"{policy}, from position {FAR}: off by {distance:.2g}"] if distance > tolerance else []
    require_none(problems)


@check("Keras", "all")
def every_option_is_in_the_config(subject):
    layer = subject.make()
    config = layer.get_config()
    options = inspect.signature(type(layer)).parameters.values()
    named = [option.name for option in options if option.kind in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY)]
    missing = [f"`{name}`" for name in named if name not in config]
    require(not missing, f"without {', '.join(missing)}")


@check("Keras", "all")
def the_config_makes_the_same_layer(subject):
    layer, inputs = subject.build("mixed_bfloat16", 0.25), subject.inputs()
    config = json.loads(json.dumps(layer.get_config()))
    again = type(layer).from_config(config)
    config_again = json.loads(json.dumps(again.get_config()))
    differing = [name for name in config if config_again.get(name) != config[name]]
    require(not differing, f"`{'`, `'.join(differing)}` changed")
    subject.run(again, inputs)
    again.set_weights(layer.get_weights())
    require(np.array_equal(subject.run(again, inputs)[0], subject.run(layer, inputs)[0]), "another output")


@check("Keras", "all")
def a_saved_model_reloads(subject):
    layer, inputs = subject.build(), subject.inputs()
    symbolic = {name: keras.Input(value.shape[1:]) for name, value in inputs.items()}
    model = keras.Model(list(symbolic.values()), subject.call(layer, symbolic)[0])
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.keras")
        loaded = keras.saving.load_model(Path(folder) / "model.keras")
    output = to_numpy(loaded([ops.convert_to_tensor(value) for value in inputs.values()]))
    require(np.array_equal(output, subject.run(layer, inputs)[0]), "another output")
