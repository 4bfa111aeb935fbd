"""The contract that every public layer keeps; `cases.py` has the cases."""

import inspect
import json

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.cases import CASES, MASKED_CASES, first_of_each_class, with_each
from support.layers.contract import (
    arrays,
    build,
    built,
    call,
    case_masks,
    compiled,
    gradients,
    random_array,
    random_mask,
    tensorflow_only,
    to_numpy,
)

from zoo import layers

# They say what their subclasses do; the subclasses have cases.
ABSTRACT = {"BaseAttention", "Normalization", "Positions", "Score"}
# Of different kinds, for what takes long.
FEW = {
    layers.AdditiveAttention,
    layers.GroupedQueryAttention,
    layers.SlidingWindowAttention,
    layers.LinearAttention,
    layers.RotaryPositions,
    layers.TransformerDecoderBlock,
    layers.AttentionRNN,
}
MIXED = {"mixed_bfloat16": 0.06, "mixed_float16": 0.01}

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
one_of_each = with_each(CASES)
one_masked_case_of_each = with_each(MASKED_CASES)


def _symbolic(case):
    return [keras.Input((*(None,) * (len(shape) - 2), shape[-1])) for shape in case.inputs.values()]


def _scores(case):
    return {"return_attention_scores": True} if case.weights else {}


def test_every_public_layer_has_a_case():
    public = {
        name
        for name in layers.__all__
        if isinstance(getattr(layers, name), type) and issubclass(getattr(layers, name), keras.layers.Layer)
    }
    assert public - ABSTRACT == {case.covers.__name__ for case in CASES}


def test_every_option_is_tested_with_a_value_of_its_own():
    untested = set()
    for layer_class in {case.covers for case in CASES}:
        made = [case.part(case.make("float32")) for case in CASES if case.covers is layer_class]
        for name, option in inspect.signature(layer_class).parameters.items():
            if option.kind in (option.VAR_POSITIONAL, option.VAR_KEYWORD) or name == "dtype":
                continue
            assert all(hasattr(layer, name) and name in layer.get_config() for layer in made), name
            if all(layer.get_config()[name] == option.default for layer in made):
                untested.add((layer_class.__name__, name))
    assert not untested


@every_case
def test_build_makes_all_weights(case):
    layer = case.make("float32")
    layer.build(*case.inputs.values())
    assert layer.built
    assert sum(int(np.prod(weight.shape)) for weight in layer.weights) == case.parameters


@one_of_each
def test_a_call_makes_no_more_weights(case):
    layer = case.make("float32")
    layer.build(*case.inputs.values())
    before = [weight.path for weight in layer.weights]
    results = call(case, layer, arrays(case))
    assert [weight.path for weight in layer.weights] == before
    assert [result.shape for result in results] == ([case.output, case.weights] if case.weights else [case.output])
    called = case.make("float32")
    called(*arrays(case).values())
    assert [weight.shape for weight in called.weights] == [weight.shape for weight in layer.weights]


@one_of_each
def test_symbolic_shape_is_the_eager_shape(case):
    layer = case.make("mixed_bfloat16")
    symbolic = [keras.KerasTensor(shape) for shape in case.inputs.values()]
    specs = layer(*symbolic, **_scores(case))
    specs = specs if isinstance(specs, tuple) else (specs,)
    assert [spec.shape for spec in specs] == ([case.output, case.weights] if case.weights else [case.output])
    if keras.backend.backend() != "torch":  # where Keras traces without the cast of the weights
        assert {spec.dtype for spec in specs} == {"bfloat16"}
    if case.part(layer) is layer:
        assert tuple(layer.compute_output_shape(*case.inputs.values())) == case.output
    unknown = layer(*_symbolic(case))
    assert unknown.shape[0] is None
    assert all(size in (None, known) for size, known in zip(unknown.shape, case.output, strict=True))


@one_of_each
def test_config_round_trip(case):
    layer = build(case, "mixed_bfloat16")
    config = layer.get_config()
    again = type(layer).from_config(json.loads(json.dumps(config)))
    assert json.loads(json.dumps(again.get_config())) == json.loads(json.dumps(config))
    assert again.dtype_policy.name == "mixed_bfloat16"
    again.build(*case.inputs.values())
    again.set_weights(layer.get_weights())
    for result, expected in zip(call(case, again, arrays(case)), call(case, layer, arrays(case)), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "option", ["positions", "query_dim", "qk_norm", "logit_softcap", "output_gate", "visibility", "normalization"]
)
def test_configs_from_before_an_option_still_load(option):
    layer = layers.MultiHeadAttention(7, 19, value_dim=23)
    config = layer.get_config()
    del config[option]
    assert layers.MultiHeadAttention.from_config(config).get_config() == layer.get_config()


@with_each(CASES, FEW)
def test_functional_model_reloads(case, tmp_path):
    symbolic = _symbolic(case)
    layer = case.make("float32")
    model = keras.Model(symbolic, layer(*symbolic, **_scores(case)))
    layer.set_weights(built(case).get_weights())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    results = keras.tree.flatten(loaded(list(arrays(case).values())))
    assert len(loaded.weights) == len(layer.weights)
    for result, expected in zip(results, call(case, layer, arrays(case)), strict=True):
        np.testing.assert_array_equal(to_numpy(result), expected)


def _gradients(case, layer, **options):
    """Returns the gradients of a random projection of the output, by names of inputs and paths of weights."""
    inputs = {name: keras.Variable(value) for name, value in arrays(case).items()}
    direction = ops.convert_to_tensor(random_array(case.output, 97))

    def loss():
        output = layer(*(ops.convert_to_tensor(value) for value in inputs.values()), **options)
        return ops.sum(output * direction)

    variables = {**inputs, **{variable.path: variable for variable in layer.trainable_variables}}
    return dict(zip(variables, gradients(loss, list(variables.values())), strict=True))


@one_of_each
def test_gradient_reaches_every_weight_and_input(case):
    for name, gradient in _gradients(case, built(case)).items():
        assert np.all(np.isfinite(gradient)), name
        assert name.endswith(case.flat) == bool(np.abs(gradient).max() < 1e-5), name


@one_masked_case_of_each
def test_masked_positions_do_not_leak(case):
    layer, inputs = built(case), arrays(case)
    for name, hidden in case.hides.items():
        mask = random_mask(case.inputs[hidden[0]][:2], seed=5)
        changed = {
            key: np.where(mask[:, :, None], value, 1e4 * random_array(value.shape, 89)) if key in hidden else value
            for key, value in inputs.items()
        }
        before, after = (call(case, layer, each, **{name: mask}) for each in (inputs, changed))
        if hidden[0] == next(iter(inputs)) and mask.shape == case.output[:2]:  # of the real rows alone
            before, after = ([np.moveaxis(each, -2, 1)[mask] for each in results] for results in (before, after))
        for result, expected in zip(after, before, strict=True):
            np.testing.assert_array_equal(result, expected)


@one_masked_case_of_each
def test_rows_with_nothing_to_attend_to_are_zero(case):
    layer = built(case)
    for name, hidden in case.hides.items():
        mask = np.ones(case.inputs[hidden[0]][:2], bool)
        mask[0] = False
        results = call(case, layer, arrays(case), **{name: mask})
        if case.weights:
            assert not np.any(results[1][0]) and np.any(results[1][1])
        if isinstance(layer, layers.BaseAttention):
            assert not np.any(results[0][0]) and np.any(results[0][1])
        for path, gradient in _gradients(case, layer, **{name: mask}).items():
            assert np.all(np.isfinite(gradient)), path


@one_of_each
def test_asking_for_the_scores_changes_nothing(case):
    if case.weights:
        layer, masks = built(case), case_masks(case)
        asked, weights = call(case, layer, arrays(case), **masks)
        np.testing.assert_array_equal(call(case, layer, arrays(case), scores=False, **masks)[0], asked)
        sums = weights.sum(axis=-1)
        if case.whole:
            assert np.all((np.abs(sums - 1) < 1e-5) | (sums == 0))
        else:
            plain = case.signed or isinstance(getattr(layer, "normalization", None), layers.SigmoidNormalization)
            assert (plain or np.all(sums <= 1 + 1e-5)) and np.any(sums)


@one_of_each
@pytest.mark.parametrize("policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.nightly)])
def test_mixed_precision_is_close_to_float32(case, policy):
    masks = case_masks(case)
    expected = call(case, built(case), arrays(case), **masks)
    layer = build(case, policy)
    raw = layer(*arrays(case).values(), **masks, **_scores(case))
    for tensor in raw if isinstance(raw, tuple) else (raw,):
        assert keras.backend.standardize_dtype(tensor.dtype) == layer.compute_dtype
    for result, reference in zip(call(case, layer, arrays(case), **masks), expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=MIXED[policy] * max(1.0, np.abs(reference).max()))
        assert not np.any(result[reference == 0])


def check_compiled(case, xla):
    layer, masks, names = built(case), case_masks(case), list(case.inputs)

    def function(*values):
        values, given = values[: len(names)], values[len(names) :]
        return layer(*values, **dict(zip(masks, given, strict=True)), **_scores(case))

    values = [ops.convert_to_tensor(value) for value in (*arrays(case).values(), *masks.values())]
    expected = call(case, layer, arrays(case), **masks)
    for result, reference in zip(keras.tree.flatten(compiled(function, xla)(*values)), expected, strict=True):
        np.testing.assert_allclose(to_numpy(result), reference, atol=2e-6, rtol=2e-5)


@one_of_each
def test_graph_is_as_eager(case):
    check_compiled(case, xla=False)


@with_each(CASES, {layers.AdditiveAttention, layers.GroupedQueryAttention, layers.TransformerDecoderBlock})
def test_xla_is_as_eager(case):
    check_compiled(case, xla=True)


@one_of_each
def test_dropout_acts_in_training_only(case):
    layer, inputs = build(case), arrays(case)
    if not getattr(layer, "dropout", 0):
        return
    plain = call(case, layer, inputs)
    np.testing.assert_array_equal(call(case, layer, inputs, training=False)[0], plain[0])
    trained = call(case, layer, inputs, training=True)
    assert not np.array_equal(trained[0], plain[0])
    # The seed is the layer's own.
    np.testing.assert_array_equal(call(case, build(case), inputs, training=True)[0], trained[0])
    if isinstance(layer, layers.BaseAttention):  # weights are returned before dropout
        np.testing.assert_array_equal(trained[1], plain[1])


def _named_results(case, layer):
    def function(**values):
        inputs = [values.pop(name) for name in case.inputs]
        results = keras.tree.flatten(layer(*inputs, **values, **_scores(case)))
        return dict(zip(("output", "weights"), results, strict=False))

    return function


@tensorflow_only("SavedModels come from TensorFlow")
@pytest.mark.parametrize(
    "cases",
    [[case for case in first_of_each_class(CASES) if case.covers in FEW], pytest.param(CASES, marks=pytest.mark.nightly)],
    ids=["few", "all"],
)
def test_all_layers_survive_a_saved_model(cases, tmp_path):
    import tensorflow as tf

    module, expected = tf.Module(), {}
    module.variables_of_layers, signatures = [], {}
    for case in cases:
        layer, masks = built(case), case_masks(case)
        module.variables_of_layers.append([variable.value for variable in layer.variables])

        specs = {name: tf.TensorSpec([None] * (len(s) - 1) + [s[-1]], name=name) for name, s in case.inputs.items()}
        specs |= {name: tf.TensorSpec([None, None], tf.bool, name=name) for name in masks}
        function = tf.function(_named_results(case, layer), autograph=False)
        signatures[case.name] = function.get_concrete_function(**specs)
        expected[case.name] = call(case, layer, arrays(case), **masks)
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    loaded = tf.saved_model.load(str(tmp_path)).signatures
    for case in cases:
        feeds = {name: tf.constant(value) for name, value in {**arrays(case), **case_masks(case)}.items()}
        results = loaded[case.name](**feeds)
        for name, reference in zip(("output", "weights"), expected[case.name], strict=False):
            np.testing.assert_allclose(results[name], reference, atol=2e-6, rtol=2e-5)
