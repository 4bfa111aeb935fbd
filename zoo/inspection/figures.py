"""Creates Matplotlib figures; Matplotlib is imported for the first one."""

import importlib
from typing import Any

from zoo.runtime.extras import missing_extra


def new_figure(**options: Any) -> Any:
    """Returns an empty `Figure` without a window.

    Raises:
        InputError: If Matplotlib is not installed; the message contains the extra.
    """
    try:
        figure_class = importlib.import_module("matplotlib.figure").Figure
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error
    return figure_class(layout="constrained", **options)
