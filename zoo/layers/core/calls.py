"""Optional arguments and results of `call`."""


def pack_results(*results):
    """Returns the results that are not `None`: a tuple of them, or the only one by itself."""
    present = tuple(result for result in results if result is not None)
    return present if len(present) > 1 else present[0]


def single_mask(mask):
    """Returns the mask of a memory, `None` where there is none.

    `Layer.__call__` fills in a dict of `None` if the memory is a dict of projections.
    """
    return None if isinstance(mask, dict) else mask
