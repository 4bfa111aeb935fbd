"""Initializers that several weights share."""

import keras


def fresh(initializer):
    """Returns an initializer for one more weight.

    An initializer object draws the same values at every call, so that weights of equal shape would start equal; its
    clone draws new ones, unless it was given a seed.

    Args:
        initializer: A `keras.initializers.Initializer`, or another callable, which is returned as it is.
    """
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer
