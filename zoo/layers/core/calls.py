"""Optional arguments and results of `call`."""

import keras


class ReturnsMore:
    """Mixin of layers whose call may return weights, states or a cache after its output."""

    def compute_output_spec(self, *args, **kwargs):
        # Traced: derived from the shape of the output alone, it would lack the others.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)


def pack_results(*results):
    """Returns the results that are not `None`: a tuple of them, or the only one by itself."""
    present = tuple(result for result in results if result is not None)
    return present if len(present) > 1 else present[0]


def single_mask(mask):
    """Returns the mask of a memory, `None` where there is none.

    `Layer.__call__` fills in a dict of `None` if the memory is a dict of projections.
    """
    return None if isinstance(mask, dict) else mask
