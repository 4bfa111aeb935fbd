"""How calls of layers deal with what may be there or not."""


def given(*results):
    """Returns those results that are not `None`: as a tuple, or by itself where there is only one."""
    found = tuple(result for result in results if result is not None)
    return found if len(found) > 1 else found[0]


def one_mask(mask):
    """Returns the mask of a memory, `None` where there is none.

    Args:
        mask: As `Layer.__call__` filled it in: where the memory is a dict of projections, with a dict of `None`.
    """
    return None if isinstance(mask, dict) else mask
