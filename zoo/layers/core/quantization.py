"""Layers whose parts may be quantised, in saved models."""

import keras


class KeepsQuantization(keras.layers.Layer):
    """Base of the layers that make projections of their own: a reloaded one has those quantised that were.

    `model.quantize("int8")` changes the dtype policy of each projection. Keras puts the policy of a layer into its
    configuration, but not those of the layers that it makes: their weights would no longer fit when they are reloaded.
    So they are kept with what the layer was built with.
    """

    def get_build_config(self):
        config, parts = super().get_build_config(), self._flatten_layers(include_self=False)
        policies = [part.dtype_policy.name if part.quantization_mode else None for part in parts]
        return {**config, "policies": policies} if any(policies) else config

    def build_from_config(self, config):
        super().build_from_config(config)
        parts = list(self._flatten_layers(include_self=False))
        for part, policy in zip(parts, config.get("policies", ()), strict=False):
            if policy is not None and part.quantization_mode is None:
                part.dtype_policy = policy  # which quantises it
