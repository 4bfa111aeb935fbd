"""What is measured against what: layers, sizes and targets, as data."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.steps import Step, jax_step, layer, package, tensorflow_step, torch_step


@dataclass(frozen=True)
class Sizes:
    """Sizes of a case.

    Args:
        batch: B.
        length: T = S.
        dim: D, also the heads together.
        heads: N.
        window: Keys on one side that a query of local attention sees.
        half: Whether bfloat16 (mixed, where a layer has weights) and not float32.
        anywhere: Whether it runs on any device, to see that it runs.
    """

    batch: int
    length: int
    dim: int
    heads: int = 1
    window: int = 0
    half: bool = False
    anywhere: bool = False

    def tiny(self) -> "Sizes":
        """Returns sizes that show no more than that it runs."""
        heads, window = min(self.heads, 2), min(self.window, 2)
        length = max(8, self.length // 1024)
        return dataclasses.replace(
            self, batch=1, length=length, dim=8 * heads, heads=heads, window=window, anywhere=True
        )

    @property
    def head_dim(self) -> int:
        """H, the size of a head."""
        return self.dim // self.heads

    @property
    def policy(self) -> str:
        """The dtype policy of layers."""
        return "mixed_bfloat16" if self.half else "float32"


@dataclass(frozen=True)
class Contestant:
    """One of those that are compared.

    Args:
        name: What it is.
        step: Returns its pass for sizes.
        sizes: Its sizes.
        note: What it does besides attention, for a fair reading.
        backend: Keras' backend.
    """

    name: str
    step: Callable[[Sizes], Step]
    sizes: Sizes
    note: str = ""
    backend: str = "tensorflow"


@dataclass(frozen=True)
class Target:
    """A number to reach.

    Args:
        what: What is measured, for the reader.
        kind: "speed" and "memory" (how many times faster, or less, than the peer), "bytes" (extra memory alone),
            "time slope" and "memory slope" (of the logarithm against that of the length, from the peer to ours).
        ours: Name of our contestant.
        peer: Name of the other one.
        bound: What to reach; `None` if it is only reported.
    """

    what: str
    kind: str
    ours: str
    peer: str = ""
    bound: float | None = None


@dataclass(frozen=True)
class Case:
    """Contestants on one task.

    Args:
        name: Name for the command line.
        title: What they do.
        contestants: Ours first.
        targets: What ours should reach.
    """

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    targets: tuple[Target, ...] = field(default=())

    def contestant(self, name: str) -> Contestant:
        """Returns a contestant by name."""
        return {each.name: each for each in self.contestants}[name]


def self_attention(path: str, options: Callable[[Sizes], Mapping]) -> Callable[[Sizes], Step]:
    """Returns the maker of a pass of a Keras layer over one sequence."""

    def make(sizes):
        made = layer(path, dtype=sizes.policy, **options(sizes))
        shapes = [(sizes.batch, sizes.length, sizes.dim)]
        return tensorflow_step(made, shapes, lambda layer, inputs: layer(inputs, inputs), sizes.half)

    return make


def _heads(sizes):
    return {"num_heads": sizes.heads, "key_dim": sizes.head_dim}


def _zoo_additive(sizes):
    return self_attention("zoo.layers.AdditiveAttention", lambda sizes: {"units": sizes.dim})(sizes)


def _keras_additive(sizes):
    made = layer("keras.layers.AdditiveAttention", dtype=sizes.policy)
    shapes = [(sizes.batch, sizes.length, sizes.dim)]
    return tensorflow_step(made, shapes, lambda layer, inputs: layer([inputs, inputs]), sizes.half)


_ZOO_HEADS = self_attention("zoo.layers.MultiHeadAttention", _heads)
_KERAS_HEADS = self_attention("keras.layers.MultiHeadAttention", _heads)


def _torch_heads(sizes):
    torch = package("torch")
    module = torch.nn.MultiheadAttention(sizes.dim, sizes.heads, batch_first=True)

    class SelfAttention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = module

        def forward(self, inputs):
            return self.attention(inputs, inputs, inputs, need_weights=False)[0]

    return torch_step(SelfAttention(), [(sizes.batch, sizes.length, sizes.dim)], sizes.half)


def _flat(sizes):
    """Returns the shapes of query, key and value with the heads in the batch."""
    return [(sizes.batch * sizes.heads, sizes.length, sizes.head_dim)] * 3


def _zoo_dot(sizes):
    made = layer("zoo.layers.ScaledDotProductAttention", dtype=sizes.policy)
    return tensorflow_step(made, _flat(sizes), lambda layer, q, k, v: layer(q, v, k), sizes.half)


def _keras_dot(sizes):
    made = layer("keras.layers.Attention", use_scale=True, dtype=sizes.policy)
    return tensorflow_step(made, _flat(sizes), lambda layer, q, k, v: layer([q, v, k]), sizes.half)


def _keras_dot_operation(sizes):
    shapes = [(sizes.batch, sizes.length, sizes.heads, sizes.head_dim)] * 3
    return tensorflow_step(package("keras").ops.dot_product_attention, shapes, half=sizes.half)


def _torch_dot(sizes, device="cpu"):
    function = package("torch.nn.functional").scaled_dot_product_attention
    shapes = [(sizes.batch, sizes.heads, sizes.length, sizes.head_dim)] * 3
    return torch_step(function, shapes, sizes.half, device)


def _zoo_dot_on_gpu(sizes):
    made = layer("zoo.layers.ScaledDotProductAttention", dtype=sizes.policy)
    return jax_step(lambda q, k, v: made(q, v, k), _flat(sizes), sizes.half, device="any" if sizes.anywhere else "gpu")


def _torch_dot_on_gpu(sizes):
    return _torch_dot(sizes, "cpu" if sizes.anywhere else "cuda")


_HALF = ", bfloat16"


def _half_target(ours, where=""):
    what = f"speed of bfloat16 against float32{where} (target for CPUs with AMX)"
    return Target(what, "speed", ours + _HALF, ours, 2.0)


def _case(name, title, sizes, contestants, targets):
    """Returns a case in which the first contestant, ours, also runs in bfloat16."""
    (ours, step, note), *peers = contestants
    entries = [(ours, step, note, sizes), (ours + _HALF, step, note, dataclasses.replace(sizes, half=True))]
    entries += [(*peer, sizes) for peer in peers]
    made = tuple(Contestant(name, step, sizes, note) for name, step, note, sizes in entries)
    targets = (Target(what, kind, ours, *rest) for what, kind, *rest in targets)
    return Case(name, title, made, (*targets, _half_target(ours)))


_LONG = Sizes(batch=1, length=4096, dim=512, heads=8)
_PROJECTED = "four projections"
_TORCH_HEADS = "torch.nn.MultiheadAttention"
_TORCH_DOT = "torch scaled_dot_product_attention"

# Layers whose cost should grow with T and not with T²: name, path of the class, options by sizes.
LINEAR = (
    (
        "sliding_window",
        "zoo.layers.SlidingWindowAttention",
        lambda sizes: {**_heads(sizes), "window": sizes.window},
    ),
    ("block_local", "zoo.layers.BlockLocalAttention", lambda sizes: {**_heads(sizes), "block_size": sizes.window}),
    ("linear", "zoo.layers.LinearAttention", _heads),
    ("performer", "zoo.layers.PerformerAttention", _heads),
)


def _linear_case(name, path, options, lengths=(4096, 16384)):
    """Returns a case of one layer at several lengths, each also in bfloat16."""
    short, long = names = [f"{path}, T={length}" for length in lengths]
    contestants = [
        Contestant(
            title + _HALF * half,
            self_attention(path, options),
            Sizes(batch=1, length=length, dim=512, heads=8, window=128, half=half),
            _PROJECTED,
        )
        for title, length in zip(names, lengths, strict=True)
        for half in (False, True)
    ]
    targets = [
        Target("slope of log time against log T", "time slope", long, short, 1.15),
        Target("slope of log extra memory against log T", "memory slope", long, short, 1.15),
        *(_half_target(title, f", T={length}") for title, length in zip(names, lengths, strict=True)),
    ]
    return Case(name, f"{name.replace('_', ' ')}, B1 D512 h8, window 128 where there is one", contestants, targets)


_ALL = (
    _case(
        "additive",
        "additive, B1 T=S=1024 D512",
        Sizes(batch=1, length=1024, dim=512),
        [
            ("zoo.layers.AdditiveAttention", _zoo_additive, "two projections"),
            ("keras.layers.AdditiveAttention", _keras_additive, "no projections"),
        ],
        [
            ("extra memory against Keras'", "memory", "keras.layers.AdditiveAttention", 40.0),
            ("speed against Keras'", "speed", "keras.layers.AdditiveAttention", 4.0),
        ],
    ),
    _case(
        "scaled_dot",
        "scaled dot, B1 T=S=4096, 8 heads × 64, without projections",
        _LONG,
        [
            ("zoo.layers.ScaledDotProductAttention", _zoo_dot, "heads in the batch"),
            ("keras.ops.dot_product_attention", _keras_dot_operation, "what keras.layers.MultiHeadAttention calls"),
            ("keras.layers.Attention", _keras_dot, "heads in the batch"),
            (_TORCH_DOT, _torch_dot, ""),
        ],
        [
            ("extra memory against Keras'", "memory", "keras.ops.dot_product_attention", 12.0),
            ("extra memory", "bytes", "", 140e6),
            ("speed against Keras'", "speed", "keras.ops.dot_product_attention", 1.5),
            ("speed against PyTorch's", "speed", _TORCH_DOT, 1.0),
        ],
    ),
    _case(
        "multi_head_long",
        "scaled dot within multi-head attention, B1 T=S=4096 D512 h8, with projections",
        _LONG,
        [
            ("zoo.layers.MultiHeadAttention", _ZOO_HEADS, _PROJECTED),
            ("keras.layers.MultiHeadAttention", _KERAS_HEADS, _PROJECTED),
            (_TORCH_HEADS, _torch_heads, _PROJECTED),
        ],
        [
            ("extra memory against Keras'", "memory", "keras.layers.MultiHeadAttention"),
            ("speed against Keras'", "speed", "keras.layers.MultiHeadAttention"),
            ("speed against PyTorch's", "speed", _TORCH_HEADS),
        ],
    ),
    _case(
        "multi_head",
        "multi-head, B8 T128 D512 h8",
        Sizes(batch=8, length=128, dim=512, heads=8),
        [
            ("zoo.layers.MultiHeadAttention", _ZOO_HEADS, _PROJECTED),
            ("keras.layers.MultiHeadAttention", _KERAS_HEADS, _PROJECTED),
            (_TORCH_HEADS, _torch_heads, _PROJECTED),
        ],
        [
            ("speed against Keras'", "speed", "keras.layers.MultiHeadAttention", 1.3),
            ("speed against PyTorch's", "speed", _TORCH_HEADS),
        ],
    ),
    *(_linear_case(*each) for each in LINEAR),
    Case(
        "gpu",
        "scaled dot on a GPU, B8 T=S=4096, 8 heads × 64, bfloat16, without projections",
        tuple(
            Contestant(name, step, Sizes(batch=8, length=4096, dim=512, heads=8, half=True), note, backend)
            for name, step, note, backend in (
                ("zoo.layers.ScaledDotProductAttention on JAX", _zoo_dot_on_gpu, "heads in the batch", "jax"),
                (_TORCH_DOT, _torch_dot_on_gpu, "", "torch"),
            )
        ),
        (Target("speed against PyTorch's", "speed", "zoo.layers.ScaledDotProductAttention on JAX", _TORCH_DOT, 0.95),),
    ),
)
CASES = {case.name: case for case in _ALL}
