"""The attention explorer over served models: `python -m export.explore --server HOST:PORT --model NAME`.

`questions` asks a served model and makes `zoo.explorer.View`s of its answers; `http_server` serves the page, which asks
for them; `cli` is the command.
"""

from export.explore.cli import command, main
from export.explore.http_server import ExplorerServer
from export.explore.questions import ServedModel

__all__ = ["ExplorerServer", "ServedModel", "command", "main"]
