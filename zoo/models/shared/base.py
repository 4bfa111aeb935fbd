"""The base of the models of all tasks: they take their options from one declaration."""

import inspect

import keras
from keras import backend, ops

from zoo.errors import InputError
from zoo.layers.core.base import KeepsQuantization
from zoo.models.shared.embeddings import tied_tables
from zoo.options import Options
from zoo.vocabulary import PAD


class ZooModel(KeepsQuantization, keras.Model):
    """Base of all models: each option of `options_class` is an argument, an attribute and in the configuration.

    A subclass names its `options_class`, whose options are listed at the end of its docstring. Arguments that are no
    options, such as `name` and `dtype`, are those of `keras.Model`. Options without a default can be given by position.

    Attributes:
        options: The options, checked.
        input_names: What the model reads, by name; of several in this order.
        predicted: The name of the input of which each position gives an output, or `None`. Where it is padding, losses
            and metrics of Keras count nothing.
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
            raise TypeError(f"{type(self).__name__} takes {required} by position. Received: {arguments}.")
        checked, keras_arguments = self.options_class.take(dict(zip(required, arguments, strict=False)) | options)
        super().__init__(**keras_arguments)
        self.options = checked
        for name, value in checked.to_dict().items():
            setattr(self, name, value)

    def __call__(self, inputs, *arguments, **options):
        return super().__call__(self.named(inputs), *arguments, **options)

    def stateless_call(self, trainable_variables, non_trainable_variables, inputs, *arguments, **options):
        # Keras' trainer on JAX calls this, and it `call`: without names of inputs, and without a mask of outputs.
        inputs = self.named(inputs)
        results = super().stateless_call(trainable_variables, non_trainable_variables, inputs, *arguments, **options)
        self._set_mask_metadata(inputs, results[0], None)
        return results

    def named(self, inputs):
        """Returns inputs by name: of an array, of as many arrays as there are names, or of a dict.

        Raises:
            InputError: If they are something else, or no matrices of ids.
        """
        names = self.input_names
        if isinstance(inputs, (list, tuple)) and len(inputs) == len(names) and all(map(_is_array, inputs)):
            inputs = dict(zip(names, inputs, strict=True))
        elif len(names) == 1 and _is_array(inputs):
            inputs = {names[0]: inputs}
        if not isinstance(inputs, dict) or not all(name in inputs and _is_array(inputs[name]) for name in names):
            raise InputError(f"{self._what_it_reads()} Received: {_described(inputs)}.")
        for name in names:
            if len(inputs[name].shape) != 2 or not backend.is_int_dtype(backend.standardize_dtype(inputs[name].dtype)):
                raise InputError(f"{self._what_it_reads()} Received: {name} as {_described(inputs[name])}.")
        return inputs

    def _what_it_reads(self):
        named = " and ".join(f"`{name}` [batch, length]" for name in self.input_names)
        form = "arrays in this order, or a dict" if len(self.input_names) > 1 else "an array, or a dict"
        return f"{type(self).__name__} reads {named}, integers: {form} with these names."

    def compute_mask(self, inputs, previous_mask=None):
        return None if self.predicted is None else real(ops.convert_to_tensor(inputs[self.predicted]))

    @property
    def layers_of_steps(self):
        """The layers that a step of decoding calls and that may have a `constant`, see `zoo.layers.core.constants`."""
        return tied_tables(self)

    def get_config(self):
        return {**super().get_config(), **self.options.to_dict()}


def _is_array(value):
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _described(inputs):
    """Returns what inputs are, for a message."""
    if _is_array(inputs):
        return f"{backend.standardize_dtype(inputs.dtype)} {list(inputs.shape)}"
    if isinstance(inputs, dict):
        return "{" + ", ".join(f"{name!r}: {_described(value)}" for name, value in inputs.items()) + "}"
    if isinstance(inputs, (list, tuple)) and any(map(_is_array, inputs)):
        return f"{type(inputs).__name__} of {len(inputs)}: {', '.join(map(_described, inputs[:3]))}"
    return type(inputs).__name__


def build_all(layers, *shapes):
    """Builds several layers for inputs of some shapes; `None` is left out, and a repeated layer built once."""
    for layer in dict.fromkeys(layers):
        if layer is not None:
            layer.build(*shapes)


def real(ids):
    """Returns the boolean mask of the positions that are not padding."""
    return ops.not_equal(ids, PAD)
