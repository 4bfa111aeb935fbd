"""Layers that break the attention contract, one for each conformance check, and nothing that comes before it."""

import dataclasses
import functools
import inspect

import keras
import tensorflow as tf
from keras import ops

from benchmarks.conformance.subjects import SUBJECTS
from zoo import layers

OURS = {subject.name: subject for subject in SUBJECTS if subject.path.startswith("zoo.")}
SINGLE_HEAD = OURS["zoo.layers.ScaledDotProductAttention"]
MULTI_HEAD = OURS["zoo.layers.MultiHeadAttention"]
SINUSOIDS = OURS["zoo.layers.SinusoidalPositions"]

SIGNATURE = inspect.signature(layers.BaseAttention.call)

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

    @functools.wraps(layers.BaseAttention.call)
    def call(self, *args, **kwargs):
        bound = SIGNATURE.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _, *given = bound.arguments.items()
        given = dict(given)
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


@breaks("returning the scores changes nothing")
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


@breaks("the causal mask depends on the offset")
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


@breaks("start index continues the sequence", SINUSOIDS)
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
