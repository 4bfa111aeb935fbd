"""SVG pictures: a page with a title, texts and arrows."""

from collections.abc import Iterable
from html import escape

MARGIN = 18


class Diagram(str):
    """The text of an SVG picture, which notebooks display as the picture."""

    def _repr_svg_(self) -> str:
        return str(self)


def page(width: float, height: float, title: str, subtitle: str, elements: Iterable[str]) -> Diagram:
    """Returns a picture with a title above its elements, wide enough for both."""
    width = max(width, 9 * len(title) + 2 * MARGIN, 6.5 * len(subtitle) + 2 * MARGIN)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="Helvetica, Arial, sans-serif" text-anchor="middle">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M 0 0 L 8 4 L 0 8 z" fill="#444444"/></marker></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
        text(width / 2, 26, title, 17, weight="bold"),
        text(width / 2, 46, subtitle, 12, colour="#555555"),
        *elements,
        "</svg>",
    ]
    return Diagram("\n".join(lines) + "\n")


def text(x: float, y: float, words: str, size: int, weight: str = "normal", colour: str = "#222222") -> str:
    """Returns text that is centred at a position."""
    style = f'font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def arrow(points: Iterable[tuple[float, float]], dashed: bool = False) -> str:
    """Returns an arrow along these points."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    style = 'stroke="#444444" stroke-width="1.2"' + ' stroke-dasharray="4 3"' * dashed
    return f'<polyline points="{path}" fill="none" {style} marker-end="url(#arrow)"/>'
