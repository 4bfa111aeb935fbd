"""The contract that every public layer keeps, all of it in one test per case; `support.layers.cases` has the cases."""

import inspect
import json

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.cases import CASES, first_of_each_class, with_each
from support.layers.contract import (
    arrays,
    build,
    call,
    compiled,
    gradients,
    own_masks,
    poisoned,
    random_array,
    randomize,
    tensorflow_only,
    to_numpy,
)

from zoo import layers

# They say what their subclasses do; the subclasses have cases.
ABSTRACT = {"BaseAttention", "Normalization", "Positions", "Score"}
FIRST = first_of_each_class(CASES)
# Of different kinds, for what takes long.
FEW = {
    layers.GroupedQueryAttention,
    layers.TransformerDecoderBlock,
    layers.AttentionRNN,
}
XLA = {layers.GroupedQueryAttention}
# Whose graphs are as large as those of others that they are like.
IN_GRAPHS_LIKE_OTHERS = {
    layers.BlockLocalAttention,
    layers.ConditionalAttentionCell,
    layers.GatedLinearAttention,
    layers.LuongAttentionCell,
    layers.MultiScaleRetention,
    layers.PerHeadScore,
    layers.PerformerAttention,
    layers.RecurrentAttentionCell,
    layers.XPosPositions,
}
MIXED = {"mixed_bfloat16": 0.06, "mixed_float16": 0.01}


def _symbolic(case):
    return [keras.Input((*(None,) * (len(shape) - 2), shape[-1])) for shape in case.inputs.values()]


def _scores(case):
    return {"return_attention_scores": True} if case.weights else {}


def _shapes(case):
    return [case.output, case.weights] if case.weights else [case.output]


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


@with_each(CASES)
def test_contract(case, tmp_path):
    layer = case.make("float32")
    layer.build(*case.inputs.values())
    assert layer.built
    assert sum(int(np.prod(weight.shape)) for weight in layer.weights) == case.parameters
    paths, seeds = [weight.path for weight in layer.weights], _seeds(layer)
    randomize(layer)

    inputs, masks = arrays(case), own_masks(case)
    results = call(case, layer, inputs, **masks)
    assert [weight.path for weight in layer.weights] == paths, "a call makes no more weights"
    assert [result.shape for result in results] == _shapes(case)
    _check_weights(case, layer, results)
    _check_masks(case, layer, results)
    _check_gradients(case, layer)
    _check_dropout(case, layer, results, seeds)

    again = _check_config(case, layer, seeds)
    _check_half_precision(case, again, results)
    _check_symbolic(case, again)
    if case.covers not in IN_GRAPHS_LIKE_OTHERS:
        _check_graph(case, layer, results)
    if case.covers in XLA:
        _check_xla(case, layer, results)
    if case.covers in FEW:
        _check_reload(case, layer, tmp_path)


def _seeds(layer):
    """Returns the states of random numbers, which are no weights."""
    weights = {id(weight) for weight in layer.weights}
    return [ops.convert_to_numpy(variable) for variable in layer.variables if id(variable) not in weights]


def _check_weights(case, layer, results):
    """Checks that asking for the weights changes nothing, and that they are weights."""
    if not case.weights:
        return
    output, weights = results
    np.testing.assert_array_equal(call(case, layer, arrays(case), scores=False, **own_masks(case))[0], output)
    sums = weights.sum(axis=-1)
    if case.whole:
        assert np.all((np.abs(sums - 1) < 1e-5) | (sums == 0)), "weights of a row sum to 1"
    else:
        plain = case.signed or isinstance(getattr(layer, "normalization", None), layers.SigmoidNormalization)
        assert (plain or np.all(sums <= 1 + 1e-5)) and np.any(sums)


def _check_masks(case, layer, results):
    """Checks that masked positions do not leak, and that rows with nothing to attend to are zero."""
    if not case.hides:
        return
    masks, first = own_masks(case), next(iter(case.inputs))
    after = call(case, layer, poisoned(case, arrays(case), masks), **masks)
    of_rows = [masks[name] for name, hidden in case.hides.items() if hidden[0] == first]
    if of_rows and of_rows[0].shape == case.output[:2]:  # the real rows alone
        real = np.logical_and.reduce(of_rows)
        before, after = ([np.moveaxis(each, -2, 1)[real] for each in both] for both in (results, after))
    else:
        before = results
    for result, expected in zip(after, before, strict=True):
        np.testing.assert_array_equal(result, expected, "masked positions do not leak")
    if case.weights:
        assert not np.any(results[1][0]) and np.any(results[1][1])
    if isinstance(layer, layers.BaseAttention):
        assert not np.any(results[0][0]) and np.any(results[0][1])
        assert not np.any(results[0][~masks["query_mask"]])


def _check_gradients(case, layer):
    """Checks that the gradient of a random projection of the output reaches every weight and input.

    Of the masks it has the one that leaves the first sequence nothing: no gradient may be NaN there.
    """
    masks = dict(list(own_masks(case).items())[-1:])
    inputs = {name: keras.Variable(value) for name, value in arrays(case).items()}
    direction = ops.convert_to_tensor(random_array(case.output, 97))

    def loss():
        output = layer(*(ops.convert_to_tensor(value) for value in inputs.values()), **masks)
        return ops.sum(output * direction)

    variables = {**inputs, **{variable.path: variable for variable in layer.trainable_variables}}
    for name, gradient in zip(variables, gradients(loss, list(variables.values())), strict=True):
        assert np.all(np.isfinite(gradient)), name
        is_flat = bool(np.abs(gradient).max() < 1e-5)
        # Sparse weights of few keys may all be 0 or 1, of which no score changes any.
        assert is_flat == name.endswith(case.flat) or (case.sparse and is_flat and name != "value"), name


def _check_dropout(case, layer, results, seeds):
    """Checks that dropout acts in training only, by a seed of the layer's own."""
    if not getattr(layer, "dropout", 0):
        return
    np.testing.assert_array_equal(_seeds(layer), seeds, "without training nothing is drawn")
    trained = call(case, layer, arrays(case), training=True, **own_masks(case))
    assert not np.array_equal(trained[0], results[0])
    if isinstance(layer, layers.BaseAttention):  # weights are returned before dropout
        np.testing.assert_array_equal(trained[1], results[1])


def _check_config(case, layer, seeds):
    """Returns the layer that the configuration of one in bfloat16 makes, built by a call, with the same weights."""
    made = case.make("mixed_bfloat16")
    config = json.dumps(made.get_config())
    again = type(made).from_config(json.loads(config))
    assert json.dumps(again.get_config()) == config
    assert again.dtype_policy.name == "mixed_bfloat16"
    again(*arrays(case).values())
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in layer.weights]
    again.set_weights(layer.get_weights())
    if getattr(layer, "seed", None) is not None:
        given, kept = ([seed for seed in each if seed[0] == layer.seed] for each in (seeds, _seeds(again)))
        # Cells of Keras inside have some that nobody gave; where all differ from the layer's, all follow from it.
        np.testing.assert_array_equal(*((kept, given) if given else (_seeds(again), seeds)))
    return again


def _check_half_precision(case, layer, expected):
    """Checks that results are in the compute dtype, and close to those in float32."""
    raw = layer(*arrays(case).values(), **own_masks(case), **_scores(case))
    for tensor, reference in zip(raw if isinstance(raw, tuple) else (raw,), expected, strict=True):
        assert keras.backend.standardize_dtype(tensor.dtype) == layer.compute_dtype
        result = to_numpy(tensor)
        tolerance = MIXED[layer.dtype_policy.name] * max(1.0, np.abs(reference).max())
        np.testing.assert_allclose(result, reference, rtol=0, atol=tolerance)
        assert not np.any(result[reference == 0])


def _check_symbolic(case, layer):
    """Checks that symbolic shapes and dtypes are the true ones, of known sizes and of unknown ones."""
    specs = layer(*map(keras.KerasTensor, case.inputs.values()), **_scores(case))
    specs = specs if isinstance(specs, tuple) else (specs,)
    assert [spec.shape for spec in specs] == _shapes(case)
    if keras.backend.backend() != "torch":  # where Keras traces without the cast of the weights
        assert {spec.dtype for spec in specs} == {"bfloat16"}
    if case.part(layer) is layer:
        assert tuple(layer.compute_output_shape(*case.inputs.values())) == case.output
    if keras.backend.backend() != "tensorflow":  # where a graph of unknown sizes is run, see below
        _check_unknown_shape(case, layer(*_symbolic(case)).shape)


def _check_unknown_shape(case, shape):
    assert shape[0] is None
    assert all(size in (None, known) for size, known in zip(shape, case.output, strict=True))


def _function(case, layer):
    """Returns the layer as a function of tensors, and these: the inputs and the masks."""
    masks, names = own_masks(case), list(case.inputs)

    def function(*values):
        values, given = values[: len(names)], values[len(names) :]
        return layer(*values, **dict(zip(masks, given, strict=True)), **_scores(case))

    return function, [ops.convert_to_tensor(value) for value in (*arrays(case).values(), *masks.values())]


def _check_graph(case, layer, expected):
    """Checks that a graph gives what the layer gives, on TensorFlow one that knows no sizes."""
    function, values = _function(case, layer)
    if keras.backend.backend() == "tensorflow":
        graph = compiled(function, xla=False).get_concrete_function(*map(_unknown, values))
        _check_unknown_shape(case, keras.tree.flatten(graph.structured_outputs)[0].shape)
    else:
        graph = compiled(function, xla=False)
    for result, reference in zip(keras.tree.flatten(graph(*values)), expected, strict=True):
        np.testing.assert_allclose(to_numpy(result), reference, atol=2e-6, rtol=2e-5)


def _unknown(tensor):
    """Returns the specification of a tensor of whose sizes only that of the features is known."""
    import tensorflow as tf

    known = tensor.shape[-1:] if tensor.dtype.is_floating else [None]
    return tf.TensorSpec([None] * (len(tensor.shape) - 1) + known, tensor.dtype)


def _check_xla(case, layer, expected):
    """Checks that what XLA compiles gives what the layer gives."""
    function, values = _function(case, layer)
    for result, reference in zip(keras.tree.flatten(compiled(function, xla=True)(*values)), expected, strict=True):
        np.testing.assert_allclose(to_numpy(result), reference, atol=2e-6, rtol=2e-5)


def _check_reload(case, layer, folder):
    """Checks that a functional model with such a layer survives its file."""
    symbolic, own = _symbolic(case), case.make("float32")
    model = keras.Model(symbolic, own(*symbolic, **_scores(case)))
    own.set_weights(layer.get_weights())
    model.save(folder / "model.keras")
    loaded = keras.saving.load_model(folder / "model.keras")
    assert len(loaded.weights) == len(layer.weights)
    results = keras.tree.flatten(loaded(list(arrays(case).values())))
    for result, expected in zip(results, call(case, layer, arrays(case)), strict=True):
        np.testing.assert_array_equal(to_numpy(result), expected)


@pytest.mark.nightly
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_what_takes_long(case, tmp_path):
    """Graphs, also by XLA, the model's file, and float16, for each class."""
    layer = build(case)
    results = call(case, layer, arrays(case), **own_masks(case))
    _check_half_precision(case, build(case, "mixed_float16"), results)
    _check_graph(case, layer, results)
    _check_xla(case, layer, results)
    _check_reload(case, layer, tmp_path)


def test_configs_from_before_an_option_still_load():
    layer = layers.MultiHeadAttention(7, 19, value_dim=23)
    expected = layer.get_config()
    for option in ("positions", "query_dim", "qk_norm", "logit_softcap", "output_gate", "visibility", "normalization"):
        config = layer.get_config()
        del config[option]
        assert layers.MultiHeadAttention.from_config(config).get_config() == expected, option


def _named_results(case, layer):
    def function(**values):
        inputs = [values.pop(name) for name in case.inputs]
        results = keras.tree.flatten(layer(*inputs, **values, **_scores(case)))
        return dict(zip(("output", "weights"), results, strict=False))

    return function


@tensorflow_only("SavedModels come from TensorFlow")
@pytest.mark.parametrize(
    "cases",
    [
        [case for case in first_of_each_class(CASES) if case.covers in XLA],
        pytest.param(CASES, marks=pytest.mark.nightly),
    ],
    ids=["few", "all"],
)
def test_all_layers_survive_a_saved_model(cases, tmp_path):
    import tensorflow as tf

    module, expected = tf.Module(), {}
    module.variables_of_layers, signatures = [], {}
    for case in cases:
        layer, masks = build(case), own_masks(case)
        module.variables_of_layers.append([variable.value for variable in layer.variables])

        specs = {name: tf.TensorSpec([None] * (len(s) - 1) + [s[-1]], name=name) for name, s in case.inputs.items()}
        specs |= {name: tf.TensorSpec([None, None], tf.bool, name=name) for name in masks}
        function = tf.function(_named_results(case, layer), autograph=False)
        signatures[case.name] = function.get_concrete_function(**specs)
        expected[case.name] = call(case, layer, arrays(case), **masks)
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    loaded = tf.saved_model.load(str(tmp_path)).signatures
    for case in cases:
        feeds = {name: tf.constant(value) for name, value in {**arrays(case), **own_masks(case)}.items()}
        results = loaded[case.name](**feeds)
        for name, reference in zip(("output", "weights"), expected[case.name], strict=False):
            np.testing.assert_allclose(results[name], reference, atol=2e-6, rtol=2e-5)
