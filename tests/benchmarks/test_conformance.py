"""The conformance checks: each passes on a layer that keeps the contract, and fails on one that breaks it there."""

import dataclasses
import importlib.util

import keras
import numpy as np
import pytest
from keras import ops

from zoo import layers

if importlib.util.find_spec("tensorflow") is None or keras.backend.backend() != "tensorflow":
    pytest.skip("the checks run on TensorFlow", allow_module_level=True)

import tensorflow as tf

from benchmarks.conformance import __main__ as command
from benchmarks.conformance import report
from benchmarks.conformance.checks import CHECKS
from benchmarks.conformance.report import FAIL, NONE, PASS, Result, run_check
from benchmarks.conformance.subjects import MULTI, POSITIONS, SINGLE, SUBJECTS, Missing, Subject, find

BY_NAME = {check.name: check for check in CHECKS}
OURS = {subject.name: subject for subject in SUBJECTS if subject.path.startswith("zoo.")}
SINGLE_HEAD = OURS["zoo.layers.ScaledDotProductAttention"]
MULTI_HEAD = OURS["zoo.layers.MultiHeadAttention"]
SINUSOIDS = OURS["zoo.layers.SinusoidalPositions"]

# For each check, a subject with a layer that breaks what it is about, and nothing that comes before it.
BROKEN = {}


def breaks(name, subject=SINGLE_HEAD):
    """Registers a class as one that breaks the contract where a check looks."""

    def add(layer_class):
        layer_class.__name__ = layer_class.__qualname__ = f"Broken{len(BROKEN)}"
        globals()[layer_class.__name__] = keras.saving.register_keras_serializable("test")(layer_class)
        BROKEN[name] = dataclasses.replace(subject, path=f"{__name__}.{layer_class.__name__}")
        return layer_class

    return add


class _Opened:
    """Attention whose arguments and results a subclass may spoil."""

    def before(self, given):
        pass

    def after(self, given, output, weights):
        return output, weights

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
        attention_bias=None,
        start_index=None,
        cache=None,
    ):
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        self.before(given)
        results = super().call(**given)
        results = list(results) if isinstance(results, tuple) else [results]
        asked = given["return_attention_scores"]
        output, weights = self.after(given, results[0], results[1] if asked else None)
        results[: 1 + asked] = [output, weights] if asked else [output]
        return tuple(results) if len(results) > 1 else results[0]


class _Single(_Opened, layers.ScaledDotProductAttention):
    pass


class _Multi(_Opened, layers.MultiHeadAttention):
    pass


@breaks("float masks are refused")
class _(_Single):
    def before(self, given):
        given["value_mask"] = None if given["value_mask"] is None else ops.cast(given["value_mask"], "bool")


@breaks("masks are ANDed")
class _(_Single):
    def before(self, given):
        given["key_mask"] = given["key_mask"] if given["value_mask"] is None else None


@breaks("a query mask is respected")
class _(_Single):
    def before(self, given):
        given["query_mask"] = None


@breaks("each head can have a mask", MULTI_HEAD)
class _(_Multi):
    def before(self, given):
        given["attention_mask"] = ops.any(given["attention_mask"], axis=1)


@breaks("a float bias is added to the scores")
class _(_Single):
    def before(self, given):
        given["attention_bias"] = None


@breaks("masks come with the tensors")
class _(layers.ScaledDotProductAttention):
    def call(self, query, value, key=None, attention_mask=None, training=None):
        return super().call(query, value, key, attention_mask=attention_mask, training=training)


@breaks("the output carries the mask of the query")
class _(_Single):
    def compute_mask(self, inputs, mask=None):
        return None


@breaks("output is zero where all is masked")
class _(_Single):
    def after(self, given, output, weights):
        return output + 1.0, weights


@breaks("weights are zero where all is masked")
class _(_Single):
    def after(self, given, output, weights):
        return output, None if weights is None else weights + 0.2


@breaks("gradients are finite where all is masked")
class _(_Single):
    def after(self, given, output, weights):
        mask = given["value_mask"]
        if mask is None:
            return output, weights
        query = given["query"] * ops.cast(ops.any(mask, axis=-1), "float32")[:, None, None]
        return output + 1e-3 * ops.sqrt(ops.sum(query**2, axis=-1, keepdims=True)), weights


@breaks("asking for the scores changes nothing")
class _(_Single):
    def after(self, given, output, weights):
        return output if weights is None else output * 1.01, weights


@breaks("a graph agrees with eager")
class _(_Single):
    def after(self, given, output, weights):
        return output if tf.executing_eagerly() else output * 1.01, weights


@breaks("XLA agrees with eager")
class _(_Single):
    def after(self, given, output, weights):
        return tf.ensure_shape(tf.py_function(lambda x: x, [output], output.dtype), output.shape), weights


class _Imprecise(_Single):
    def after(self, given, output, weights):
        return output if self.compute_dtype == "float32" else output * 1.2, weights


@breaks("mixed float16 is close to float32")
class _(_Imprecise):
    pass


@breaks("mixed bfloat16 is close to float32")
class _(_Imprecise):
    pass


@breaks("large activations stay finite in float16")
class _(_Single):
    def before(self, given):
        given["query"] = given["query"] * 1000.0 / 1000.0


@breaks("decoding with a cache agrees with the full pass")
class _(_Single):
    def after(self, given, output, weights):
        return output if given["cache"] is None else output * 1.01, weights


@breaks("the causal mask hides the future")
class _(_Single):
    def before(self, given):
        given["use_causal_mask"] = False


@breaks("the causal mask knows the offset")
class _(_Single):
    def before(self, given):
        given["start_index"] = 0


class _Leaking(_Single):
    def after(self, given, output, weights):
        return output + 1e-3 * ops.mean(given["value"], axis=1, keepdims=True), weights


@breaks("masked keys cannot leak")
class _(_Leaking):
    pass


@breaks("the future cannot leak")
class _(_Leaking):
    pass


@breaks("masked NaN and infinity cannot leak")
class _(_Single):
    def after(self, given, output, weights):
        return output + 0.0 * ops.mean(given["value"], axis=1, keepdims=True), weights


class _Turned(_Single):
    def after(self, given, output, weights):
        return output, None if weights is None else ops.swapaxes(weights, 1, 2)


@breaks("scores have their shape")
class _(_Turned):
    pass


@breaks("scores have that shape symbolically")
class _(_Turned):
    pass


@breaks("scores are after the softmax")
class _(_Single):
    def after(self, given, output, weights):
        return output, None if weights is None else weights * 2.0


@breaks("scores are before dropout")
class _(_Single):
    def after(self, given, output, weights):
        return output, None if weights is None else weights * (0.0 if given["training"] else 1.0)


@breaks("scores are in the compute dtype")
class _(_Single):
    def after(self, given, output, weights):
        return output, None if weights is None else ops.cast(weights, "float32")


@breaks("start index goes on with the sequence", SINUSOIDS)
class _(layers.SinusoidalPositions):
    def call(self, inputs, start_index=0):
        return super().call(inputs)


@breaks("far positions keep their precision", SINUSOIDS)
class _(layers.SinusoidalPositions):
    def call(self, inputs, start_index=0):
        return super().call(inputs, ops.cast(ops.cast(start_index, self.compute_dtype), "int32"))


@breaks("every option is in the config")
class _(layers.ScaledDotProductAttention):
    def __init__(self, temperature=1.0, **kwargs):
        super().__init__(**kwargs)


@breaks("the config makes the same layer")
class _(layers.ScaledDotProductAttention):
    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "dropout": 0.0})


@breaks("a saved model reloads")
class _(layers.ScaledDotProductAttention):
    @classmethod
    def from_config(cls, config):
        raise ValueError("no way back")


def test_every_check_has_a_layer_that_breaks_it():
    assert BROKEN.keys() == BY_NAME.keys()


@pytest.mark.parametrize("name", BY_NAME)
def test_check_fails_where_the_contract_is_broken(name):
    result = run_check(BY_NAME[name], BROKEN[name])
    assert result.outcome == FAIL and result.reason, result


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_check_passes_where_the_contract_is_kept(name):
    subject = SINUSOIDS if BY_NAME[name].groups == "positions" else MULTI_HEAD if "head" in name else SINGLE_HEAD
    assert run_check(BY_NAME[name], subject) == Result(PASS)


def test_what_happened_is_told():
    subject = {subject.name: subject for subject in SUBJECTS}["keras.layers.Attention"]
    causal = run_check(BY_NAME["the causal mask knows the offset"], subject)
    assert causal == Result(FAIL, "query 0 of 3 did not see key 1 of 5 (12 of 30 are wrong)")
    bias = run_check(BY_NAME["a float bias is added to the scores"], subject)
    assert bias == Result(NONE, "`call` takes no bias")
    error = run_check(BY_NAME["a saved model reloads"], BROKEN["a saved model reloads"])
    assert error.outcome == FAIL and "no way back" in error.reason


def test_large_activations_need_the_scale_before_the_product():
    # float16 ends at 65,504: the products have to be beyond it, and the scaled ones within.
    for subject in (SINGLE_HEAD, MULTI_HEAD):
        inputs = {name: value * subject.large for name, value in subject.inputs().items()}
        layer = subject.build(inputs=inputs)
        query = ops.convert_to_numpy(layer.project_query(inputs["query"]))
        key = ops.convert_to_numpy(layer.project_memory(inputs["value"], inputs["key"])["key"])
        size = query.shape[-1]
        raw = query @ np.swapaxes(key, -1, -2)
        if subject is SINGLE_HEAD:  # its projection is the score's, which may scale
            raw = inputs["query"] @ np.swapaxes(inputs["key"], -1, -2)
        assert np.abs(raw).max() > 65504 > np.abs(raw).max() / size**0.5


def test_missing_packages_and_layers_are_told():
    there = dataclasses.replace(SINGLE_HEAD, note="there")
    absent = [dataclasses.replace(SINGLE_HEAD, path=path) for path in ("no_such_package.layers.A", "zoo.layers.A")]
    found, missing = report.available([there, *absent])
    assert found == [there]
    assert missing == [
        "no_such_package is not installed; left out: no_such_package.layers.A",
        "zoo.layers has no A; left out: zoo.layers.A",
    ]
    with pytest.raises(Missing):
        find("zoo.layers.A")


def test_report():
    class_check = BY_NAME["scores have their shape"], BY_NAME["masks are ANDed"]
    first = Subject("keras.layers.A", SINGLE, dict, {})
    second = Subject("zoo.layers.B", SINGLE, dict, {}, note="blockwise")
    third = Subject("keras_hub.layers.C", POSITIONS, dict, {})
    results = {
        first: {class_check[0]: Result(PASS), class_check[1]: Result(FAIL, "it did this")},
        second: {class_check[0]: Result(NONE, "there are none"), class_check[1]: Result(PASS)},
        third: {},
    }
    text = report.markdown(results, ["keras_hub is not installed; left out: all of it"])
    for line in (
        "| Single head | item | Keras A | zoo B, blockwise |",
        "| masks are ANDed | 1 | **fail** | pass |",
        "| scores have their shape | 6 | pass | – |",
        "| passed of those that apply | | 1 of 2 | 1 of 1 |",
        "- keras_hub is not installed; left out: all of it",
        "- Keras A\n  - masks are ANDed: it did this",
        "- zoo B, blockwise\n  - scores have their shape: there are none",
        "| Positions | item | KerasHub C |",
    ):
        assert line in text
    assert f"Keras {keras.__version__}" in text and f"TensorFlow {tf.__version__}" in text


def test_command_writes_the_table(tmp_path, capsys):
    file = tmp_path / "table.md"
    arguments = ["--layer", "keras.layers.A*", "--check", "scores are [ab]*", "--output", str(file)]
    assert command.main(arguments) == 0
    out, err = capsys.readouterr()
    assert out == file.read_text(encoding="utf-8")
    assert "| scores are after the softmax | 6 | pass | pass |" in out
    assert "keras.layers.AdditiveAttention: 1 of 2" in err


def test_command_without_a_match_or_a_package(monkeypatch, capsys):
    assert command.main(["--layer", "nothing*"]) == 2
    assert "--layer 'nothing*'" in capsys.readouterr().err
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert command.main([]) == 2
    assert capsys.readouterr().err == "tensorflow is not installed; the checks need it: pip install tensorflow\n"


def test_command_without_keras_hub(monkeypatch, capsys):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "keras_hub" else there(name))
    assert command.main(["--layer", "keras*.RotaryEmbedding"]) == 2
    err = capsys.readouterr().err
    assert "keras_hub is not installed; left out: keras_hub.layers.RotaryEmbedding" in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OURS)
def test_ours_keep_the_contract(name):
    results, _ = report.run(layer=name)
    told = {
        check.name: result.reason
        for each in results.values()
        for check, result in each.items()
        if result.outcome == FAIL
    }
    assert not told


@pytest.mark.filterwarnings("ignore")
def test_keras_hub_is_called_as_it_wants():
    pytest.importorskip("keras_hub")
    for subject in SUBJECTS:
        if subject.path.startswith("keras_hub") and subject.group == MULTI:
            result = run_check(BY_NAME["decoding with a cache agrees with the full pass"], subject)
            assert result == Result(PASS)
