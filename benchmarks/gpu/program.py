"""The parts of a compiled program of XLA, read from its text: kernels, their bytes, and slow operations."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
LARGE = 2**20
"""The smallest number of bytes of a large tensor."""
# Operations that start no kernel themselves.
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
    """Returns the tensors of a result such as `f32[2,3]{1,0}`, or of a tuple of results."""
    pairs = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", text)
    return tuple(Tensor(dtype, tuple(int(size) for size in sizes.split(",") if size)) for dtype, sizes in pairs)


@dataclass(frozen=True)
class Instruction:
    """An instruction: its name, results and operation, and the rest of its text, which begins with the operands."""

    name: str
    results: tuple[Tensor, ...]
    operation: str
    rest: str

    @property
    def kind(self) -> str:
        """The operation; of a fusion with its kind, of a custom call with its target."""
        pattern = {"fusion": r"kind=(\w+)", "custom-call": r'custom_call_target="([^"]+)"'}.get(self.operation)
        match = re.search(pattern, self.rest) if pattern else None
        return f"{self.operation} {match.group(1)}" if match else self.operation

    @property
    def origin(self) -> str:
        """The name of the operation in the traced program; empty if it has none."""
        match = re.search(r'op_name="([^"]*)"', self.rest)
        return match.group(1) if match else ""

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
        """The kernels in order, and the bytes that each reads and writes; the body of a loop counts once."""
        inside = {
            name
            for computation in self.computations
            for instruction in computation.instructions
            if instruction.operation != "call"
            for name in _CALLED.findall(instruction.rest)
        }
        kernels = []
        for computation in self.computations:
            if computation.name in inside:
                continue
            sizes = {one.name: sum(part.bytes for part in one.results) for one in computation.instructions}
            for one in computation.instructions:
                if one.operation not in _NOTHING and not one.operation.endswith("-done"):
                    kernels.append((one, sizes[one.name] + sum(sizes.get(name, 0) for name in set(one.operands))))
        return kernels

    def kinds(self) -> Counter[str]:
        """Returns the number of kernels of each kind."""
        return Counter(kernel.kind for kernel, _ in self.kernels)

    def operations(self, names: Sequence[str]) -> dict[str, int]:
        """Returns how often operations of these names occur, including within fusions."""
        counts = Counter(one.operation for part in self.computations for one in part.instructions)
        return {name: counts[name] for name in names}

    def on_the_host(self) -> list[str]:
        """Returns the kinds of the kernels that wait for the host."""
        return [kernel.kind for kernel, _ in self.kernels if any(text in kernel.kind.lower() for text in _HOST)]

    def written(self) -> Counter[str]:
        """Returns the bytes that kernels write, by type."""
        written: Counter[str] = Counter()
        for kernel, _ in self.kernels:
            for part in kernel.results:
                written[part.dtype] += part.bytes
        return written

    def large(self, dtype: str, without: Sequence[tuple[int, ...]] = ()) -> Counter[str]:
        """Returns how often kernels write large tensors of a type, by shape, except for the shapes `without`."""
        return Counter(
            str(part)
            for kernel, _ in self.kernels
            for part in kernel.results
            if part.dtype == dtype and part.bytes >= LARGE and part.shape not in without
        )

    def logits(self, tokens: int, vocabulary: int) -> Counter[str]:
        """Returns how often kernels write a tensor of the size of the logits, by type."""
        return Counter(
            part.dtype
            for kernel, _ in self.kernels
            for part in kernel.results
            if prod(part.shape) == tokens * vocabulary and vocabulary in part.shape
        )

    def parts(self) -> dict[str, tuple[int, float]]:
        """Returns for each part of a step the number of its kernels, and the gigabytes that they read and write."""
        parts: dict[str, tuple[int, float]] = {}
        for kernel, size in self.kernels:
            count, total = parts.get(part := part_of(kernel.origin), (0, 0.0))
            parts[part] = count + 1, total + size / 1e9
        return dict(sorted(parts.items(), key=lambda part: -part[1][1]))

    def heaviest(self, count: int) -> list[Mapping[str, Any]]:
        """Returns the `count` kernels that read and write the most bytes."""
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
    """Returns the part of a step to which an operation belongs: forward or backward, and layers without their numbers.

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
        if match := _COMPUTATION.match(line):
            computation = Computation(match.group(2))
            yield computation
        elif computation is not None and (match := _INSTRUCTION.match(line)):
            name, results, operation, rest = match.groups()
            computation.instructions.append(Instruction(name, tensors(results), operation, rest))


def products(text: str) -> Counter[str]:
    """Returns the number of matrix products of a traced program (StableHLO), by the types of their operands."""
    pairs = re.findall(r"dot_general .*: \(tensor<([^>]*)>, tensor<([^>]*)>\)", text)
    return Counter(" × ".join(part.split("x")[-1] for part in pair) for pair in pairs)
