"""Equations as MathML, which browsers draw themselves: no script and no font is fetched."""

import html
import re

import latex2mathml.converter

# What the Markdown extension Arithmatex leaves of $…$ and of lines between $$.
_EQUATION = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\s*\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]\s*</(?P=tag)>', flags=re.DOTALL
)


def as_mathml(page: str) -> str:
    """Returns the HTML of a page with its equations as MathML."""

    def convert(match: re.Match[str]) -> str:
        display = "block" if match["open"] == "[" else "inline"
        mathml = latex2mathml.converter.convert(html.unescape(match["latex"]).strip(), display=display)
        return f'<{match["tag"]} class="equation">{mathml}</{match["tag"]}>'

    return _EQUATION.sub(convert, page)
