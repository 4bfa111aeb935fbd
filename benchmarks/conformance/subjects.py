"""The layers that are checked, with a common interface to construct and to call them.

Sizes are distinct: B 2, T 3, S 5, query 11, value 13, key 17, heads of 31. Blocks are 62 wide, with two heads.
"""

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
from keras import ops

BATCH, QUERIES, KEYS, HEAD = 2, 3, 5, 31
MASKS = ("query_mask", "value_mask", "key_mask", "attention_mask")
QUERY_VALUE_KEY = {"query": 11, "value": 13, "key": 17}


class NotApplicable(Exception):
    """A check does not apply: the layer lacks the feature that it checks."""


class Missing(Exception):
    """A layer is not installed, or not in this version of its package."""


def find(path: str) -> type:
    """Returns a class by its path, such as `keras_hub.layers.RotaryEmbedding`; raises `Missing` if there is none."""
    module, _, name = path.rpartition(".")
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        raise Missing(f"{package} is not installed")
    layer_class = getattr(importlib.import_module(module), name, None)
    if layer_class is None:
        raise Missing(f"{module} has no {name}")
    return layer_class


@dataclass(frozen=True, eq=False)
class Subject:
    """A layer and how it is called."""

    path: str  # of the class
    group: str  # the table of the layer
    options: Callable[[str, float], Mapping[str, Any]]  # its options, from a dtype policy and a rate of dropout
    sizes: Mapping[str, int]  # sizes of the inputs, in order; a single input is query, key and value at once
    note: str = ""  # distinguishes it from others of the same class
    arguments: Mapping[str, str] = field(default_factory=dict)  # the layer's names of arguments, where ours differ
    packed: bool = False  # whether inputs and masks are lists
    num_heads: int | None = None  # number of heads, or `None` for a layer whose scores have no such axis
    residual: bool = False  # whether it adds its input to the output of attention
    causal: bool = False  # whether it is always causal, in its first input
    pure_weights: bool = True  # whether there is no dropout before the weights
    large: float = 200.0  # factor of inputs with which products, but not scaled ones, exceed float16's range
    apply: Callable | None = None  # calls the layer. Default: `__call__`
    steps: Callable | None = None  # decodes step by step: `(subject, layer, inputs, first)` → output

    @property
    def name(self) -> str:
        return f"{self.path}, {self.note}" if self.note else self.path

    @property
    def is_self_attention(self) -> bool:
        """Whether query, key and value are one input."""
        return len(self.sizes) == 1

    @property
    def memory(self) -> tuple[str, ...]:
        """The inputs to which queries attend."""
        return tuple(self.sizes) if self.is_self_attention else tuple(name for name in self.sizes if name != "query")

    def make(self, policy="float32", dropout=0.0):
        keras.utils.set_random_seed(7)  # equal layers have equal dropout
        return find(self.path)(**self.options(policy, dropout), dtype=policy)

    def inputs(self, queries=QUERIES, keys=KEYS, sizes=None, seed=0):
        """Returns random inputs by name."""
        sizes = sizes or self.sizes
        queries = keys if self.is_self_attention else queries
        lengths = {name: queries if name == "query" else keys for name in sizes}
        return {
            name: random_array((BATCH, lengths[name], size), [seed, index])
            for index, (name, size) in enumerate(sizes.items())
        }

    def build(self, policy="float32", dropout=0.0, inputs=None):
        """Returns a new layer with random weights that depend on their shapes and order alone."""
        layer = self.make(policy, dropout)
        self.call(layer, inputs or self.inputs())
        layer.set_weights([_random_weight(weight.shape, index) for index, weight in enumerate(layer.weights)])
        return layer

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments of the layer's `call`."""
        return inspect.signature(find(self.path).call).parameters

    def argument(self, role: str) -> str:
        """Returns the layer's name of one of `MASKS`, `bias`, `scores` or `causal`, or raises `NotApplicable`."""
        if self.packed and role in ("query_mask", "value_mask"):
            return "mask"
        names = {"scores": "return_attention_scores", "causal": "use_causal_mask"}
        name = self.arguments.get(role, names.get(role, role))
        if role == "bias" and role not in self.arguments:
            name = next((name for name in self.parameters if "bias" in name), None)
        if name not in self.parameters:
            raise NotApplicable(f"`call` takes no {f'`{name}`' if name else role}")
        return name

    def offers(self, role: str) -> bool:
        """Returns whether the layer has an argument for it."""
        try:
            return bool(self.argument(role))
        except NotApplicable:
            return False

    @property
    def with_or_without_scores(self) -> tuple[bool, ...]:
        """The choices of returning the scores."""
        return (False, True) if self.offers("scores") else (False,)

    def call(self, layer, inputs, scores=False, causal=False, training=False, **masks):
        """Returns the output and the weights, `None` unless `scores`; `masks` have our names of masks and bias."""
        if self.apply is not None:
            return self.apply(layer, *inputs.values(), **masks), None
        options = {} if self.packed else {self.argument(role): value for role, value in masks.items()}
        if self.packed and masks:
            [self.argument(role) for role in masks]
            options["mask"] = [masks.get("query_mask"), masks.get("value_mask")]
        options |= {self.argument("scores"): True} if scores else {}
        options |= {self.argument("causal"): True} if causal else {}
        options |= {"training": training} if "training" in self.parameters else {}
        values = list(inputs.values())
        results = layer(values, **options) if self.packed else layer(*values, **options)
        return results if isinstance(results, tuple) else (results, None)

    def run(self, layer, inputs, **options):
        """Returns the results of `call` as float32 NumPy arrays."""
        options = {
            name: ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value
            for name, value in options.items()
        }
        tensors = {name: ops.convert_to_tensor(value) for name, value in inputs.items()}
        return tuple(None if result is None else to_numpy(result) for result in self.call(layer, tensors, **options))


def random_array(shape, seed):
    """Returns uniform random numbers between −1 and 1."""
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype("float32")


def _random_weight(shape, seed):
    """Returns random values of the scale of an initialized kernel, also for biases and scales."""
    deviation = shape[0] ** -0.5 if len(shape) > 1 else 0.4
    return random_array(shape, [seed, 7]) * 3**0.5 * deviation


def to_numpy(tensor):
    """Returns a tensor as a float32 array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def _decode(length, first, step, caches):
    """Returns the outputs of `step`, called for the `first` positions together and then for one at a time."""
    outputs = []
    for start, end in [(0, first), *((index, index + 1) for index in range(first, length))]:
        output, caches = step(start, end, caches)
        outputs.append(to_numpy(output))
    return np.concatenate(outputs, axis=1)


def _zoo_steps(subject, layer, inputs, first):
    """Decodes with this library's caches."""
    sequence = inputs["query"]
    length = sequence.shape[1]
    maker = next((getattr(layer, name) for name in ("self_attention", "attention") if hasattr(layer, name)), layer)

    def step(start, end, cache):
        part = sequence[:, start:end]
        others = [inputs[name] for name in inputs if name != "query"] if subject.residual else [part]
        return layer(part, *others, cache=cache)

    return _decode(length, first, step, maker.create_cache(BATCH, length))


def _empty_cache(subject, length):
    """Returns a cache of KerasHub's layers."""
    return np.zeros((BATCH, 2, length, subject.num_heads, HEAD), "float32")


def _hub_attention_steps(subject, layer, inputs, first):
    """Decodes with KerasHub's caches, for which the caller passes the causal mask."""
    sequence = inputs["query"]
    length = sequence.shape[1]

    def step(start, end, cache):
        mask = np.arange(length) <= np.arange(start, end)[:, None]
        mask, part = np.broadcast_to(mask, (BATCH, *mask.shape)), sequence[:, start:end]
        return layer(part, part, attention_mask=mask, cache=cache, cache_update_index=start)

    return _decode(length, first, step, _empty_cache(subject, length))


def _hub_decoder_steps(subject, layer, inputs, first):
    """Decodes with KerasHub's two caches; the second is filled once."""
    sequence, memory = inputs["query"], inputs["value"]

    def step(start, end, caches):
        output, *caches = layer(
            sequence[:, start:end],
            memory,
            self_attention_cache=caches[0],
            self_attention_cache_update_index=start,
            cross_attention_cache=caches[1],
            cross_attention_cache_update_index=None if start else 0,
        )
        return output, caches

    caches = [_empty_cache(subject, tensor.shape[1]) for tensor in (sequence, memory)]
    return _decode(sequence.shape[1], first, step, caches)


def _with(**options):
    """Returns a function `(policy, dropout)` that returns these options with that dropout, for any policy."""
    return lambda policy, dropout: {**options, "dropout": dropout}


# Different from the number of sequences: otherwise a mask [B, T, S] could be [N, T, S], and is refused.
_ZOO_HEADS = 3


def _zoo_parts(*names):
    """Returns the options of a block with attention layers of these names and a feed-forward network; see `_with`."""

    def options(policy, dropout):
        attention = find("zoo.layers.MultiHeadAttention")
        parts = {name: attention(_ZOO_HEADS, HEAD, dropout=dropout, dtype=policy, name=name) for name in names}
        return {**parts, "feed_forward": find("zoo.layers.FeedForward")(37, dtype=policy), "dropout": dropout}

    return options


def _add_positions(layer, inputs, start_index=0):
    """Returns inputs [B, T, H] with their positions; KerasHub's sinusoids are returned without the inputs."""
    output = layer(inputs, start_index=start_index)
    return output + ops.cast(inputs, output.dtype) if type(layer).__name__ == "SinePositionEncoding" else output


SINGLE = "Single head"
MULTI = "Multi-head"
BLOCKS = "Transformer blocks"
POSITIONS = "Positions"
_DOT = {**QUERY_VALUE_KEY, "key": 11}  # no projections: queries and keys are of one size
_HEADS = {"sizes": QUERY_VALUE_KEY, "num_heads": 7}
_ENCODER = {"sizes": {"query": 62}, "num_heads": 2, "residual": True}
_DECODER = {**_ENCODER, "sizes": {"query": 62, "value": 62}, "causal": True, "pure_weights": False}
_HUB_DECODER = {
    "query_mask": "decoder_padding_mask",
    "value_mask": "encoder_padding_mask",
    "attention_mask": "encoder_attention_mask",
}

# The checks apply to the attention to the memory.
_ZOO_DECODER = {
    "query_mask": "mask",
    "value_mask": "memory_mask",
    "attention_mask": "memory_attention_mask",
    "bias": "memory_attention_bias",
}

_HUB_BLOCK = _with(intermediate_dim=37, num_heads=2)
_MANY = {"num_heads": 7, "key_dim": HEAD}
_GROUPED = {"num_heads": 6, "num_key_value_heads": 3, "key_dim": HEAD}


def _zoo(name, group, options, sizes, **calling):
    return Subject(f"zoo.layers.{name}", group, options, sizes, steps=_zoo_steps, **calling)


def _positions(path):
    return Subject(path, POSITIONS, lambda policy, dropout: {}, {"query": 12}, apply=_add_positions)


SUBJECTS = (
    # Without a division by √d the products themselves must stay in float16's range.
    Subject("keras.layers.Attention", SINGLE, _with(), _DOT, packed=True, large=100.0),
    Subject("keras.layers.Attention", SINGLE, _with(score_mode="concat"), _DOT, note="concat", packed=True),
    Subject("keras.layers.AdditiveAttention", SINGLE, _with(), _DOT, packed=True),
    _zoo("DotAttention", SINGLE, _with(), _DOT, large=100.0),
    _zoo("ScaledDotProductAttention", SINGLE, _with(), _DOT),
    _zoo("AdditiveAttention", SINGLE, _with(units=37), QUERY_VALUE_KEY),
    _zoo("SelfAttention", SINGLE, _with(units=HEAD), QUERY_VALUE_KEY),
    Subject("keras.layers.MultiHeadAttention", MULTI, _with(**_MANY), **_HEADS),
    Subject(
        "keras.layers.GroupQueryAttention",
        MULTI,
        _with(head_dim=HEAD, num_query_heads=6, num_key_value_heads=3),
        {"query": 11, "value": 11, "key": 11},  # its symbolic call requires one size
        num_heads=6,
    ),
    Subject("keras_hub.layers.CachedMultiHeadAttention", MULTI, _with(**_MANY), steps=_hub_attention_steps, **_HEADS),
    _zoo("MultiHeadAttention", MULTI, _with(**_MANY), **_HEADS),
    _zoo("MultiHeadAttention", MULTI, _with(**_MANY, implementation="blockwise"), note="blockwise", **_HEADS),
    _zoo("GroupedQueryAttention", MULTI, _with(**_GROUPED), QUERY_VALUE_KEY, num_heads=6),
    Subject(
        "keras_hub.layers.TransformerEncoder", BLOCKS, _HUB_BLOCK, arguments={"value_mask": "padding_mask"}, **_ENCODER
    ),
    _zoo(
        "TransformerEncoderBlock",
        BLOCKS,
        _zoo_parts("attention"),
        arguments={"value_mask": "mask"},
        **{**_ENCODER, "num_heads": _ZOO_HEADS},
    ),
    Subject(
        "keras_hub.layers.TransformerDecoder",
        BLOCKS,
        _HUB_BLOCK,
        arguments=_HUB_DECODER,
        steps=_hub_decoder_steps,
        **_DECODER,
    ),
    _zoo(
        "TransformerDecoderBlock",
        BLOCKS,
        _zoo_parts("self_attention", "cross_attention"),
        arguments=_ZOO_DECODER,
        **{**_DECODER, "num_heads": _ZOO_HEADS},
    ),
    _positions("keras_hub.layers.RotaryEmbedding"),
    _positions("zoo.layers.RotaryPositions"),
    _positions("keras_hub.layers.SinePositionEncoding"),
    _positions("zoo.layers.SinusoidalPositions"),
)
