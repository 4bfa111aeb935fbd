"""The base class of the models of all tasks."""

import inspect

import keras
from keras import backend, ops

from zoo.errors import InputError
from zoo.layers.core.base import KeepsQuantization
from zoo.models.shared.embeddings import tied_tables
from zoo.options import Options
from zoo.vocabulary import PAD


class ZooModel(KeepsQuantization, keras.Model):
    """Base of all models: each option of `options_class` is an argument, an attribute and a key of the configuration.

    A subclass sets `options_class`, whose options are appended to its docstring. Other arguments, such as `name` and
    `dtype`, are passed to `keras.Model`. Options without a default may be positional arguments.

    Attributes:
        options: The checked options.
        input_names: Names of the inputs, in order.
        predicted: Name of the input that has an output for each position, or `None`. Losses and metrics of Keras ignore
            the positions where it is padding.
    """

    options_class: type[Options]
    input_names: tuple[str, ...] = ("tokens",)
    predicted: str | None = None

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "options_class" in cls.__dict__:
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{cls.options_class.describe()}"

    def __init__(self, *arguments, **options):
        required = self.options_class.required()
        if len(arguments) > len(required):
            raise TypeError(f"{type(self).__name__} takes only {required} by position. Received: {arguments}.")
        checked, keras_arguments = self.options_class.take(dict(zip(required, arguments, strict=False)) | options)
        super().__init__(**keras_arguments)
        self.options = checked
        for name, value in checked.to_dict().items():
            setattr(self, name, value)

    def __call__(self, inputs, *arguments, **options):
        return super().__call__(self.inputs_by_name(inputs), *arguments, **options)

    def stateless_call(self, trainable_variables, non_trainable_variables, inputs, *arguments, **options):
        # Keras' trainer on JAX calls this instead of `__call__`, without input names and without a mask of the outputs.
        inputs = self.inputs_by_name(inputs)
        results = super().stateless_call(trainable_variables, non_trainable_variables, inputs, *arguments, **options)
        self._set_mask_metadata(inputs, results[0], None)
        return results

    def inputs_by_name(self, inputs):
        """Returns the inputs, which are an array, a sequence of arrays or a dict, as a dict.

        Raises:
            InputError: If they are something else, or not matrices of ids.
        """
        names = self.input_names
        if isinstance(inputs, (list, tuple)) and len(inputs) == len(names) and all(map(_is_array, inputs)):
            inputs = dict(zip(names, inputs, strict=True))
        elif len(names) == 1 and _is_array(inputs):
            inputs = {names[0]: inputs}
        if not isinstance(inputs, dict) or not all(name in inputs and _is_array(inputs[name]) for name in names):
            raise InputError(f"{self._required_inputs()} Received: {_describe(inputs)}.")
        for name in names:
            if len(inputs[name].shape) != 2 or not backend.is_int_dtype(backend.standardize_dtype(inputs[name].dtype)):
                raise InputError(f"{self._required_inputs()} Received: {name} as {_describe(inputs[name])}.")
        return inputs

    def _required_inputs(self):
        names = " and ".join(f"`{name}` [batch, length]" for name in self.input_names)
        form = "arrays in this order, or a dict" if len(self.input_names) > 1 else "an array, or a dict"
        return f"{type(self).__name__} requires integers {names}: {form} with these keys."

    def compute_mask(self, inputs, previous_mask=None):
        return None if self.predicted is None else padding_mask(ops.convert_to_tensor(inputs[self.predicted]))

    @property
    def layers_of_steps(self):
        """The layers of a decoding step that may have a `constant`, see `zoo.layers.core.constants`."""
        return tied_tables(self)

    def get_config(self):
        return {**super().get_config(), **self.options.to_dict()}


def _is_array(value):
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _describe(inputs):
    """Returns types and shapes of inputs as text."""
    if _is_array(inputs):
        return f"{backend.standardize_dtype(inputs.dtype)} {list(inputs.shape)}"
    if isinstance(inputs, dict):
        return "{" + ", ".join(f"{name!r}: {_describe(value)}" for name, value in inputs.items()) + "}"
    if isinstance(inputs, (list, tuple)) and any(map(_is_array, inputs)):
        return f"{type(inputs).__name__} of {len(inputs)}: {', '.join(map(_describe, inputs[:3]))}"
    return type(inputs).__name__


def build_all(layers, *shapes):
    """Builds layers for inputs of these shapes, each of them once; `None` is skipped."""
    for layer in dict.fromkeys(layers):
        if layer is not None:
            layer.build(*shapes)


def padding_mask(ids):
    """Returns a boolean mask, `True` where ids are not padding."""
    return ops.not_equal(ids, PAD)
