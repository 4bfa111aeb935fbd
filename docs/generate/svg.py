"""Small pictures as SVG, in the colours of the page that holds them."""

import numpy as np

CELL = 12


def grid(values: np.ndarray, columns: str, rows: str, title: str) -> str:
    """Returns a table of squares, each as dark as its value is large.

    Args:
        values: [T, S], from 0 to 1.
        columns: What the columns are.
        rows: What the rows are.
        title: What is seen, for those who do not see it.
    """
    height, width = values.shape
    squares = [
        f'<rect x="{CELL * column + 1}" y="{CELL * row + 1}" width="{CELL - 2}" height="{CELL - 2}" rx="2" '
        f'fill-opacity="{0.07 + 0.93 * float(values[row, column]):.2f}"/>'
        for row in range(height)
        for column in range(width)
    ]
    left, top = 18, 18
    size = f"{CELL * width + left + 2} {CELL * height + top + 2}"
    return (
        f'<svg class="pairs" role="img" aria-label="{title}" viewBox="0 0 {size}" width="{size.split()[0]}" '
        f'height="{size.split()[1]}" fill="currentColor" font-size="11">'
        f'<text x="{left}" y="11">{columns} →</text>'
        f'<text transform="translate(11 {top}) rotate(90)">{rows} →</text>'
        f'<g transform="translate({left} {top})">{"".join(squares)}</g></svg>'
    )


def icon(values: np.ndarray) -> str:
    """Returns a table of squares, each as dark as its value is large, of the size of a letter.

    Args:
        values: [T, S], from 0 to 1.
    """
    height, width = values.shape
    squares = [
        f'<rect x="{4 * column}" y="{4 * row}" width="3" height="3" fill-opacity="{0.12 + 0.88 * value:.2f}"/>'
        for row, line in enumerate(values)
        for column, value in enumerate(line)
    ]
    size = f"{4 * width - 1} {4 * height - 1}"
    return f'<svg class="pairs icon" aria-hidden="true" viewBox="0 0 {size}">{"".join(squares)}</svg>'
