"""The attention explorer: a model's outputs for a text as data (`View`) and as a web page (`Page`).

`zoo.inference` creates views of a trained run, `export.explore` those of a served model. Both use the same page, as
does a saved file.
"""

from zoo.explorer.page import Page
from zoo.explorer.view import AnswerView, Attention, View

__all__ = ["AnswerView", "Attention", "Page", "View"]
