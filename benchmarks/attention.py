"""Attention layers beside their peers, forward and backward: time and memory of each in a process of its own.

`python -m benchmarks.attention [--case NAME …] [--rounds N] [--memory_rounds N] [--fresh] [--before DIR]`

With `--before`, the layers of this checkout take turns with those of another one (`git worktree add --detach DIR
COMMIT`), both measured by the code of this one.
"""

import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.runner.case import Case, Contestant, Target
from benchmarks.runner.command import MeasurementParser, Report, load_or_measure_case
from benchmarks.runner.report import Column, Spread, case_section, commit

KERAS, PYTORCH = "benchmarks.peers.keras:attend", "benchmarks.peers.pytorch:attend"
HALF = ", bfloat16"
HEADS = {"num_heads": "heads", "key_dim": "head_dim"}  # options of layers, whose values are names of sizes
PROJECTED, IN_BATCH = "four projections", "heads in the batch"
EAGER_CALLS = 50
ON_PROCESSORS = {"CUDA_VISIBLE_DEVICES": "-1"}
TINY = {"tiny": True}
METHOD = (
    "Forward and backward, with the gradients of inputs and weights; TensorFlow graphs, PyTorch eager. Time:"
    " median of {rounds} turns A B A B (quartiles), each contestant in a process of its own. Extra memory: peak"
    " resident set of a pass less that right before it, median of {starts} fresh processes (quartiles)."
)


def sizes(batch: int, length: int, dim: int, heads: int = 1, window: int = 0, half: bool = False) -> dict[str, Any]:
    """Returns the sizes of a pass.

    Args:
        batch: B.
        length: T = S.
        dim: D, also the heads together.
        heads: N.
        window: Keys on one side in the window of local attention.
        half: Whether to use bfloat16, mixed for layers with weights, instead of float32.
    """
    return {"batch": batch, "length": length, "dim": dim, "heads": heads, "window": window, "half": half}


def keras_layer(
    path: str, options: Mapping, work: Mapping, axes: str = "BTD", note: str = "", name: str = ""
) -> Contestant:
    """Returns a contestant: a Keras layer on TensorFlow, on CPUs.

    Args:
        path: The class.
        options: Its options; see `benchmarks.peers.keras.make_layer`.
        work: Sizes; see `sizes`.
        axes: The axes of the inputs; see `benchmarks.peers.attention_pass.shapes`.
        note: A remark for the table.
        name: The name of the contestant. Default: the class.
    """
    work = {**work, "layer": {"class": path, **options}, "axes": axes}
    return Contestant(name or path, KERAS, work, note=note, variables=ON_PROCESSORS)


def _torch(name: str, axes: str, work: Mapping, note: str = "") -> Contestant:
    return Contestant(name, PYTORCH, {**work, "axes": axes}, note=note)


def _target(what: str, ours: str, peer: str = "", bound: float | None = None, kind: str = "speed") -> Target:
    return Target(what, (ours,), (peer,) if peer else (), bound, kind)


def _half_target(name: str, where: str = "") -> Target:
    what = f"speed of bfloat16 against float32{where} (target for CPUs with AMX)"
    return _target(what, name + HALF, name, 2.0)


def _case(name: str, title: str, ours: Contestant, peers: Sequence[Contestant], *targets: tuple) -> Case:
    """Returns a case in which our layer also runs in bfloat16.

    Each target is the arguments of `_target` without `ours`.
    """
    half = dataclasses.replace(ours, name=ours.name + HALF, work={**ours.work, "half": True})
    against_peers = [_target(what, ours.name, *arguments) for what, *arguments in targets]
    return Case(name, title, (ours, half, *peers), (*against_peers, _half_target(ours.name)), tiny=TINY)


LONG = sizes(batch=1, length=4096, dim=512, heads=8)
SHORT = sizes(batch=8, length=128, dim=512, heads=8)
ADDITIVE = sizes(batch=1, length=1024, dim=512)
KERAS_DOT, TORCH_DOT = "keras.ops.dot_product_attention", "torch scaled_dot_product_attention"
KERAS_HEADS, TORCH_HEADS = "keras.layers.MultiHeadAttention", "torch.nn.MultiheadAttention"


def _multi_head(name: str, title: str, work: Mapping, *targets: tuple) -> Case:
    ours = keras_layer("zoo.layers.MultiHeadAttention", HEADS, work, note=PROJECTED)
    peers = [keras_layer(KERAS_HEADS, HEADS, work, note=PROJECTED), _torch(TORCH_HEADS, "BTD", work, PROJECTED)]
    return _case(name, title, ours, peers, *targets, ("speed against PyTorch's", TORCH_HEADS))


def _causal(name: str, length: int) -> Case:
    work = {**LONG, "length": length, "call": {"use_causal_mask": True}}
    ours, keras_heads = (
        keras_layer(path, HEADS, work, note=PROJECTED) for path in ("zoo.layers.MultiHeadAttention", KERAS_HEADS)
    )
    return _case(
        name,
        f"multi-head attention with a causal mask, B1 T=S={length} D512 h8, with projections",
        ours,
        [keras_heads],
        ("extra memory against Keras'", KERAS_HEADS, None, "memory"),
        ("speed against Keras'", KERAS_HEADS, 1.5),
    )


def _grouped_query() -> Case:
    work = sizes(batch=8, length=256, dim=512, heads=8)
    theirs = {"num_query_heads": "heads", "num_key_value_heads": 2, "head_dim": "head_dim"}
    return _case(
        "grouped_query",
        "grouped-query attention, B8 T256 D512 h8 of 2 groups, with projections",
        keras_layer("zoo.layers.GroupedQueryAttention", {**HEADS, "num_key_value_heads": 2}, work, note=PROJECTED),
        [keras_layer("keras.layers.GroupQueryAttention", theirs, work, note=PROJECTED)],
        ("extra memory against Keras'", "keras.layers.GroupQueryAttention", None, "memory"),
        ("speed against Keras'", "keras.layers.GroupQueryAttention"),
    )


# Layers whose cost should grow linearly with T: class and further options by the name of the case.
LINEAR: Mapping[str, tuple[str, Mapping]] = {
    "sliding_window": ("zoo.layers.SlidingWindowAttention", {"window": "window"}),
    "block_local": ("zoo.layers.BlockLocalAttention", {"block_size": "window"}),
    "linear": ("zoo.layers.LinearAttention", {}),
    "performer": ("zoo.layers.PerformerAttention", {}),
}


def _linear(name: str, path: str, options: Mapping, lengths: tuple[int, int] = (4096, 16384)) -> Case:
    """Returns a case of one layer at two lengths, each also in bfloat16."""
    names = {length: f"{path}, T={length}" for length in lengths}
    short, long = names.values()
    contestants = []
    for length, half in itertools.product(lengths, (False, True)):
        work = sizes(batch=1, length=length, dim=512, heads=8, window=128, half=half)
        title = names[length] + HALF * half
        contestants.append(keras_layer(path, {**HEADS, **options}, work, note=PROJECTED, name=title))
    targets = [
        _target("slope of log time against log T", long, short, 1.15, "time slope"),
        _target("slope of log extra memory against log T", long, short, 1.15, "memory slope"),
        *(_half_target(title, f", T={length}") for length, title in names.items()),
    ]
    title = f"{name.replace('_', ' ')}, B1 D512 h8, window 128 where there is one"
    return Case(name, title, tuple(contestants), tuple(targets), tiny=TINY)


def _eager() -> Case:
    work = {**sizes(batch=1, length=10, dim=64, heads=4), "calls": EAGER_CALLS}
    pairs = {
        ("zoo.layers.MultiHeadAttention", KERAS_HEADS): (HEADS, HEADS, 1 / 1.15),
        ("zoo.layers.AdditiveAttention", "keras.layers.AdditiveAttention"): ({"units": "dim"}, {}, 1 / 1.5),
        ("zoo.layers.DotAttention", "keras.layers.Attention"): ({}, {}, 1 / 1.5),
    }
    contestants, targets = [], []
    for paths, (*options, bound) in pairs.items():
        for path, its_options in zip(paths, options, strict=True):
            contestant = keras_layer(path, its_options, work)
            contestants.append(dataclasses.replace(contestant, adapter="benchmarks.peers.keras:attend_eagerly"))
        targets.append(_target(f"speed against {paths[1]}", *paths, bound))
    title = f"{EAGER_CALLS} calls as they are, forward alone, B1 T=S=10 D64 h4"
    return Case("eager", title, tuple(contestants), tuple(targets), tiny={**TINY, "calls": 2})


def _gpu() -> Case:
    work = {**sizes(batch=8, length=4096, dim=512, heads=8, half=True), "device": "gpu"}
    ours = Contestant(
        "zoo.layers.ScaledDotProductAttention on JAX",
        "benchmarks.peers.keras:attend_on_jax",
        {**work, "layer": {"class": "zoo.layers.ScaledDotProductAttention"}, "axes": "NTH"},
        note=IN_BATCH,
        variables={"KERAS_BACKEND": "jax"},
    )
    return Case(
        "gpu",
        "scaled dot on a GPU, B8 T=S=4096, 8 heads × 64, bfloat16, without projections",
        (ours, _torch(TORCH_DOT, "BNTH", work)),
        (_target("speed against PyTorch's", ours.name, TORCH_DOT, 0.95),),
        tiny=TINY,
    )


_CASES = (
    _case(
        "additive",
        "additive, B1 T=S=1024 D512",
        keras_layer("zoo.layers.AdditiveAttention", {"units": "dim"}, ADDITIVE, note="two projections"),
        [keras_layer("keras.layers.AdditiveAttention", {}, ADDITIVE, note="no projections")],
        ("extra memory against Keras'", "keras.layers.AdditiveAttention", 40.0, "memory"),
        ("speed against Keras'", "keras.layers.AdditiveAttention", 4.0),
    ),
    _case(
        "scaled_dot",
        "scaled dot, B1 T=S=4096, 8 heads × 64, without projections",
        keras_layer("zoo.layers.ScaledDotProductAttention", {}, LONG, "NTH", IN_BATCH),
        [
            Contestant(
                KERAS_DOT,
                KERAS,
                {**LONG, "function": KERAS_DOT, "axes": "BTNH"},
                note="what keras.layers.MultiHeadAttention calls",
                variables=ON_PROCESSORS,
            ),
            keras_layer("keras.layers.Attention", {"use_scale": True}, LONG, "NTH", IN_BATCH),
            _torch(TORCH_DOT, "BNTH", LONG),
        ],
        ("extra memory against Keras'", KERAS_DOT, 12.0, "memory"),
        ("extra memory", "", 140e6, "bytes"),
        ("speed against Keras'", KERAS_DOT, 1.5),
        ("speed against PyTorch's", TORCH_DOT, 1.0),
    ),
    _multi_head(
        "multi_head_long",
        "scaled dot within multi-head attention, B1 T=S=4096 D512 h8, with projections",
        LONG,
        ("extra memory against Keras'", KERAS_HEADS, None, "memory"),
        ("speed against Keras'", KERAS_HEADS),
    ),
    _causal("causal_1024", 1024),
    _causal("causal", 4096),
    _multi_head("multi_head", "multi-head, B8 T128 D512 h8", SHORT, ("speed against Keras'", KERAS_HEADS, 1.3)),
    _grouped_query(),
    *(_linear(name, *layer) for name, layer in LINEAR.items()),
    _eager(),
    _gpu(),
)
CASES = {case.name: case for case in _CASES}


def beside(case: Case, checkout: Path) -> Case:
    """Returns a case of our layers in float32, each beside that of another checkout."""
    checkout = checkout.resolve()
    contestants, targets, before = [], [], commit(checkout)
    for ours in case.contestants:
        if ours.adapter != KERAS or not ours.name.startswith("zoo.") or ours.work["half"]:
            continue
        other = dataclasses.replace(ours, name=f"{ours.name}, {before}", work={**ours.work, "checkout": str(checkout)})
        contestants += [ours, other]
        targets += [
            _target(f"{what}, {ours.name}", ours.name, other.name, kind=kind)
            for kind, what in (("speed", "speed"), ("processor", "processor time"), ("memory", "extra memory"))
        ]
    title = f"{case.title}, beside commit {before}"
    return Case(f"{case.name}_beside", title, tuple(contestants), tuple(targets), tiny=TINY)


def _memory(contestant: Contestant, result: Mapping[str, Any]) -> str:
    if contestant.work.get("device") == "gpu":  # whose memory is not that of the process
        return ""
    return Spread.of(result["extra_memory"]).text("MB", 1e-6)


COLUMNS = (
    Column.of("name", "layer"),
    Column.of("note", "includes"),
    Column.seconds("time"),
    Column("processor time", lambda _, result: Spread.of(result["processor"]).text("ms", 1000)),
    Column("extra memory", _memory),
)


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("attention", __doc__, rounds=15)
    parser.add_count("memory_rounds", 3, "processes whose memory is measured, each")
    parser.add_cases(CASES)
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout, to compare this one with")
    options = parser.parse_args(arguments)
    if options.before is not None and not (options.before / "zoo" / "layers").is_dir():
        parser.error(f"--before must be a checkout of this project. Received: {options.before}")
    settings = {"rounds": options.rounds, "starts": options.memory_rounds}
    report = Report(options)
    report.begin(METHOD.format(**settings))
    cases = [CASES[name] for name in options.case or CASES]
    if options.before is not None:
        cases = [case for case in (beside(case, options.before) for case in cases) if case.contestants]
    for case in cases:
        measurements = load_or_measure_case("attention", case, options, **settings)
        report.add(case_section(case, measurements, COLUMNS))
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
