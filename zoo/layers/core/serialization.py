"""Objects that several layers hold, in saved models."""

import keras


def serialize_shared(part):
    """Returns the configuration of an object that other layers may hold as well, or `None` for `None`.

    In a `.keras` file it is the same object for all of them: reloaded layers share it again.

    Args:
        part: A Keras object, or `None`.
    """
    # While Keras saves a model it marks what it has met before. It marks the first meeting in retrospect, but by then
    # that configuration is copied into the one of the layer: so this meets the object once for nothing.
    keras.saving.serialize_keras_object(part)
    return keras.saving.serialize_keras_object(part)
