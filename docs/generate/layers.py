"""Pages of the layers: their docstrings, their costs, and a picture of what each result depends on.

Each page is about the layer that the example of the docstring makes, which the tests run.
"""

import doctest
import inspect
import json
import math
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import keras
import numpy as np
from keras import ops

import zoo
from generate import svg
from generate.ideas import IDEA_OF, IDEAS, Idea
from generate.problems import Problems
from generate.tables import table
from zoo import layers
from zoo.layers.visibility.base import Pairs

LENGTH = 12  # of the sequences in the pictures
ROUNDING = 1e-12  # of the largest result, float64: rows of one batch may differ by as much, though inputs are equal
DRAWS = 8  # of inputs: a sharp choice depends on few keys
LENGTHS = (100, 200)  # of those whose costs are compared
ICON = 6  # positions of the small pictures in the list
BASES = (layers.BaseAttention, layers.Score, layers.Positions, layers.VisibilityRule, layers.Normalization)
RULES: dict[type, layers.VisibilityRule] = {
    type(rule): rule
    for rule in (
        layers.Causal(),
        layers.SlidingWindow(left=2, right=1),
        layers.LocalBlocks(3),
        layers.Dilated(window=2, dilation=2),
        layers.GlobalTokens([0, 5]),
        layers.PrefixLM(),
        layers.Segments(),
        layers.BlockSparse(4, [[1, 0, 1], [1, 1, 0], [0, 1, 1]]),
        layers.SummaryTokens(block_size=4, count=1),
    )
}
MASK_INPUTS = {"prefix_length": "with a prefix of 4", "segment_ids": "for segments of 5 positions"}


def pages(problems: Problems) -> Iterator[tuple[str, str]]:
    """Yields name and content of a page for each public layer, and of their list.

    Args:
        problems: Gets the layers without description or equation, idea, paper and example.
    """
    described: dict[str, tuple[str, str]] = {}
    for name in layers.__all__:
        subject = getattr(layers, name)
        problems.require(inspect.getdoc(subject), f"zoo.layers.{name} has no docstring.")
        problems.require(name in IDEA_OF, f"zoo.layers.{name} belongs to no idea: docs/generate/ideas.py.")
        about = _first_sentence(subject)
        problems.require(about, f"The docstring of zoo.layers.{name} has no first paragraph that describes it.")
        page, icon = _page(name, subject, problems)
        described[name] = icon, about
        yield f"layers/{name}.md", page
    parts = ["# Layers, by idea\n\nThe [overview](../../layers.md) helps you to choose. A small picture is of what "]
    parts[0] += "each result depends on: a row for each result, a column for each key or input."
    for idea in IDEAS:
        rows = [
            (described[name][0], f"[`{name}`]({name}.md)", _in_words(described[name][1], equation))
            for name, equation in idea.layers.items()
        ]
        text = f"{idea.about} {_shown_by(idea)}".strip()
        parts.append(f"## {idea.title}\n\n{text}\n\n{table(('', 'layer', 'what it is'), rows)}")
    yield "layers/index.md", "\n\n".join(parts)


def _first_sentence(subject: Any) -> str:
    return " ".join((inspect.getdoc(subject) or "").split("\n\n")[0].split())


def _in_words(sentence: str, equation: str) -> str:
    """Returns what a layer is, with its equation as mathematics where the sentence ends in it as code."""
    words, colon, _ = sentence.partition(": `")
    return f"{words}: ${equation}$" if colon and equation else sentence


def _shown_by(idea: Idea) -> str:
    pages = [f"[{name}](../../evidence/{name}.md)" for name in idea.experiments]
    return f"Measured in the evidence on {', '.join(pages)}." if pages else ""


def _page(name: str, subject: Any, problems: Problems) -> tuple[str, str]:
    """Returns the page of a layer, and its icon."""
    parts, icon = [f"# {name}"], ""
    if equation := IDEA_OF[name].layers[name]:
        parts.append(f"$$\n{equation}\n$$")
    members = _members(subject)
    options = ["heading_level: 2", "heading: Signature", "toc_label: Signature"]
    options.append(f"members: {json.dumps(members) if members else 'false'}")
    parts.append(f"::: zoo.layers.{name}\n    options:\n" + "\n".join(f"      {option}" for option in options))
    if isinstance(subject, type):
        called = _calls(name, subject)
        layer = called[0] if called else None
        pictures, icon = _pictures(subject, layer)
        parts += [part for part in (pictures, _cost(subject, layer)) if part]
        if issubclass(subject, layers.BaseAttention) and subject is not layers.BaseAttention:
            problems.require(layer, f"The example of zoo.layers.{name} makes and calls no {name}.")
    parts.append(_related(name))
    return "\n\n".join(parts) + "\n", icon


def _members(subject: Any) -> list[str]:
    """Returns the methods that a page describes: those that the description names; of a base, all that it defines."""
    if not isinstance(subject, type):
        return []
    inherited = {name for base in subject.__mro__[1:] for name in vars(base)}
    own = [name for name in vars(subject) if not name.startswith("_") and name not in inherited]
    own = [name for name in own if isinstance(vars(subject)[name], FunctionType | property)]
    if subject in BASES:
        return own
    return [name for name in own if f"`{name}" in (inspect.getdoc(subject) or "") or name == "create_cache"]


def _related(name: str) -> str:
    idea = IDEA_OF[name]
    others = [f"[`{other}`]({other}.md)" for other in idea.layers if other != name]
    return f"## Related\n\n{idea.title}: {', '.join(others)}. {_shown_by(idea)}".strip()


def _calls(name: str, subject: Any) -> tuple[Any, list[Any]] | None:
    """Returns the first layer of a class that the example of its docstring calls, and the call's tensors."""
    seen: list[tuple[Any, list[Any]]] = []
    call = keras.layers.Layer.__call__

    def record(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if type(self) is subject:
            seen.append((self, [argument for argument in arguments if hasattr(argument, "shape")]))
        return call(self, *arguments, **keywords)

    keras.layers.Layer.__call__ = record
    try:
        runner = doctest.DocTestRunner(verbose=False)
        for test in doctest.DocTestFinder(recurse=False).find(subject, name, globs={}):
            runner.run(test, out=lambda text: None)
    finally:
        keras.layers.Layer.__call__ = call
    return seen[0] if seen else None


# Pictures


def _pictures(subject: type, layer: Any) -> tuple[str, str]:
    """Returns pictures of what the results of a layer depend on, and the first as an icon; both may be empty."""
    if issubclass(subject, layers.Positions):
        return _bias_picture(subject), ""
    if issubclass(subject, layers.VisibilityRule):
        return _rule_picture(subject)
    if layer is None or issubclass(subject, layers.Score | keras.layers.RNN) or not _is_sequence_layer(layer):
        return "", ""
    shown = (
        [("each query attends to these keys", {})] if _attends(layer) else [("each result depends on these inputs", {})]
    )
    if _takes_causal_mask(layer):
        shown.append(("with the causal mask", {"use_causal_mask": True}))
    pictures = []
    for title, options in shown:
        seen = _seen(layer, **options)
        if options and np.triu(seen, 1).any():
            raise AssertionError(f"{_made(layer)} with the causal mask: a result changes with a later position.")
        pictures.append((title, seen))
    text = f"Found by changing {'values' if _attends(layer) else 'inputs'} one by one, {LENGTH} positions, in a layer "
    text += f"as the example makes it: `{_made(layer)}`."
    return _dependencies(pictures, _columns(layer), "results", text), svg.icon(pictures[0][1][:ICON, :ICON])


def _dependencies(pictures: list[tuple[str, np.ndarray]], columns: str, rows: str, text: str) -> str:
    figures = [
        f"<figure markdown='0'>{svg.grid(seen, columns, rows, title)}<figcaption>{title}</figcaption></figure>"
        for title, seen in pictures
    ]
    return f'## What its results depend on\n\n<div class="pictures" markdown="0">{"".join(figures)}</div>\n\n{text}'


def _rule_picture(subject: type) -> tuple[str, str]:
    """Returns the picture of a rule that needs nothing but positions, as `RULES` makes it, and its icon."""
    if (rule := RULES.get(subject)) is None:
        return "", ""
    places = ops.arange(LENGTH, dtype="int32")
    inputs = {
        "prefix_length": ops.full((1, 1, 1, 1), 4, dtype="int32"),
        "query_segment_ids": ops.reshape(places // 5, (1, 1, LENGTH, 1)),
        "segment_ids": ops.reshape(places // 5, (1, 1, 1, LENGTH)),
    }
    zero = ops.zeros((1, 1, 1, 1), dtype="int32")
    pairs = Pairs(zero, zero, ops.reshape(places, (1, 1, -1, 1)), ops.reshape(places, (1, 1, 1, -1)), inputs)
    seen = np.broadcast_to(ops.convert_to_numpy(rule.allows(pairs)), (1, 1, LENGTH, LENGTH))[0, 0].astype("float32")
    text = f"`{rule!r}`"
    text += "".join(f", {condition}" for name, condition in MASK_INPUTS.items() if name in rule.needs)
    pictures = [("each query attends to these keys", seen)]
    return _dependencies(pictures, "keys", "queries", f"{text}."), svg.icon(seen[:ICON, :ICON])


def _attends(layer: Any) -> bool:
    return isinstance(layer, layers.BaseAttention | layers.TransformerDecoderBlock)


def _columns(layer: Any) -> str:
    return "keys" if _attends(layer) else "inputs"


def _is_sequence_layer(layer: Any) -> bool:
    return isinstance(layer, layers.BaseAttention) or type(layer) in (
        layers.TransformerEncoderBlock,
        layers.TransformerDecoderBlock,
        layers.GatedConvolutionBlock,
        layers.BidirectionalEncoder,
        layers.FeedForward,
        layers.GatedFeedForward,
    )


def _takes_causal_mask(layer: Any) -> bool:
    return isinstance(layer, layers.BaseAttention) and "use_causal_mask" in inspect.signature(layer.call).parameters


def _made(layer: Any) -> str:
    """Returns the call that makes a layer, with what differs from the defaults."""
    parameters = inspect.signature(type(layer).__init__).parameters
    options = []
    names = [name for base in reversed(type(layer).__mro__) for name in vars(base).get("saved_options", ())]
    for name in dict.fromkeys(names):
        value, default = getattr(layer, name, None), getattr(parameters.get(name), "default", None)
        if isinstance(value, int | float | str) and value != default:
            options.append(f"{name}={value!r}")
    return f"{type(layer).__name__}({', '.join(options)})"


def _fresh(layer: Any, **options: Any) -> Any:
    return type(layer).from_config({**layer.get_config(), **options})


def _sizes(layer: Any) -> list[int]:
    """Returns the last axis of each input that the layer was built for."""
    shapes = layer._build_shapes_dict or {}
    shapes = shapes if isinstance(shapes, dict) else {"input_shape": shapes}
    return [shape[-1] for shape in shapes.values() if shape is not None and isinstance(shape[-1], int)]


def _seen(layer: Any, **options: Any) -> np.ndarray:
    """Returns [T, S]: 1 where result t changes with value (or input) s for any of the drawn inputs, else 0."""
    sizes, fresh = _sizes(layer), _fresh(layer, dtype="float64")
    return np.max([_changes(fresh, sizes, np.random.default_rng(seed), **options) for seed in range(DRAWS)], axis=0)


def _changes(layer: Any, sizes: list[int], random: np.random.Generator, **options: Any) -> np.ndarray:
    several = _attends(layer) and len(sizes) > 1

    def rows(size: int) -> np.ndarray:
        return np.tile(random.normal(size=(1, LENGTH, size)), (LENGTH + 1, 1, 1))

    changed = rows(sizes[1] if several else sizes[0])
    changed[np.arange(LENGTH), np.arange(LENGTH)] += 1.0
    inputs = [changed]
    if _attends(layer):
        inputs = [rows(sizes[0]), changed, *([rows(sizes[2])] if len(sizes) > 2 else [])]
    result = layer(*(ops.convert_to_tensor(tensor) for tensor in inputs), **options)
    result = ops.convert_to_numpy(result[0] if isinstance(result, tuple | list) else result)
    changes = np.abs(result[:LENGTH] - result[LENGTH:]).max(axis=-1)
    return (changes > ROUNDING * np.abs(result).max()).T.astype("float32")


def _bias_picture(subject: type) -> str:
    """Returns what positions add to the scores of the first heads, where that is a bias that needs no other weights."""
    if subject not in (layers.ALiBiPositions,):
        return ""
    positions, heads = subject(), 4
    positions.build_for_attention(num_heads=heads, key_dim=8, value_dim=8, query_dim=32, memory_dim=32)
    places = ops.arange(LENGTH, dtype="int32")
    bias = ops.convert_to_numpy(positions.bias(places, places))
    low, high = float(bias.min()), float(bias.max())
    figures = [
        f"<figure>{svg.grid((head - low) / (high - low), 'keys', 'queries', f'the bias of head {number}')}"
        f"<figcaption>head {number}: {head.min():.2f} … {head.max():.2f}</figcaption></figure>"
        for number, head in enumerate(bias)
    ]
    text = f"What `{subject.__name__}()` adds to the scores of {heads} heads; the darker, the more."
    return f'## What it adds\n\n<div class="pictures" markdown="0">{"".join(figures)}</div>\n\n{text}'


# Costs


def _cost(subject: type, layer: Any) -> str:
    if layer is None or subject is layers.BaseAttention:
        return ""
    make: Callable[[], Any] | None = None
    if issubclass(subject, layers.Score):
        if subject is layers.PerHeadScore:
            return ""
        make = lambda: layers.Attention(_fresh(layer))  # noqa: E731
        sizes = _sizes(layer)
        sizes = [sizes[0], sizes[-1]] if len(sizes) > 1 else sizes * 2
    elif _is_sequence_layer(layer) or isinstance(layer, layers.AttentionPooling):
        make, sizes = lambda: _fresh(layer), _sizes(layer)  # noqa: E731
    if make is None:
        return ""
    longest = getattr(layer, "max_keys", None)
    lengths = (longest,) if isinstance(longest, int) else LENGTHS
    costs = []
    for length in lengths:
        fresh = make()
        shapes = [(1, length, size) for size in sizes]
        fresh.build(*shapes)
        costs.append(zoo.cost(fresh, query_length=length))
    rows = [
        (f"`{name}`", f"{step.multiplications:,}", f"{step.additions:,}", f"{step.bytes:,}", f"{step.weights:,}")
        for name, step in [*costs[0].items(), ("total", costs[0].total)]
    ]
    total = costs[0].total
    path = "∞" if math.isinf(total.path_length) else f"{total.path_length:,}"
    text = f"`zoo.cost(layer, query_length={lengths[0]})` of {_described(subject, layer, sizes)}:"
    after = f"Steps one after another: {total.sequential_steps:,}. Longest path between two positions: {path}."
    if len(costs) > 1 and costs[0].multiplications:
        factor = costs[1].multiplications / costs[0].multiplications
        after += f" Of twice the length: {factor:.2f} times the multiplications."
    head = ("step", "multiplications", "additions", "bytes", "weights")
    return f"## What it costs\n\n{text}\n\n{table(head, rows)}\n{after}"


def _described(subject: type, layer: Any, sizes: list[int]) -> str:
    made = f"Attention({_made(layer)})" if issubclass(subject, layers.Score) else _made(layer)
    return f"`{made}`, inputs with {' and '.join(str(size) for size in sizes[:2])} features"
