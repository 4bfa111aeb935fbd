"""The base of the models of all tasks: they take their options from one declaration."""

import inspect

import keras
from keras import ops

from zoo.layers.core.saving import KeepsQuantization
from zoo.models.shared.embeddings import tied_tables
from zoo.options import Options
from zoo.vocabulary import PAD


class ZooModel(KeepsQuantization, keras.Model):
    """Base of all models: each option of `options_class` is an argument, an attribute and in the configuration.

    A subclass names its `options_class`, whose options are listed at the end of its docstring. Arguments that are no
    options, such as `name` and `dtype`, are those of `keras.Model`. Options without a default can be given by position.

    Attributes:
        options: The options, checked.
    """

    options_class: type[Options]

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

    @property
    def layers_of_steps(self):
        """The layers that a step of decoding calls and that may have a `constant`, see `zoo.layers.core.constants`."""
        return tied_tables(self)

    def get_config(self):
        return {**super().get_config(), **self.options.to_dict()}


def build_all(layers, *shapes):
    """Builds several layers for inputs of some shapes; `None` is left out, and a repeated layer built once."""
    for layer in dict.fromkeys(layers):
        if layer is not None:
            layer.build(*shapes)


def real(ids):
    """Returns the boolean mask of the positions that are not padding."""
    return ops.not_equal(ids, PAD)
