"""Which contestants train what, and what ours should reach, as data."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import python_of

PRECISIONS = ("float32", "bfloat16")
OURS = "zoo"


@dataclass(frozen=True)
class Contestant:
    """One of those that are compared.

    Args:
        name: What it is.
        module: Its module in `benchmarks/training/peers`, or `"ours"`.
        peer: Its environment, one of `benchmarks.peers.REQUIREMENTS`; none for ours.
        precision: One of `PRECISIONS`.
        options: What its task has besides the case's.
        note: What it does differently, for a fair reading.
    """

    name: str
    module: str
    peer: str = ""
    precision: str = "float32"
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def label(self) -> str:
        """Name and precision."""
        return f"{self.name}, {self.precision}"

    def command(self) -> list[str]:
        """Returns the program and its arguments but for the task; an environment that is missing is made."""
        if self.module == "ours":
            return [sys.executable, "-m", "benchmarks.training.ours"]
        return [python_of(self.peer), str(Path(__file__).parent / "peers" / f"{self.module}.py")]


@dataclass(frozen=True)
class Target:
    """How many times faster the fastest of ours should be than the fastest of some peers.

    Args:
        what: What is compared, for the reader.
        ours: Precisions of ours that count.
        peers: Precisions of peers that count.
        bound: What to reach.
        within: Beginning of the names of the peers that count.
    """

    what: str
    ours: tuple[str, ...]
    peers: tuple[str, ...]
    bound: float
    within: str = ""


@dataclass(frozen=True)
class Case:
    """Contestants on one task.

    Args:
        name: Name for the command line.
        title: What they do.
        task: Sizes and the like, which all contestants are told.
        contestants: Ours first.
        targets: What ours should reach.
        turn: What a turn is.
        warm_up: Turns before those that count.
    """

    name: str
    title: str
    task: Mapping[str, Any]
    contestants: tuple[Contestant, ...]
    targets: tuple[Target, ...]
    turn: str = "step"
    warm_up: int = 2

    @property
    def symbols(self) -> int:
        """Target symbols in a turn."""
        return self.task["symbols"] if "symbols" in self.task else self.task["batch"] * self.task["target_length"]

    def among(self, wanted: Sequence[str]) -> "Case":
        """Returns the case with some of its contestants.

        Args:
            wanted: How their labels begin; all if there is none.
        """
        kept = tuple(each for each in self.contestants if not wanted or each.label.startswith(tuple(wanted)))
        return dataclasses.replace(self, contestants=kept)

    def task_of(self, contestant: Contestant, threads: int, tiny: bool = False) -> dict[str, Any]:
        """Returns what a contestant is told.

        Args:
            contestant: The contestant.
            threads: How many threads it may have.
            tiny: Whether sizes are tiny, to see that it runs.
        """
        sizes = {"batch": 2, "source_length": 3, "target_length": 5, "vocabulary": 50}
        own = {"precision": contestant.precision, "threads": threads, "compile": False, **contestant.options}
        return {**self.task, **(sizes if tiny and "text" not in self.task else {}), **own}


def _each_precision(contestant, precisions=PRECISIONS):
    return [dataclasses.replace(contestant, precision=precision) for precision in precisions]


_COMMON = {"dropout": 0.1, "label_smoothing": 0.1}
_BLOCKS = "pre-norm, one matrix for all embeddings"


def _transformer(name, title, sizes, peers, targets, in_float32=()):
    """Returns a case of a Transformer of given sizes; some peers have no other precision than float32."""
    options = {
        "num_layers": sizes["layers"],
        "model_dim": sizes["dim"],
        "intermediate_dim": sizes["hidden"],
        "num_heads": sizes["heads"],
        "normalize_first": True,
    }
    ours = Contestant(
        OURS, "ours", options={"model": "transformer_tiny", "options": options}, note=f"{_BLOCKS}; metrics"
    )
    contestants = [each for one in (ours, *peers) for each in _each_precision(one)]
    return Case(name, title, {**_COMMON, **sizes}, (*contestants, *in_float32), targets)


def _recurrent(name, model, network, layers):
    """Returns a case of a recurrent translator of the zoo's default sizes."""
    sizes = {"batch": 64, "source_length": 16, "target_length": 16, "vocabulary": 6000, "units": 256, "layers": layers}
    plain = Contestant(f"PyTorch, plain {network}", "pytorch_recurrent", "pytorch", options={"network": network})
    plain = dataclasses.replace(plain, note="cells in a Python loop; fused Adam")
    compiled = dataclasses.replace(
        plain, name=f"{plain.name}, torch.compile", options={**plain.options, "compile": True}
    )
    ours = Contestant(OURS, "ours", options={"model": model, "options": {}}, note="loop in the graph; metrics")
    opennmt = Contestant("OpenNMT-tf, Luong", "opennmt_tf", "opennmt_tf", options={"network": "luong"})
    opennmt = dataclasses.replace(opennmt, note="loop in the graph; no bfloat16")
    return Case(
        name,
        f"`{model}`, all sizes 256, vocabulary 6,000: batch of 64 × (16 + 16)",
        {"dropout": 0.3, "label_smoothing": 0.1, **sizes},
        (*(each for one in (ours, plain, compiled) for each in _each_precision(one)), opennmt),
        (
            Target("float32", ("float32",), ("float32",), 2.0),
            Target("each at its fastest precision", PRECISIONS, PRECISIONS, 2.0),
        ),
    )


_NN = Contestant("PyTorch nn.Transformer", "pytorch", "pytorch", note=f"{_BLOCKS}; fused Adam")
_KERASHUB = Contestant(
    "KerasHub", "kerashub", "kerashub", note=f"{_BLOCKS}; drops attention weights and inside the blocks as well"
)

_MARIAN = Contestant(
    "Hugging Face Marian", "hugging_face", "hugging_face", note="post-norm, one matrix for all embeddings; fused Adam"
)

_OPENNMT = Contestant(
    "OpenNMT-tf",
    "opennmt_tf",
    "opennmt_tf",
    options={"network": "transformer"},
    note=f"{_BLOCKS}; a bias of the output; no bfloat16",
)
_JOEY = Contestant(
    "Joey NMT",
    "joey_nmt",
    "joey_nmt",
    note=f"{_BLOCKS}; drops attention weights and inside the blocks as well; half precision on GPUs alone",
)
_GARDEN = Contestant("TF Model Garden", "model_garden", "model_garden", note=_BLOCKS)

_TINY = {"batch": 128, "source_length": 16, "target_length": 16, "vocabulary": 10_000}
_TINY |= {"layers": 4, "dim": 128, "hidden": 256, "heads": 4}
_WIDE = {"batch": 64, "source_length": 32, "target_length": 32, "vocabulary": 8000}
_WIDE |= {"layers": 4, "dim": 256, "hidden": 1024, "heads": 8}

_ALL = (
    _transformer(
        "transformer_step",
        "Transformer, 4 + 4 layers, D 128, inside 256, 4 heads, vocabulary 10,000: batch of 128 × (16 + 16)",
        _TINY,
        (
            _NN,
            dataclasses.replace(_NN, name=f"{_NN.name}, torch.compile", options={"compile": True}),
            _KERASHUB,
            dataclasses.replace(_KERASHUB, name=f"{_KERASHUB.name}, XLA", options={"compile": True}),
            _MARIAN,
            _GARDEN,
        ),
        (
            Target("float32", ("float32",), ("float32",), 1.3),
            Target("each at its fastest precision", PRECISIONS, PRECISIONS, 2.0),
        ),
        in_float32=(_OPENNMT, _JOEY),
    ),
    _transformer(
        "wide_step",
        "Transformer, 4 + 4 layers, D 256, inside 1024, 8 heads, vocabulary 8,000: batch of 64 × (32 + 32)",
        _WIDE,
        (_KERASHUB,),
        (
            Target("float32", ("float32",), ("float32",), 1.3),
            Target("fastest precision against KerasHub in mixed_bfloat16", PRECISIONS, ("bfloat16",), 2.5, "KerasHub"),
        ),
    ),
    _recurrent("rnnsearch_step", "rnnsearch", "rnnsearch", layers=1),
    _recurrent("luong_step", "luong_general", "luong", layers=2),
)
CASES = {case.name: case for case in _ALL}


def epoch(task: Mapping[str, Any], title: str) -> Case:
    """Returns the case of an epoch of a text, with the contestants of `transformer_step` that need no compiler.

    Args:
        task: Its folder, sizes, target `symbols` and the like; see `benchmarks.training.epoch`.
        title: What it is.
    """
    steps = CASES["transformer_step"]
    return dataclasses.replace(
        steps,
        name="epoch",
        title=title,
        task={**_COMMON, **{name: steps.task[name] for name in ("layers", "dim", "hidden", "heads")}, **task},
        contestants=tuple(each for each in steps.contestants if not each.options.get("compile")),
        targets=(Target("each at its fastest precision", PRECISIONS, PRECISIONS, 3.0),),
        turn="epoch",
        warm_up=0,
    )
