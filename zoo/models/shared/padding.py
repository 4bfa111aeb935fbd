"""Where ids are padding."""

from keras import ops

from zoo.vocabulary import PAD


def real(ids):
    """Returns the boolean mask of the positions that are not padding."""
    return ops.not_equal(ids, PAD)
