"""The explorer's page: its files, and self-contained HTML files with views."""

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from zoo.errors import InputError
from zoo.explorer.view import View
from zoo.workdir import replacing

ASSETS = Path(__file__).resolve().parent / "assets"
INDEX = "index.html"
_STYLES = ("explorer.css", "inside.css")
_LINKS = "\n    ".join(f'<link rel="stylesheet" href="{name}" />' for name in _STYLES)
_SCRIPT = '<script type="module" src="main.js"></script>'
_POLICY = "<!-- Content-Security-Policy -->"
_IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./([\w-]+\.js)";\n', re.MULTILINE)
_FRAME_HEIGHT = 760  # CSS pixels in a notebook


class Page:
    """Views as one self-contained HTML file, which needs neither network nor server.

    A notebook displays it in a sandboxed frame, which can access neither the notebook nor the network.

    Args:
        views: A list of views, one per text.

    Raises:
        InputError: If there are no views.

    Example:
        page = zoo.load("preset:dates_rnnsearch").explore(["14 juillet 1989"])
        page.save("attention.html")
    """

    def __init__(self, views: Sequence[View]):
        if not views:
            raise InputError("The explorer requires at least one text. Received: none.")
        self.views = list(views)

    def html(self) -> str:
        """Returns the content of the file."""
        style, script = "".join((ASSETS / name).read_text(encoding="utf-8") for name in _STYLES), bundled_script()
        policy = (
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:; "
            "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
        )
        views = _json([view.to_json() for view in self.views])
        data = f'<script type="application/json" id="explorer-data">{views}</script>'
        parts = {
            _POLICY: f'<meta http-equiv="Content-Security-Policy" content="{policy}" />',
            _LINKS: f"<style>{style}</style>",
            _SCRIPT: f'{data}\n<script type="module">{script}</script>',
        }
        page = (ASSETS / INDEX).read_text(encoding="utf-8")
        return re.sub("|".join(map(re.escape, parts)), lambda match: parts[match[0]], page)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file atomically and returns its path.

        Args:
            path: The path, usually with the suffix `.html`.

        Raises:
            InputError: If the file cannot be written.
        """
        path = Path(path)
        try:
            with replacing(path) as temporary:
                temporary.write_text(self.html(), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error.strerror}).") from error
        return path

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="Attention explorer" sandbox="allow-scripts allow-downloads" width="100%" '
            f'height="{_FRAME_HEIGHT}" style="border: 0" srcdoc="{html.escape(self.html())}"></iframe>'
        )


@cache
def bundled_script() -> str:
    """Returns the page's modules as one script, in the order of their dependencies, without imports and exports."""
    return "".join(re.sub(r"^export ", "", source, flags=re.MULTILINE) for _, source in _modules("main.js", set()))


def _modules(name: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Yields name and source, without imports, of a module after those of its dependencies."""
    if name in seen:
        return
    seen.add(name)
    source = (ASSETS / name).read_text(encoding="utf-8")
    for needed in _IMPORT.findall(source):
        yield from _modules(needed, seen)
    yield name, _IMPORT.sub("", source)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _json(value: object) -> str:
    """Returns ASCII JSON that is safe inside a script element, because it contains no markup."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
