"""Runs notebooks that are kept as text, and writes what they show: `python docs/generate/notebooks.py FOLDER FILE…`.

A notebook is a Python file in jupytext's percent format: `# %%` begins a cell of code, `# %% [markdown]` one of text.
Each becomes a page in Markdown with outputs and pictures, and a `.ipynb` without them. A cell that raises ends the
process with the file and the cell.
"""

import ast
import contextlib
import io
import json
import re
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from generate.progress import making  # noqa: E402

_CELL = re.compile(r"^# %%(?P<kind>.*)$", flags=re.MULTILINE)


def cells(text: str) -> list[tuple[str, str]]:
    """Returns kind (`"markdown"` or `"code"`) and content of each cell."""
    marks = list(_CELL.finditer(text))
    contents = []
    for mark, end in zip(marks, [*(mark.start() for mark in marks[1:]), len(text)], strict=True):
        content = text[mark.end() : end].strip("\n")
        if "[markdown]" in mark["kind"]:
            contents.append(("markdown", "\n".join(re.sub(r"^# ?", "", line) for line in content.split("\n"))))
        else:
            contents.append(("code", content))
    return contents


def as_ipynb(parts: list[tuple[str, str]]) -> str:
    """Returns the cells as a Jupyter notebook without outputs."""
    entries: list[dict[str, Any]] = []
    for number, (kind, content) in enumerate(parts):
        entry: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        entry["source"] = content.splitlines(keepends=True)
        if kind == "code":
            entry |= {"execution_count": None, "outputs": []}
        entries.append(entry)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": entries, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1)


class Page:
    """A page that grows while its notebook runs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.parts: list[str] = []
        self.pictures = 0

    def add_text(self, text: str) -> None:
        """Adds Markdown."""
        self.parts.append(text)

    def add_output(self, text: str) -> None:
        """Adds what was printed."""
        if text.strip():
            self.parts.append(f'````text title="Output"\n{text.rstrip()}\n````')

    def add_picture(self, content: bytes, suffix: str) -> None:
        """Adds a picture."""
        self.pictures += 1
        file = f"{self.name}-{self.pictures}.{suffix}"
        (self.folder / file).write_bytes(content)
        self.parts.append(f"![Picture {self.pictures} of this page]({file}){{ .picture }}")

    def show(self, value: Any) -> None:
        """Adds the value of a cell's last line, as Jupyter would show it."""
        if value is None:
            return
        if hasattr(value, "savefig"):
            self.add_figure(value)
        elif isinstance(value, str) and value.startswith("<svg"):
            self.add_picture(value.encode(), "svg")
        elif isinstance(value, Path) and value.suffix in (".png", ".svg"):
            self.add_picture(value.read_bytes(), value.suffix[1:])
        else:
            self.add_output(repr(value))

    def add_figure(self, figure: Any) -> None:
        """Adds a figure of Matplotlib."""
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
        self.add_picture(stream.getvalue(), "png")


def run(path: Path, folder: Path) -> None:
    """Runs a notebook and writes its page and its `.ipynb` into a folder.

    Raises:
        SystemExit: If a cell fails.
    """
    from matplotlib import pyplot as plt

    parts = cells(path.read_text("utf-8"))
    page, names = Page(folder, path.stem), {"__name__": "__notebook__"}
    for number, (kind, content) in enumerate(parts):
        if kind == "markdown":
            page.add_text(content)
            continue
        if not content.strip():
            continue
        page.add_text(f"````python\n{content}\n````")
        tree = ast.parse(content, f"{path.name}, cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed, value = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)
                if last is not None:
                    value = eval(compile(ast.Expression(last.value), f"{path.name}, cell {number}", "eval"), names)
        except BaseException:
            traceback.print_exc()
            raise SystemExit(f"{path} fails in cell {number}:\n{content}\n{printed.getvalue()}") from None
        page.add_output(printed.getvalue())
        for figure in map(plt.figure, plt.get_fignums()):
            page.add_figure(figure)
            if value is figure:
                value = None
        plt.close("all")
        page.show(value)
    download = f"[Download this page as a notebook]({path.stem}.ipynb){{ .notebook download }}"
    (folder / f"{path.stem}.ipynb").write_text(as_ipynb(parts), encoding="utf-8")
    (folder / f"{path.stem}.md").write_text("\n\n".join([*page.parts, download]) + "\n", encoding="utf-8")


_EXAMPLE = re.compile(
    r"(?P<mark><!-- not run: [^\n]+ -->\n+)?^```python\n(?P<code>.*?)^```", flags=re.DOTALL | re.MULTILINE
)


def run_examples(path: Path) -> None:
    """Runs the blocks of Python in a page, one after another in one namespace.

    They run in an empty folder, where what they save disappears. One that needs what a reader makes is left out by a
    line before it, `<!-- not run: WHY -->`.

    Raises:
        SystemExit: If a block fails.
    """
    names: dict[str, Any] = {"__name__": "__example__"}
    blocks = [block["code"] for block in _EXAMPLE.finditer(path.read_text("utf-8")) if not block["mark"]]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for code in blocks:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(code, str(path), "exec"), names)
            except BaseException:
                traceback.print_exc()
                advice = "Mend it, or write before it why it cannot run: <!-- not run: WHY -->."
                raise SystemExit(f"An example of {path} fails:\n{code}\n{advice}") from None


def main(folder: str, *files: str) -> None:
    """Runs notebooks and the examples of pages, one after another.

    Args:
        folder: Where pages of notebooks are written.
        *files: Notebooks (`.py`) and pages (`.md`).
    """
    import matplotlib

    matplotlib.use("agg")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files, 1):
        begun = time.monotonic()
        making(file, number, len(files))
        run(Path(file), Path(folder)) if file.endswith(".py") else run_examples(Path(file))
        print(f"{file}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
