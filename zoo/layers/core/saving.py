"""What saved models need beyond Keras: objects that several layers share, and sublayers that may be quantised."""

import keras


def serialize_shared(shared_object):
    """Returns the configuration of an object that other layers may hold as well, or `None` for `None`.

    In a `.keras` file it is one object for all of them, and reloaded layers share it again.
    """
    # While saving a model, Keras marks an object as shared when it meets it a second time. By then the configuration
    # of the first meeting has been copied into that of its layer, unmarked: so the first meeting is a dry run.
    keras.saving.serialize_keras_object(shared_object)
    return keras.saving.serialize_keras_object(shared_object)


class SavesOptions(keras.layers.Layer):
    """Base of the layers whose configuration consists of their options.

    Each class names those that it adds in `saved_options`: arguments of the constructor that are attributes as well. An
    option may be a layer, an initializer or a function. One that other layers may hold as well has `may_be_shared`.
    """

    saved_options: tuple[str, ...] = ()

    @classmethod
    def _option_names(cls):
        return [name for base in reversed(cls.__mro__) for name in vars(base).get("saved_options", ())]

    def get_config(self):
        config = super().get_config()
        for name in self._option_names():
            option = getattr(self, name)
            is_shared = getattr(option, "may_be_shared", False)
            config[name] = serialize_shared(option) if is_shared else keras.saving.serialize_keras_object(option)
        return config

    @classmethod
    def from_config(cls, config):
        objects = {name: config[name] for name in cls._option_names() if isinstance(config.get(name), dict)}
        objects = {name: keras.saving.deserialize_keras_object(saved) for name, saved in objects.items()}
        return super().from_config({**config, **objects})


class KeepsQuantization(SavesOptions):
    """Base of the layers that create projections: what was quantised when it was saved is quantised when reloaded.

    `model.quantize("int8")` changes the dtype policy of each projection. Keras saves the policy of a layer, but not
    those of the layers that it creates, whose quantised weights would then not fit on reloading. So these policies are
    saved with the shapes that the layer was built with.
    """

    def get_build_config(self):
        config, sublayers = super().get_build_config(), self._flatten_layers(include_self=False)
        policies = [layer.dtype_policy.name if layer.quantization_mode else None for layer in sublayers]
        return {**config, "policies": policies} if any(policies) else config

    def build_from_config(self, config):
        super().build_from_config(config)
        sublayers = list(self._flatten_layers(include_self=False))
        for layer, policy in zip(sublayers, config.get("policies", ()), strict=False):
            if policy is not None and layer.quantization_mode is None:
                layer.dtype_policy = policy  # which quantises it
