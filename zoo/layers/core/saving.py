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


class KeepsQuantization(keras.layers.Layer):
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
