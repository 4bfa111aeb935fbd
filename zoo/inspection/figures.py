"""Matplotlib, which is imported when the first picture is drawn."""

import importlib
from typing import Any

from zoo.extras import missing_extra


def new_figure(**options: Any) -> Any:
    """Returns an empty `Figure`, which belongs to no window.

    Raises:
        InputError: If Matplotlib is not installed; it names the extra.
    """
    try:
        figure_class = importlib.import_module("matplotlib.figure").Figure
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error
    return figure_class(layout="constrained", **options)
