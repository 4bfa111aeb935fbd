"""The attention explorer: what a model did with a text, as data (`View`) and as a page that shows it (`Page`).

Who knows a model fills in views: `zoo.inference` for a trained run, `export.explore` for a served one. The page is the
same for both, and for a file.
"""

from zoo.explorer.page import Page
from zoo.explorer.view import AnswerView, Attention, View

__all__ = ["AnswerView", "Attention", "Page", "View"]
