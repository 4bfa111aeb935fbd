"""What a compiled program of XLA consists of, read from its text: kernels, their bytes, and what a GPU dislikes."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
LARGE = 2**20
"""Bytes from which on a tensor counts as large."""
# They run no kernel.
_NOTHING = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "while",
    "call",
    "conditional",
}
_HOST = ("callback", "infeed", "outfeed", "send", "recv")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")


@dataclass(frozen=True)
class Tensor:
    """Type and sizes of a result."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return BYTES.get(self.dtype, 1) * prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def tensors(text: str) -> tuple[Tensor, ...]:
    """Returns the tensors of a result that is written as `f32[2,3]{1,0}` or as a tuple of such."""
    found = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", text)
    return tuple(Tensor(dtype, tuple(int(size) for size in sizes.split(",") if size)) for dtype, sizes in found)


@dataclass(frozen=True)
class Instruction:
    """An instruction: its name, results, operation, and what follows the parenthesis that opens its operands."""

    name: str
    results: tuple[Tensor, ...]
    operation: str
    rest: str

    @property
    def kind(self) -> str:
        """The operation; of a fusion how it runs, and of a call what is called."""
        wanted = {"fusion": r"kind=(\w+)", "custom-call": r'custom_call_target="([^"]+)"'}.get(self.operation)
        found = re.search(wanted, self.rest) if wanted else None
        return f"{self.operation} {found.group(1)}" if found else self.operation

    @property
    def origin(self) -> str:
        """What it was in the program that was traced."""
        found = re.search(r'op_name="([^"]*)"', self.rest)
        return found.group(1) if found else ""

    @property
    def operands(self) -> list[str]:
        return re.findall(r"%([\w.\-]+)", self.rest.split("), ")[0])


@dataclass
class Computation:
    name: str
    instructions: list[Instruction] = field(default_factory=list)


class Program:
    """A compiled program, from its text."""

    def __init__(self, text: str):
        self.computations = list(_parsed(text))

    @cached_property
    def kernels(self) -> list[tuple[Instruction, int]]:
        """What is run one after the other, and how many bytes each reads and writes; loops count as one turn."""
        inside = {
            name
            for computation in self.computations
            for instruction in computation.instructions
            if instruction.operation != "call"
            for name in _CALLED.findall(instruction.rest)
        }
        found = []
        for computation in self.computations:
            if computation.name in inside:
                continue
            sizes = {each.name: sum(part.bytes for part in each.results) for each in computation.instructions}
            for each in computation.instructions:
                if each.operation not in _NOTHING and not each.operation.endswith("-done"):
                    found.append((each, sizes[each.name] + sum(sizes.get(name, 0) for name in set(each.operands))))
        return found

    def kinds(self) -> Counter[str]:
        """Returns how many kernels there are of each kind."""
        return Counter(kernel.kind for kernel, _ in self.kernels)

    def operations(self, names: Sequence[str]) -> dict[str, int]:
        """Returns how often operations occur, within fusions, too."""
        everywhere = Counter(each.operation for part in self.computations for each in part.instructions)
        return {name: everywhere[name] for name in names}

    def on_the_host(self) -> list[str]:
        """Returns what waits for the host."""
        return [kernel.kind for kernel, _ in self.kernels if any(text in kernel.kind.lower() for text in _HOST)]

    def written(self) -> Counter[str]:
        """Returns the bytes that kernels write, by type."""
        found: Counter[str] = Counter()
        for kernel, _ in self.kernels:
            for part in kernel.results:
                found[part.dtype] += part.bytes
        return found

    def large(self, dtype: str, without: Sequence[tuple[int, ...]] = ()) -> Counter[str]:
        """Returns how often kernels write large tensors of a type, by shape, but for shapes such as the weights'."""
        return Counter(
            str(part)
            for kernel, _ in self.kernels
            for part in kernel.results
            if part.dtype == dtype and part.bytes >= LARGE and part.shape not in without
        )

    def logits(self, tokens: int, vocabulary: int) -> Counter[str]:
        """Returns how often kernels write a number for each token of each place, by type."""
        return Counter(
            part.dtype
            for kernel, _ in self.kernels
            for part in kernel.results
            if prod(part.shape) == tokens * vocabulary and vocabulary in part.shape
        )

    def parts(self) -> dict[str, tuple[int, float]]:
        """Returns the kernels of each part of the traced program, and the gigabytes that they read and write."""
        found: dict[str, tuple[int, float]] = {}
        for kernel, size in self.kernels:
            count, together = found.get(part := part_of(kernel.origin), (0, 0.0))
            found[part] = count + 1, together + size / 1e9
        return dict(sorted(found.items(), key=lambda part: -part[1][1]))

    def heaviest(self, count: int) -> list[Mapping[str, Any]]:
        """Returns the kernels that read and write most."""
        ordered = sorted(self.kernels, key=lambda kernel: -kernel[1])[:count]
        return [
            {
                "kind": kernel.kind,
                "megabytes": size / 1e6,
                "writes": ", ".join(map(str, kernel.results)),
                "of": kernel.origin,
            }
            for kernel, size in ordered
        ]


def part_of(origin: str) -> str:
    """Returns which part of a step an operation is of: forward or backward, and the layers without their numbers.

    >>> part_of("jit(train_step)/transpose(jvp(encoder_block_3))/feed_forward/dot_general")
    'backward encoder_block/feed_forward'
    """
    names = re.sub(r"^jit\([^()]*\)/?", "", origin)
    way = "backward" if "transpose(" in names else "forward" if "jvp(" in names else "other"
    layers = [re.sub(r"_\d+$", "", name) for name in re.sub(r"transpose\(|jvp\(|\)", "", names).split("/")[:-1]]
    return f"{way} {'/'.join(name for name in layers if name and not name.startswith('jit('))[:60]}".strip()


def _parsed(text: str) -> Iterator[Computation]:
    computation = None
    for line in text.splitlines():
        if begun := _COMPUTATION.match(line):
            computation = Computation(begun.group(2))
            yield computation
        elif computation is not None and (found := _INSTRUCTION.match(line)):
            name, results, operation, rest = found.groups()
            computation.instructions.append(Instruction(name, tensors(results), operation, rest))


def products(text: str) -> Counter[str]:
    """Returns how many products of matrices a traced program has (StableHLO), by the types that they multiply."""
    found = re.findall(r"dot_general .*: \(tensor<([^>]*)>, tensor<([^>]*)>\)", text)
    return Counter(" × ".join(part.split("x")[-1] for part in pair) for pair in found)
