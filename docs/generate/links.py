"""Checks the site as it was written: every link and picture leads somewhere in it, and nothing is fetched elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class _Page(HTMLParser):
    """The anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        if tag in _FETCHED and values.get(_FETCHED[tag]) and values.get("rel") not in ("canonical",):
            self.fetched.append(values[_FETCHED[tag]] or "")


def problems(site: Path) -> list[str]:
    """Returns what is wrong with a built site, a sentence each.

    Args:
        site: Its folder.
    """
    pages = {path: _Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    errors = []
    for path, page in pages.items():
        name = path.relative_to(site)
        errors += [f"{name} fetches {target}." for target in page.fetched if re.match(r"(https?:)?//", target)]
        for target in {*page.links, *page.fetched}:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            destination = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            destination = destination / "index.html" if destination.is_dir() else destination
            if not destination.exists():
                errors.append(f"{name} links to {target}, which does not exist.")
            elif parts.fragment and destination in pages and unquote(parts.fragment) not in pages[destination].anchors:
                errors.append(f"{name} links to {target}, a place that is not on that page.")
    return sorted(errors)
