"""Datasets, opened by their SPEC: `load_data("dates")`, `load_data("text:data/multi30k:en-de")`."""

from training.data.dates import load_dates
from training.data.parallel import SPLITS, Pairs, ParallelData, load_parallel
from zoo.errors import InputError, unknown_name

__all__ = ["SPLITS", "Pairs", "ParallelData", "load_data"]

_FORMS = {"dates": "dates", "text": "text:DIR:SRC-TGT"}


def load_data(spec: str, seed: int = 0) -> ParallelData:
    """Opens the dataset that a SPEC names.

    Args:
        spec: `dates` or `text:DIR:SRC-TGT`.
        seed: Seeds what is generated; data read from files does not depend on it.

    Returns:
        The dataset; its splits are read or generated when first used.

    Raises:
        InputError: The SPEC is unknown (the close ones are named) or malformed, or a file is missing.
    """
    kind = spec.partition(":")[0]
    if kind not in _FORMS:
        raise InputError(f"{unknown_name('data SPEC', kind, _FORMS)} Expected {' or '.join(_FORMS.values())}.")
    if kind == "text":
        return load_parallel(spec)
    if spec != "dates":
        raise InputError(f"The data SPEC 'dates' takes no argument. Received: {spec!r}.")
    return load_dates(seed)
