"""Files of the repository as pages of the site, and links between them.

Links in a document lead to files beside it, as they do where the repository is read. Here they become links between
pages: of a document to its page, of a source file to a page that shows it.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
# Documents outside docs/ that are pages, and where.
DOCUMENTS = {
    "README.md": "start.md",
    "zoo/layers/README.md": "layers.md",
    "export/README.md": "do/serve.md",
    "CONTRIBUTING.md": "understand/house.md",
    "training/RESULTS.md": "results.md",
    "benchmarks/RESULTS.md": "speed.md",
    "results/README.md": "figures.md",
    "benchmarks/conformance/RESULTS.md": "conformance.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
_LINK = re.compile(r"(?P<open>\]\()(?P<target>[^)\s]+)(?P<close>[^)]*\))")
_FENCE = re.compile(r"^ *```")
_INCLUDE = re.compile(r"^<!-- include (?P<document>\S+) (?P<first>.+) -->$", flags=re.MULTILINE)


def page_of(path: str) -> str | None:
    """Returns the page of a file, both as paths: relative to the repository, and to the site."""
    if path in DOCUMENTS:
        return DOCUMENTS[path]
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    return None


def outside(text: str, change: Callable[[str], str]) -> str:
    """Returns a document whose lines outside of fenced blocks are changed."""
    lines, fenced = [], False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced = not fenced
            lines.append(line)
        else:
            lines.append(line if fenced else change(line))
    return "\n".join(lines)


def relink(text: str, path: str, page: str, sources: dict[str, str]) -> str:
    """Returns a document with its links leading to pages.

    Args:
        text: The document.
        path: Its path in the repository.
        page: The page that it becomes.
        sources: Gets the page of each source file or folder that is linked to, by path.
    """

    def link(match: re.Match[str]) -> str:
        target, _, anchor = match["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        target_path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        target_page = page_of(target_path)
        if target_page is None and (ROOT / target_path).exists():
            target_page = sources.setdefault(
                target_path, f"source/{target_path}{'/index' if (ROOT / target_path).is_dir() else ''}.md"
            )
            if target_path.endswith((".png", ".svg")):
                target_page = sources[target_path] = f"source/{target_path}"
        if target_page is None:
            return match[0]  # MkDocs names it as broken
        relative = posixpath.relpath(target_page, posixpath.dirname(page) or ".")
        return f"{match['open']}{relative}{'#' if anchor else ''}{anchor}{match['close']}"

    return outside(text, lambda line: _LINK.sub(link, line))


def include(text: str) -> str:
    """Returns a document with the blocks of others that it includes.

    `<!-- include CONTRIBUTING.md # my_model.py -->` is the fenced block whose first line that is.

    Raises:
        ValueError: If there is no such block.
    """

    def block(match: re.Match[str]) -> str:
        document = (ROOT / match["document"]).read_text("utf-8")
        first = re.escape(match["first"])
        blocks = re.findall(rf"^(```\w*\n{first}[^\n]*\n.*?^```)", document, flags=re.DOTALL | re.MULTILINE)
        if len(blocks) != 1:
            raise ValueError(
                f"{match['document']} has {len(blocks)} blocks that begin with {match['first']!r}, not one."
            )
        return str(blocks[0])

    return _INCLUDE.sub(block, text)


def indent_lists(text: str) -> str:
    """Returns a document whose lists are indented by four, as Python-Markdown needs it."""
    lines, in_list = [], False
    for line in text.split("\n"):
        if re.match(r"(-|\d+\.) ", line):
            in_list = True
        elif line and not line.startswith(" "):
            in_list = False
        lines.append(f"  {line}" if in_list and re.match(r"  (?! )\S", line) else line)
    return "\n".join(lines)


def source_page(path: str) -> str:
    """Returns a page that shows a source file, or lists what is in a folder."""
    place = ROOT / path
    head = f"---\nsearch:\n  exclude: true\n---\n# `{path}`\n\n"
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix in (".py", ".md", ".yaml", ".toml"))
        return head + "\n".join(f"- `{file.name}`{_about(file)}" for file in files) + "\n"
    language = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "bash"}.get(place.suffix, "")
    return f"{head}````{language}\n{place.read_text('utf-8')}````\n"


def _about(file: Path) -> str:
    match = re.match(r'"""(.*?)(\n|""")', file.read_text("utf-8")) if file.suffix == ".py" else None
    return f": {match[1]}" if match else ""
