"""Pictures of position encodings and their frequencies, and the terms that positions add to the scores."""

from typing import Any

import numpy as np
from keras import ops

from zoo.errors import InputError, unknown_name
from zoo.inspection.figures import new_figure
from zoo.inspection.recording import copy_with
from zoo.layers import LearnedPositions, MultiHeadAttention, RotaryPositions, SinusoidalPositions
from zoo.layers.positions.absolute import AbsolutePositions
from zoo.layers.scores.products import CosineScore, DotScore


def draw_positions(kind: Any, length: int, dim: int) -> Any:
    """Returns a picture of position encodings P [length, dim], and of their frequencies, if any.

    For sinusoids `P[p, 2i] = sin(p ω_i)`, `P[p, 2i + 1] = cos(p ω_i)` with `ω_i = 10000^(−2i / dim)`, the frequency of
    a pair of dimensions, in radians per position; its wavelength is `2π / ω_i`. Rotary positions have no encodings: the
    picture shows the rotated pairs (1, 0), which are `(cos(p ω_i), sin(p ω_i))`. Learned positions have their initial
    values, or, if a layer is passed, its values.

    Args:
        kind: `"sinusoidal"`, `"learned"` or `"rotary"`, or a layer of absolute or rotary positions.
        length: Number of positions, at least 1.
        dim: Number of features, at least 1; even for sinusoids and rotations.

    Returns:
        A Matplotlib `Figure`: P as a heatmap, the position downwards; and the frequency of each pair of dimensions, on
        a logarithmic axis. `figure.savefig("positions.png")` writes it; notebooks show it.

    Raises:
        InputError: (a `ValueError`) For an unknown kind, unsupported sizes, or if Matplotlib (the extra `pictures`) is
            not installed.

    Example:
        >>> import zoo
        >>> figure = zoo.draw_positions("sinusoidal", length=50, dim=64)
        >>> [axes.get_title() for axes in figure.axes[:2]]
        ['P, sinusoidal', 'frequencies']

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.5, https://arxiv.org/abs/1706.03762
    """
    for name, size in (("length", length), ("dim", dim)):
        if not isinstance(size, int) or size < 1:
            raise InputError(f"`{name}` must be a positive integer. Received: {name}={size!r}.")
    layer = _positions_layer(kind, length)
    title = kind if isinstance(kind, str) else type(kind).__name__
    return _figure(encodings(layer, length, dim), _frequencies(layer, dim), title)


def _positions_layer(kind: Any, length: int) -> Any:
    if isinstance(kind, (AbsolutePositions, RotaryPositions)):
        return kind
    kinds: dict[str, Any] = {"sinusoidal": SinusoidalPositions, "learned": LearnedPositions, "rotary": RotaryPositions}
    if kind not in kinds:
        raise unknown_name("kind of positions", kind, kinds)
    return kinds[kind](length) if kind == "learned" else kinds[kind]()


def encodings(layer: Any, length: int, dim: int) -> Any:
    """Returns the encodings of positions from 0 on, [length, dim]; for rotations the rotated pairs (1, 0)."""
    try:
        if isinstance(layer, RotaryPositions):
            # The members of a pair adjacent, independent of the layer's own layout.
            layer = copy_with(layer, {"layout": "interleaved"})
            pairs = np.resize(np.array([1, 0], "float32"), dim)
            return ops.convert_to_numpy(layer.rotate(ops.convert_to_tensor(np.tile(pairs, (1, 1, length, 1)))))[0, 0]
        if not layer.built:
            layer.build((None, None, dim))
        return ops.convert_to_numpy(layer.encodings(ops.arange(length, dtype="int32"), dim))
    except ValueError as error:
        raise InputError(f"These positions do not support dim={dim}. {error}") from error


def _frequencies(layer: Any, dim: int) -> Any:
    """Returns the frequency of each pair of dimensions, in radians per position; `None` for other positions."""
    if not isinstance(layer, (SinusoidalPositions, RotaryPositions)):
        return None
    even, odd = encodings(layer, 2, dim)[1, : dim // 2 * 2].reshape(-1, 2).T
    return np.arctan2(even, odd) if isinstance(layer, SinusoidalPositions) else np.arctan2(odd, even)


def _figure(table: np.ndarray, frequencies: np.ndarray | None, title: str) -> Any:
    panels = 1 if frequencies is None else 2
    figure = new_figure(figsize=(6.0 * panels, 4.5))
    grid = figure.subplots(1, panels, squeeze=False)[0]
    largest = max(float(np.abs(table).max()), 1e-6)
    image = grid[0].imshow(table, cmap="RdBu", aspect="auto", vmin=-largest, vmax=largest, interpolation="nearest")
    grid[0].set(title=f"P, {title}", xlabel="dimension", ylabel="position")
    figure.colorbar(image, ax=grid[0])
    if frequencies is not None:
        dimensions = 2 * np.arange(len(frequencies))
        grid[1].semilogy(dimensions, frequencies, marker=".")
        grid[1].set(title="frequencies", xlabel="dimension", ylabel="radians per position")
    return figure


def position_terms(inputs: Any, positions: Any, layer: Any = None) -> dict[str, np.ndarray]:
    """Returns the four terms of `(x_i + p_i) · (x_j + p_j)`, the scores of attention with added positions.

    `x_i · x_j + x_i · p_j + p_i · x_j + p_i · p_j`: only the last term depends on positions alone. With a layer, x and
    p are first projected by its W_q and W_k, `(x_i + p_i) W_q · (x_j + p_j) W_k`; the biases are counted as part of x.

    Args:
        inputs: x, [T, D].
        positions: p, [T, D], or a layer of absolute positions that adds them.
        layer: A built `MultiHeadAttention` whose score is a dot product, scaled or not. Its own positions are ignored.

    Returns:
        Arrays [T, T], with a layer [N, T, T], by name: `content_content`, `content_position` (the query's content with
        the key's position), `position_content`, `position_position`; their sum is the unscaled scores.

    Raises:
        InputError: (a `ValueError`) If the shapes differ, or the score is not a dot product.

    Example:
        >>> import numpy as np
        >>> import zoo
        >>> x, p = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 2.0]])
        >>> terms = zoo.position_terms(x, p)
        >>> print(terms["content_content"], terms["position_position"])
        [[1. 1.]
         [1. 1.]] [[1. 2.]
         [2. 4.]]

    Reference:
        Dai et al. 2019, "Transformer-XL", section 3.3, https://arxiv.org/abs/1901.02860
    """
    content = np.asarray(inputs, "float32")
    if isinstance(positions, AbsolutePositions):
        if positions.concatenate:
            raise InputError("`positions` must be added, not concatenated. Received: concatenate=True.")
        positions = encodings(positions, *content.shape)
    positions = np.asarray(positions, "float32")
    if content.ndim != 2 or content.shape != positions.shape:
        raise InputError(
            f"`inputs` and `positions` must both be [T, D]. Received: {content.shape} and {positions.shape}."
        )
    queries, keys = _projected(layer, content, positions) if layer is not None else ((content, positions),) * 2
    names = ("content", "position")
    return {
        f"{first}_{second}": query @ np.swapaxes(key, -1, -2)
        for first, query in zip(names, queries, strict=True)
        for second, key in zip(names, keys, strict=True)
    }


def _projected(layer: Any, content: np.ndarray, positions: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns contents and positions, projected to queries and to keys, all [N, T, H]."""
    score = getattr(layer, "score", None)
    if not isinstance(layer, MultiHeadAttention) or not isinstance(score, DotScore) or isinstance(score, CosineScore):
        raise InputError(
            "`layer` must be a MultiHeadAttention whose score is a dot product, which has these four terms. "
            f"Received: {type(layer).__name__} with score {type(score).__name__}."
        )
    without = copy_with(layer, {"positions": None})
    both = []
    for rows in (content, content + positions):
        tensor = ops.convert_to_tensor(rows[None], dtype=layer.compute_dtype)
        both.append((without.project_query(tensor), without.project_memory(tensor)["key"]))
    arrays = [[ops.convert_to_numpy(tensor)[0].astype("float32") for tensor in pair] for pair in both]
    return [(of_content, of_sum - of_content) for of_content, of_sum in zip(*arrays, strict=True)]
