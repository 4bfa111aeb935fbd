"""Attention weights as a picture: source tokens × target tokens, with fonts for every script that the models read.

The fonts come from installed packages, so the picture is the same on every machine: DejaVu Sans (part of matplotlib:
Latin, Cyrillic, Greek, Hebrew, Arabic, Armenian, Georgian, …), Noto Sans CJK (Han, Kana, Hangul) and Shobhika
(Devanagari). Matplotlib shapes the text of each label itself (Arabic joining, right to left). A character that is
missing from all fonts is shown as its code point.
"""

import functools
import io
import math
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import devanagari_fonts
import noto_cjk_sans_jp_regular
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ft2font import FT2Font

from zoo.errors import InputError
from zoo.runtime.cli import disk_full
from zoo.workdir import replacing

_CELL = 0.3  # inches for a row or column
_LARGEST = 40.0  # inches; longer sequences get smaller cells
_DPI = 150
_LONGEST_LINE = 100  # characters of a title
_DOTTED_CIRCLE = "\N{DOTTED CIRCLE}"


def attention_heatmap(
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    attention: np.ndarray,
    path: str | os.PathLike[str],
    title: str | None = None,
    layer: int = -1,
    head: int | str | None = None,
    axes: tuple[str, str] = ("source", "target"),
) -> None:
    """Draws attention weights and writes the picture atomically, under a temporary name first.

    Args:
        source_tokens: The S tokens attended to, one column each, from left to right in every script. Empty tokens are
            padding and not drawn.
        target_tokens: The T tokens that attend, one row each. Empty tokens are not drawn.
        attention: float [T, S], [heads, T, S] or [layers, heads, T, S].
        path: The file to write; its suffix chooses the format (`.png`, `.svg`, `.pdf`, …).
        title: The title. Each of its lines is laid out separately, so put texts of different writing direction on
            different lines.
        layer: The layer to draw (default the last).
        head: The head to draw; `None` or `"mean"` for the mean over the heads, `"all"` for all heads side by side.
        axes: The labels of the columns and the rows.

    Raises:
        InputError: The shapes are inconsistent, there is nothing to draw, or the file cannot be written.
        OSError: The disk is full.

    Example:
        attention_heatmap(["▁ein", "▁Mann"], ["▁a", "▁man"], weights, "alignment.png")
    """
    weights = _pick(np.asarray(attention, np.float32), layer, head)
    if weights.shape[-2:] != (len(target_tokens), len(source_tokens)):
        raise InputError(
            f"attention must be target × source tokens, {len(target_tokens)} × {len(source_tokens)}. "
            f"Received: {' × '.join(map(str, weights.shape[-2:]))}"
        )
    rows = [position for position, token in enumerate(target_tokens) if token]
    columns = [position for position, token in enumerate(source_tokens) if token]
    if not rows or not columns:
        raise InputError("There are no tokens to draw: the source or the target is empty.")
    sources = [_label(source_tokens[column]) for column in columns]
    targets = [_label(target_tokens[row]) for row in rows]
    _write(_draw(sources, targets, weights[..., rows, :][..., columns], title, axes), Path(path))


def _pick(attention: np.ndarray, layer: int, head: int | str | None) -> np.ndarray:
    """Returns the attention weights to draw, [T, S], or [heads, T, S] for all heads."""
    if attention.ndim == 2:
        return attention
    if attention.ndim == 3:
        attention = attention[None]
    if attention.ndim != 4:
        raise InputError(
            f"attention must be [T, S], [heads, T, S] or [layers, heads, T, S]. Received: shape {attention.shape}"
        )
    layers, heads = attention.shape[:2]
    is_head = head in (None, "mean", "all") or isinstance(head, int) and -heads <= head < heads
    if not (-layers <= layer < layers and is_head):
        raise InputError(f"There are {layers} layers and {heads} heads. Received: layer={layer}, head={head}")
    weights: np.ndarray = attention[layer]
    if isinstance(head, int):
        weights = weights[head]
    elif head != "all":
        weights = weights.mean(axis=0)
    return weights


def _draw(
    sources: Sequence[str], targets: Sequence[str], weights: np.ndarray, title: str | None, names: tuple[str, str]
) -> Figure:
    """Draws weights [T, S], or [heads, T, S] in as many panels, all in the same colours."""
    panels = weights if weights.ndim == 3 else weights[None]
    across = math.ceil(math.sqrt(len(panels)))
    down = -(-len(panels) // across)
    cell = min(_CELL, _LARGEST / max(len(sources) * across, len(targets) * down))
    size = across * (cell * len(sources) + 1.0) + 1.0, down * (cell * len(targets) + 1.0)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(down, across, squeeze=False).ravel()
    largest = max(float(weights.max()), 1e-6)
    for axes, panel in zip(grid, panels, strict=False):
        image = axes.imshow(panel, cmap="viridis", vmin=0.0, vmax=largest)
        axes.set(xlabel=names[0], ylabel=names[1])
        _label_ticks(axes, sources, targets, 72 * cell * 0.55)
    for axes in grid[len(panels) :]:
        axes.remove()
    figure.colorbar(image, ax=grid[: len(panels)].tolist(), shrink=0.8, aspect=15, label="attention weight")
    if weights.ndim == 3:
        for head, axes in enumerate(grid[: len(panels)]):
            axes.set_title(f"head {head}", fontsize=9)
    if title:
        lines = [_running_text(line) for line in title.split("\n")]
        lines = [line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…" for line in lines]
        write = figure.suptitle if weights.ndim == 3 else grid[0].set_title
        write("\n".join(lines), fontsize=11, linespacing=1.3, **_font("".join(lines)))
    return figure


def _label_ticks(axes: Axes, sources: Sequence[str], targets: Sequence[str], size: float) -> None:
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, pad=5, labelsize=size)
    rotations = _rotations(sources)
    for tick, label, rotation in zip(axes.set_xticks(range(len(sources)), sources), sources, rotations, strict=True):
        # Upright labels are aligned by their baselines, because the descents of the fonts differ.
        tick.label2.set(rotation=rotation, va="bottom" if rotation else "baseline", **_font(label))
    for tick, label in zip(axes.set_yticks(range(len(targets)), targets), targets, strict=True):
        tick.label1.set(**_font(label))


def _font(label: str) -> dict[str, Any]:
    return {"fontfamily": _families(label), "parse_math": False}


def _rotations(labels: Sequence[str]) -> list[int]:
    """Returns 90 degrees for labels that are wider than a column, or for all labels if most are."""
    wide = [sum(not _is_mark(character) for character in label.lstrip(_DOTTED_CIRCLE)) > 1 for label in labels]
    return [90 if is_wide or 2 * sum(wide) > len(wide) else 0 for is_wide in wide]


def _write(figure: Figure, path: Path) -> None:
    suffix = path.suffix.lower().lstrip(".")
    formats = figure.canvas.get_supported_filetypes().keys() - {"pgf"}  # PGF needs TeX
    if suffix not in formats:
        raise InputError(f"A picture needs a suffix among {', '.join(sorted(formats))}. Received: {path}")
    picture = io.BytesIO()  # On a full disk, some of matplotlib's writers raise errors of other types.
    figure.savefig(picture, format=suffix, dpi=_DPI, bbox_inches="tight")
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(picture.getvalue())
    except OSError as error:
        if disk_full(error):
            raise
        raise InputError(f"{path} cannot be written ({error.strerror}).") from error


def _label(token: str) -> str:
    """Returns the label of a token, with visible spaces; a combining mark is put on a dotted circle."""
    if token.strip(" ") and all(map(_is_invisible, token)):
        return "".join(map(_glyph, token))
    shown = _running_text(token, space="␣")
    return _DOTTED_CIRCLE + shown if _is_mark(shown[0]) else shown


def _running_text(text: str, space: str = " ") -> str:
    """Returns printable text: joiners and direction marks stay if a font has them; every kind of space is `space`."""

    def shown(character: str) -> str:
        category = unicodedata.category(character)
        if category == "Cf":
            return character if _is_known(character) else ""
        return space if category == "Zs" else _glyph(character)

    return "".join(map(shown, text))


def _glyph(character: str) -> str:
    """Returns the character itself, or its code point if it is invisible or missing from all fonts."""
    return character if _is_known(character) and not _is_invisible(character) else f"[{ord(character):04X}]"


def _is_known(character: str) -> bool:
    return any(ord(character) in characters for characters in _fonts().values())


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character)[0] in "CZ"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


def _families(label: str) -> list[str]:
    """Returns the font families, sorted by how many characters of a label they contain.

    The order matters, because a mark combines with its letter only if both come from one font.
    """
    fonts = _fonts()
    return sorted(fonts, key=lambda family: -sum(ord(character) in fonts[family] for character in label))


@functools.cache
def _fonts() -> dict[str, frozenset[int]]:
    """Registers the fonts with matplotlib and returns the characters of each family."""
    shobhika = devanagari_fonts.font_path("Shobhika-1.05", name="Shobhika-Regular")
    for font_path in (noto_cjk_sans_jp_regular.FONT_PATH, shobhika):
        font_manager.fontManager.addfont(str(font_path))
    families = ("DejaVu Sans", "Noto Sans CJK JP", "Shobhika")
    files = (font_manager.findfont(FontProperties(family=[family]), fallback_to_default=False) for family in families)
    return {family: frozenset(FT2Font(file).get_charmap()) for family, file in zip(families, files, strict=True)}
