"""The architecture of a model as a picture."""

import keras

from zoo.errors import InputError
from zoo.inspection.architecture import Architecture, Part
from zoo.inspection.inside import AttentionSteps
from zoo.inspection.svg import MARGIN, Diagram, arrow, page, text
from zoo.layers import BaseAttention
from zoo.models.shared.base import ZooModel
from zoo.registry import ModelSpec, create_model, get_spec

_COLOURS = {  # the box and its border
    "input": ("#ffffff", "#666666"),
    "embedding": ("#f6dfe8", "#b04a78"),
    "attention": ("#ffd9a0", "#c46a00"),
    "recurrent": ("#d6e6f7", "#2f6fae"),
    "feed_forward": ("#d9efd6", "#3d8a38"),
    "norm": ("#f7f3c8", "#948a1c"),
    "add": ("#ffffff", "#666666"),
    "other": ("#e7e3f3", "#6a58a8"),
}
_WIDTH, _HEIGHT, _FLAT_HEIGHT, _GAP = 250, 42, 26, 20  # of boxes, in pixels
_LANE = 14  # between lines beside the boxes
_HEAD = 62  # for the title

# Sizes that depend on the data; no layer uses these numbers otherwise.
_SIZES = {"source_vocab_size": 997, "target_vocab_size": 991, "vocab_size": 983, "num_classes": 977}


def draw_model(name: str | keras.layers.Layer) -> Diagram:
    """Returns a diagram of a model or an attention layer as SVG, with the inputs at the bottom.

    It is derived from a call of the model with symbolic tensors. Boxes are layers, lines are their inputs (dashed: from
    the previous position), and + is a residual connection. The encoder of an encoder-decoder is on the left. Attention
    is orange. Consecutive blocks that differ only in their weights are drawn once, with their number. For an attention
    layer, the boxes are its steps, with the formulas and shapes of `zoo.trace`; the steps of each head are framed, with
    the number of heads.

    Args:
        name: A name from `list_models()`, which means the model with its default options, or a built model or attention
            layer of this library.

    Returns:
        The text of the SVG, to be written to a file; notebooks show it as a picture.

    Raises:
        InputError: (a `ValueError`) For an unknown name (the message suggests similar ones), or another object.

    Example:
        >>> import zoo
        >>> svg = zoo.draw_model("self_attention_classifier")
        >>> svg.startswith("<svg"), "self-attention" in svg
        (True, True)
    """
    if isinstance(name, str):
        spec = get_spec(name)
        sizes = {option: size for option, size in _SIZES.items() if option in spec.required}
        if getattr(spec.options, "one_vocabulary", False):
            sizes["source_vocab_size"] = sizes["target_vocab_size"]
        return _svg(Architecture(create_model(name, **sizes)), name, _subtitle(spec))
    if isinstance(name, BaseAttention):
        return _svg(AttentionSteps(name), type(name).__name__, f"{name.count_params():,} weights")
    if not isinstance(name, ZooModel):
        raise InputError(
            f"`name` must be a name from list_models(), a model or an attention layer. Received: {name!r}."
        )
    return _svg(Architecture(name), name.name, f"{name.count_params():,} weights")


def _subtitle(spec: ModelSpec) -> str:
    return f"{spec.paper.title}, {spec.paper.year}"


class _Layout:
    """The positions of the boxes: inputs at the bottom, in one column or two."""

    def __init__(self, parts: list[Part]) -> None:
        two = any("target" in part.inputs for part in parts)
        self.columns = [int(two and part.inputs != frozenset({"source"})) for part in parts]
        self.heights = [_HEIGHT if part.detail else _FLAT_HEIGHT for part in parts]
        self.lanes = [self._lanes(parts, column) for column in (0, 1)]
        widths = [max([0, *lanes.values()]) * _LANE + 2 * MARGIN for lanes in self.lanes]
        between = _LANE * (len(self.crossing(parts)) + 2)
        # Lines that pass boxes are on the left of the left column and on the right of the right one.
        self.lefts = [widths[0] if two else MARGIN + _LANE, widths[0] + _WIDTH + between + MARGIN]
        right = self.lefts[1] + _WIDTH + widths[1] if two else self.lefts[0] + _WIDTH + widths[0]
        self.width = right
        self.two = two
        self.bottoms = self._stack(parts)
        self.height = max(self.bottoms, default=0) + _HEIGHT + MARGIN + _HEAD

    def crossing(self, parts: list[Part]) -> list[tuple[int, int]]:
        """Returns the lines from the left column to the right one."""
        return [
            (before, number)
            for number, part in enumerate(parts)
            for before in sorted(part.before)
            if self.columns[before] != self.columns[number]
        ]

    def _stack(self, parts: list[Part]) -> list[int]:
        """Returns the distance of each box from the bottom."""
        bottoms, levels = [], [MARGIN, MARGIN]
        previous: list[tuple[int, ...]] = [(), ()]
        for part, column, height in zip(parts, self.columns, self.heights, strict=True):
            if part.groups != previous[column]:
                levels[column] += _GAP
            bottoms.append(levels[column])
            levels[column] += height + _GAP
            previous[column] = part.groups
        return bottoms

    def _lanes(self, parts: list[Part], column: int) -> dict[tuple[int, int], int]:
        """Returns the lane of each line that passes other boxes of its column; 1 is next to the boxes."""
        order = [number for number in range(len(parts)) if self.columns[number] == column]
        place = {number: index for index, number in enumerate(order)}
        lines = [
            (before, number)
            for number in order
            for before in sorted(parts[number].before)
            if before in place and place[number] - place[before] != 1
        ]
        ends = {line: sorted((place[line[0]], place[line[1]])) for line in lines}
        lanes: dict[tuple[int, int], int] = {}
        for line in sorted(lines, key=lambda line: ends[line][1] - ends[line][0]):
            start, end = ends[line]
            taken = {
                lane
                for other, lane in lanes.items()
                if ends[other][0] <= end and start <= ends[other][1] and other[0] != line[0]
            }
            lanes[line] = next(lane for lane in range(1, len(lines) + 1) if lane not in taken)
        return lanes

    def box(self, number: int) -> tuple[float, float, float, float]:
        """Returns left, top, width and height of a box."""
        height = self.heights[number]
        return self.lefts[self.columns[number]], self.height - self.bottoms[number] - height, _WIDTH, height


def _svg(architecture: Architecture | AttentionSteps, title: str, subtitle: str) -> Diagram:
    parts = architecture.parts
    layout = _Layout(parts)
    boxes = [element for number, part in enumerate(parts) for element in _box(part, *layout.box(number))]
    drawn = [*_frames(architecture, layout), *_arrows(parts, layout), *boxes]
    return page(layout.width, layout.height, title, subtitle, drawn)


def _box(part: Part, left: float, top: float, width: float, height: float) -> list[str]:
    fill, border = _COLOURS[part.kind]
    middle = left + width / 2
    if part.kind == "add":
        circle = f'<circle cx="{middle:g}" cy="{top + height / 2:g}" r="11" fill="{fill}" stroke="{border}"/>'
        return [circle, text(middle, top + height / 2 + 5, "+", 16)]
    box = (
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" stroke="{border}"/>'
    )
    if not part.detail:
        return [box, text(middle, top + height / 2 + 4, part.title, 13)]
    title = text(middle, top + 18, part.title, 13, "bold")
    return [box, title, text(middle, top + 34, _with_size_names(part.detail), 11)]


def _with_size_names(detail: str) -> str:
    """Returns a detail with names instead of the sizes that depend on the data."""
    for option, size in _SIZES.items():
        name = "classes" if option == "num_classes" else "vocabulary"
        detail = detail.replace(f"→ {size}", f"→ {name}")
    return detail


def _frames(architecture: Architecture | AttentionSteps, layout: _Layout) -> list[str]:
    """Returns the frames of the groups, with their titles."""
    lines = []
    for number, group in enumerate(architecture.groups):
        inside = [layout.box(index) for index, part in enumerate(architecture.parts) if number in part.groups]
        for left in sorted({box[0] for box in inside}):
            boxes = [box for box in inside if box[0] == left]
            top, bottom = min(box[1] for box in boxes) - 22, max(box[1] + box[3] for box in boxes) + 12
            lines.append(
                f'<rect x="{left - 8:g}" y="{top:g}" width="{_WIDTH + 16:g}" height="{bottom - top:g}" rx="10" '
                'fill="#f4f4f4" stroke="#aaaaaa" stroke-dasharray="5 3"/>'
            )
            title = f"{group.times} ×" if group.times > 1 else group.title
            if title:
                lines.append(text(left + _WIDTH - 4 - 3 * len(title), top + 15, title, 11, "bold", "#555555"))
    return lines


def _arrows(parts: list[Part], layout: _Layout) -> list[str]:
    crossing = layout.crossing(parts)
    pairs = [(before, number) for number, part in enumerate(parts) for before in sorted(part.before)]
    return [_arrow(before, number, parts, layout, crossing) for before, number in pairs]


def _arrow(before: int, number: int, parts: list[Part], layout: _Layout, crossing: list[tuple[int, int]]) -> str:
    """Returns the line from a box to one that uses its result."""
    column, (left, top, width, height) = layout.columns[number], layout.box(number)
    start_left, start_top, _, start_height = layout.box(before)
    start_y, end_y = start_top + start_height / 2, top + height / 2
    if layout.columns[before] != column:
        sources = sorted({source for source, _ in crossing})
        x = start_left + width + 8 + _LANE * (1 + sources.index(before))
        start_x, end_x = _side(parts[before], start_left, 1), _side(parts[number], left, -1)
        return arrow([(start_x, start_y), (x, start_y), (x, end_y), (end_x, end_y)])
    lane = layout.lanes[column].get((before, number))
    if lane is None:
        middle = left + width / 2
        first, last = (_inset(parts[end], layout.heights[end]) for end in (before, number))
        return arrow([(middle, start_top + first), (middle, top + height - last)])
    direction = -1 if layout.two and column == 0 else 1
    edge = left if direction < 0 else left + width
    x = edge + direction * (10 + _LANE * (lane - 0.5))
    start_x, end_x = _side(parts[before], left, direction), _side(parts[number], left, direction)
    return arrow([(start_x, start_y), (x, start_y), (x, end_y), (end_x, end_y)], dashed=before > number)


def _inset(part: Part, height: float) -> float:
    """Returns the distance between the edges of a box and the circle that is drawn instead; 0 for boxes."""
    return height / 2 - 11 if part.kind == "add" else 0


def _side(part: Part, left: float, direction: int) -> float:
    """Returns the x position of the right side of a box or circle, or of its left side (−1)."""
    reach = 11 if part.kind == "add" else _WIDTH / 2
    return left + _WIDTH / 2 + direction * reach
