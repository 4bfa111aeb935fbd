"""Each attention layer at lengths from 128 to 8192: cases for `benchmarks.growth`.

Few features, so that what grows with T outweighs what is the same for every position; and as many rows as it takes for
the work of a row to outweigh the start of the operations.
"""

import dataclasses
from collections.abc import Callable, Mapping

from benchmarks.cases import Case, Contestant, Sizes, self_attention
from benchmarks.steps import Step, layer, tensorflow_step

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
SIZES = Sizes(batch=1, length=LENGTHS[0], dim=64, heads=4, window=64)
UNITS = 16  # additive scores cost this much for every pair


def _heads(sizes):
    return {"num_heads": sizes.heads, "key_dim": sizes.head_dim}


def _window(name="window"):
    return lambda sizes: {**_heads(sizes), name: sizes.window}


def _units(sizes):
    return {"units": min(UNITS, sizes.dim)}


def _local(alignment):
    return lambda sizes: {"window": sizes.window, "alignment": alignment}


def _pooling(sizes: Sizes) -> Step:
    attention = layer("zoo.layers.AdditiveAttention", **_units(sizes), dtype=sizes.policy)
    made = layer("zoo.layers.AttentionPooling", attention, dtype=sizes.policy)
    return tensorflow_step(made, [(sizes.batch, sizes.length, sizes.dim)], half=sizes.half)


def _nothing(sizes):
    return {}


# Name: class, options by sizes, exponent of the cost in theory, B.
_LAYERS: Mapping[str, tuple[str, Callable[[Sizes], Mapping], int, int]] = {
    "additive": ("AdditiveAttention", _units, 2, 1),
    "concat": ("ConcatAttention", _units, 2, 1),
    "dot": ("DotAttention", _nothing, 2, 4),
    "general": ("GeneralAttention", _nothing, 2, 4),
    "cosine": ("CosineAttention", _nothing, 2, 4),
    "scaled_dot": ("ScaledDotProductAttention", _nothing, 2, 4),
    "multi_head": ("MultiHeadAttention", _heads, 2, 1),
    "grouped_query": ("GroupedQueryAttention", lambda sizes: {**_heads(sizes), "num_key_value_heads": 2}, 2, 1),
    # The paper's cost is that of the window alone; here their weights have the full length, as the contract asks.
    "local_m": ("LocalAttention", _local("monotonic"), 2, 4),
    "local_p": ("LocalAttention", _local("predictive"), 2, 4),
    "sliding_window": ("SlidingWindowAttention", _window(), 1, 16),
    "block_local": ("BlockLocalAttention", _window("block_size"), 1, 16),
    "linear": ("LinearAttention", _heads, 1, 16),
    "performer": ("PerformerAttention", _heads, 1, 16),
}


def _case(name, title, step, batch):
    sizes = {length: dataclasses.replace(SIZES, batch=batch, length=length) for length in LENGTHS}
    contestants = tuple(Contestant(f"{title}, T={length}", step, sizes[length]) for length in LENGTHS)
    return Case(f"growth_{name}", f"{title}, B{batch}", contestants)


GROWTH = {
    name: _case(name, f"{title} ({name})" if title == "LocalAttention" else title, self_attention(path, options), batch)
    for name, (title, options, _, batch) in _LAYERS.items()
    for path in [f"zoo.layers.{title}"]
}
GROWTH["pooling"] = _case("pooling", "AttentionPooling", _pooling, 64)
EXPONENTS = {case.name: _LAYERS[name][2] if name in _LAYERS else 1 for name, case in GROWTH.items()}
"""With which power of the length the cost of each case grows in theory."""
