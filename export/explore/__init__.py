"""The attention explorer over served models: `python -m export.explore --server HOST:PORT --model NAME`.

`views` sends requests to a served model and converts the responses to `zoo.explorer.View`s; `http_server` serves
the page and its views; `cli` is the command.
"""

from export.explore.cli import command, main
from export.explore.http_server import ExplorerServer
from export.explore.views import ServedModel

__all__ = ["ExplorerServer", "ServedModel", "command", "main"]
