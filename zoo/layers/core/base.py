"""Base classes of the layers, and how objects that several layers share are saved."""

import threading
import uuid
import weakref
from typing import Any

import keras

from zoo.layers.core.facts import forget

# For objects that several layers may share: the layers that hold them, and a name that is unique across processes.
_holders: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class _Copies(threading.local):
    """The latest copy of each shared object, by the name of the original, and the holders that already have it."""

    def __init__(self):
        self.latest = weakref.WeakValueDictionary()
        self.holders = weakref.WeakKeyDictionary()


_copies = _Copies()


def serialize_shared(shared_object, holder=None):
    """Returns the configuration of an object that other layers may share, or `None` for `None`.

    A `.keras` file contains such an object once, and reloaded layers share it again. Elsewhere the configuration
    of an object with several holders names the object and its holder, so that copies of the layers share a copy: see
    `deserialize_shared`.

    Args:
        shared_object: The object.
        holder: The layer that holds it.
    """
    # While saving a model, Keras marks an object as shared when it serializes it for the second time, and by then the
    # unmarked configuration has been copied into that of its layer. So the first serialization is a dry run.
    keras.saving.serialize_keras_object(shared_object)
    config = keras.saving.serialize_keras_object(shared_object)
    if holder is not None and len(_holders.get(shared_object, ())) > 1 and "shared_object_id" not in config:
        name = _names.setdefault(shared_object, uuid.uuid4().hex)
        config["sharing"] = {"object": name, "holder": id(holder)}
    return config


def deserialize_shared(config):
    """Returns the object of a configuration, the same for all holders that share it.

    `keras.models.clone_model` copies layers one by one. For a holder that already has a copy, a new one is created, so
    that two clones of a model share nothing.
    """
    sharing = config.get("sharing")
    if sharing is None:
        return keras.saving.deserialize_keras_object(config)
    copy = _copies.latest.get(sharing["object"])
    if copy is None or sharing["holder"] in _copies.holders[copy]:
        copy = keras.saving.deserialize_keras_object(config)
        _copies.latest[sharing["object"]], _copies.holders[copy] = copy, set()
    _copies.holders[copy].add(sharing["holder"])
    return copy


def without_sharing(config):
    """Returns a configuration from which new objects are always created, even while Keras reloads a model."""
    if isinstance(config, dict):
        markers = ("shared_object_id", "sharing")
        return {name: without_sharing(value) for name, value in config.items() if name not in markers}
    return [without_sharing(value) for value in config] if isinstance(config, list) else config


class SavesOptions(keras.layers.Layer):
    """Base of the layers whose configuration consists of their options.

    `saved_options` of a class names the options that it adds: arguments of the constructor that are also attributes. An
    option may be a layer, an initializer or a function. Options that other layers may share have `may_be_shared`.
    """

    saved_options: tuple[str, ...] = ()
    is_new_as_layer = False
    """Whether earlier versions had a function in place of this layer: their files have no dtype policy for it."""

    @classmethod
    def _option_names(cls):
        return [name for base in reversed(cls.__mro__) for name in vars(base).get("saved_options", ())]

    def __setattr__(self, name, value):
        if name[0] != "_" and self.__dict__.get(name) is not value:  # Keras writes `_called` and `built` at every call
            forget(self)
            for holder in _holders.get(self, ()):  # layers that hold this score or normalisation
                forget(holder)
        if getattr(value, "may_be_shared", False):
            _holders.setdefault(value, weakref.WeakSet()).add(self)
        super().__setattr__(name, value)

    def get_config(self):
        config = super().get_config()
        for name in self._option_names():
            option = getattr(self, name)
            is_shared = getattr(option, "may_be_shared", False)
            config[name] = serialize_shared(option, self) if is_shared else keras.saving.serialize_keras_object(option)
        return config

    @classmethod
    def from_config(cls, config):
        objects = {name: config[name] for name in cls._option_names() if isinstance(config.get(name), dict)}
        objects = {name: deserialize_shared(saved) for name, saved in objects.items()}
        return super().from_config({**config, **objects})


class KeepsQuantization(SavesOptions):
    """Base of the layers that create projections: quantised projections are quantised again when reloaded.

    `model.quantize("int8")` changes the dtype policy of each projection. Keras saves the policy of a layer, but not
    those of the layers that it creates, whose quantised weights would then not fit on reloading. So these policies are
    saved with the shapes for which the layer was built.
    """

    def get_build_config(self):
        config, sublayers = super().get_build_config(), self._flatten_layers(include_self=False)
        policies = [layer.dtype_policy.name if layer.quantization_mode else None for layer in sublayers]
        return {**config, "policies": policies} if any(policies) else config

    def build_from_config(self, config):
        super().build_from_config(config)
        sublayers, policies = list(self._flatten_layers(include_self=False)), config.get("policies", ())
        if len(policies) < len(sublayers):  # a file of an earlier version
            sublayers = [layer for layer in sublayers if not getattr(layer, "is_new_as_layer", False)]
        for layer, policy in zip(sublayers, policies, strict=False):
            if policy is not None and layer.quantization_mode is None:
                layer.dtype_policy = policy  # quantises the layer


class ReturnsMore:
    """Mixin of layers whose call may return weights, states or a cache besides its output."""

    def compute_output_spec(self, *args, **kwargs):
        # Traces the call, since `compute_output_shape` describes the output alone.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)


def pack_results(*results):
    """Returns the results that are not `None`: a tuple, or a single result by itself."""
    present = tuple(result for result in results if result is not None)
    return present if len(present) > 1 else present[0]
