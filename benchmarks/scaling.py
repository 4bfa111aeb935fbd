"""Predicts the cost of training on many devices: step time, memory, communication, and how many devices are worthwhile.

`python -m benchmarks.scaling [--model NAME] [--hardware NAME …] [--tokens N] [--length N] [--utilization X]`

Nothing is measured: the figures of the hardware are those of its makers. For P weights, a batch of n target tokens and
a mesh of d · m devices, of which m share the weights (tensor parallel) and d the batch (data parallel), a device

- computes `3 F n / (d m)` operations: forward, and twice as many backward; `zoo.cost` returns F for a token;
- sends `2 (d − 1) / d · 4 P / m` bytes for its gradients in float32, and `2 (m − 1) / m · 2 · 2 R D n / d` for the sums
  of the R products of a forward pass that are distributed over devices, D features in bfloat16 each, and for as many
  in the backward pass (a ring moves each byte `2 (k − 1) / k` times between k devices);
- stores `4 P / m` bytes for the weights and as many for the gradients, `8 P / m` for Adam's moments (divided by d if
  these are sharded), and at most all results of a forward pass, in bfloat16.

The time of a step is the sum of computation and communication; their overlap makes it shorter.
"""

import dataclasses
import itertools
import sys
from collections.abc import Sequence

import zoo
from benchmarks.runner.command import CommandParser, write_page
from benchmarks.runner.report import table
from training.hardware.peaks import PEAKS
from zoo.errors import InputError

DEVICES = tuple(2**power for power in range(10))
SHARES = (1, 2, 4, 8)
PAYS = 0.5
"""A mesh is worthwhile if its devices do at least this share of the work of as many single ones."""
VOCABULARY = 32_000


@dataclasses.dataclass(frozen=True)
class Hardware:
    """Figures of a device and its network, from its maker.

    Attributes:
        peak: Operations per second, dense, in bfloat16; an addition and a multiplication are two.
        memory: Bytes.
        link: Bytes per second that a device sends within its group, in one direction.
        group: The number of devices in a group.
        network: Bytes per second that a device sends to other groups.
        latency: Seconds of a step of a collective operation without data; an assumption.
        source: The source of the figures.
    """

    peak: float
    memory: float
    link: float
    group: int
    network: float
    latency: float
    source: str


HARDWARE = {
    "a100": Hardware(PEAKS["a100"], 80e9, 300e9, 8, 25e9, 5e-6, "data sheets of NVIDIA A100 80GB SXM and DGX A100"),
    "h100": Hardware(PEAKS["h100"], 80e9, 450e9, 8, 50e9, 5e-6, "data sheets of NVIDIA H100 SXM and DGX H100"),
    "h200": Hardware(PEAKS["h200"], 141e9, 450e9, 8, 50e9, 5e-6, "data sheets of NVIDIA H200 SXM and DGX H200"),
    "tpu-v5e": Hardware(PEAKS["tpu-v5e"], 16e9, 200e9, 256, 3.1e9, 1e-6, "cloud.google.com/tpu/docs/v5e"),
    "tpu-v5p": Hardware(PEAKS["tpu-v5p"], 95e9, 600e9, 8960, 6.25e9, 1e-6, "cloud.google.com/tpu/docs/v5p"),
}


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of a model.

    Attributes:
        weights: P.
        operations: F, additions and multiplications of a forward pass for a target token and its share of the source.
        activations: Bytes of all results of a forward pass for a target token, in bfloat16.
        features: D.
        sums: R, products of a forward pass that are distributed over the devices that share the weights: one for each
            attention and each feed-forward layer.
    """

    weights: int
    operations: float
    activations: float
    features: int
    sums: int


@dataclasses.dataclass(frozen=True)
class Mesh:
    """d · m devices: `data` parts of the batch, each on `model` devices that share the weights."""

    data: int
    model: int

    @property
    def devices(self) -> int:
        return self.data * self.model

    def __str__(self) -> str:
        return f"data={self.data},model={self.model}"


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a training on a mesh.

    Attributes:
        compute: Seconds of computation.
        wire: Seconds of communication.
        sent: Bytes that a device sends.
        memory: The largest number of bytes that a device stores.
    """

    compute: float
    wire: float
    sent: float
    memory: float

    @property
    def seconds(self) -> float:
        return self.compute + self.wire


def work_of(name: str, length: int, vocabulary: int) -> Work:
    """Returns the work of a Transformer that translates sentences of `length` tokens; `InputError` for others."""
    if not name.startswith("transformer_") or zoo.get_spec(name).task != "seq2seq":
        raise InputError(f"--model is a Transformer that translates. Received: {name}.")
    model = zoo.create_model(name, source_vocab_size=vocabulary, target_vocab_size=vocabulary)
    cost, options = zoo.cost(model, query_length=length), model.options
    return Work(
        weights=cost.weights,
        operations=(cost.multiplications + cost.additions) / length,
        activations=cost.bytes / 2 / length,  # half as many in bfloat16
        features=options.model_dim,
        sums=5 * options.num_layers,  # two of an encoder layer, three of a decoder layer
    )


def predict(
    work: Work, hardware: Hardware, mesh: Mesh, tokens: float, utilization: float = 1.0, sharded_moments: bool = False
) -> Step:
    """Returns the cost of a step for each device.

    Args:
        work: The model.
        hardware: The devices.
        mesh: Their mesh, in which those that share weights are neighbours.
        tokens: Target tokens in the batch of all devices.
        utilization: The share of the peak that a single device reaches.
        sharded_moments: Whether each part of the batch stores its share of the optimizer's moments only.
    """
    own = tokens / mesh.data
    gradients = 4 * work.weights / mesh.model
    activations = 2 * 2 * work.sums * work.features * own
    calls = 2 * work.sums if mesh.model > 1 else 0
    within, across = _ways(hardware, mesh)
    wire = (
        _ring(activations, mesh.model, hardware.link if mesh.model <= hardware.group else hardware.network)
        + _ring(gradients, within, hardware.link)
        # Each device of a group sums its own share with those of the other groups.
        + _ring(gradients / within, across, hardware.network)
        + hardware.latency * (calls * (mesh.model - 1) + 2 * (within - 1) + 2 * (across - 1))
    )
    return Step(
        compute=3 * work.operations * tokens / mesh.devices / (utilization * hardware.peak),
        wire=wire,
        sent=_moved(activations, mesh.model) + _moved(gradients, mesh.data),
        memory=2 * gradients
        + 2 * gradients / (mesh.data if sharded_moments else 1)
        + work.activations * own / mesh.model,
    )


def _ways(hardware: Hardware, mesh: Mesh) -> tuple[int, int]:
    """Returns the number of parts of the batch in one group of devices, and the number of such groups."""
    within = max(1, min(mesh.data, hardware.group // mesh.model))
    return within, -(-mesh.data // within)


def _moved(size: float, devices: int) -> float:
    """Returns the bytes that each device sends to sum tensors of `size` bytes over all devices."""
    return 2 * (devices - 1) / devices * size


def _ring(size: float, devices: int, bandwidth: float) -> float:
    return _moved(size, devices) / bandwidth


def meshes(devices: int) -> list[Mesh]:
    """Returns the meshes of a number of devices."""
    return [Mesh(devices // share, share) for share in SHARES if share <= devices]


def best(work: Work, hardware: Hardware, devices: int, tokens: float, utilization: float) -> tuple[Mesh, Step] | None:
    """Returns the fastest mesh whose devices have enough memory, or `None` if there is none."""
    steps = [(mesh, predict(work, hardware, mesh, tokens, utilization)) for mesh in meshes(devices)]
    fitting = [(mesh, step) for mesh, step in steps if step.memory <= hardware.memory]
    return min(fitting, key=lambda pair: pair[1].seconds, default=None)


def last_that_pays(rates: Sequence[tuple[int, float]]) -> int:
    """Returns the largest number of devices that is worthwhile by `PAYS`, given pairs (devices, rate)."""
    (first, rate), *_ = rates
    paying = itertools.takewhile(lambda pair: pair[1] >= PAYS * rate * pair[0] / first, rates)
    return max(devices for devices, _ in paying)


def section(name: str, work: Work, tokens: float, utilization: float, grows: bool) -> list[str]:
    """Returns the table of some hardware by the number of devices, with which the batch may grow."""
    hardware, rows, rates = HARDWARE[name], [], []
    for devices in DEVICES:
        batch = tokens * devices if grows else tokens
        fastest = best(work, hardware, devices, batch, utilization)
        if fastest is None:
            rows.append([f"{devices}", "too little memory", *[""] * 6])
            continue
        mesh, step = fastest
        rates.append((devices, batch / step.seconds))
        rows.append(
            [
                f"{devices}",
                str(mesh),
                f"{1000 * step.compute:,.1f} ms",
                f"{1000 * step.wire:,.1f} ms",
                f"{step.sent / 1e6:,.0f} MB",
                f"{step.memory / 1e9:,.1f} GB",
                f"{batch / step.seconds:,.0f}",
                f"{step.compute / step.seconds:.0%}",
            ]
        )
    lines = table(
        ["devices", "best mesh", "computation", "communication", "sent", "memory", "tokens/s", "computing"], rows
    )
    if rates:
        lines += ["", f"More devices are worthwhile up to {last_that_pays(rates)}."]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("scaling", "Calculates the cost of training on many devices.")
    parser.add_argument("--model", default="transformer_big", help="a Transformer that translates (transformer_big)")
    parser.add_argument("--hardware", action="append", choices=list(HARDWARE), help="more than once for several (all)")
    parser.add_count("tokens", 400_000, "target tokens in a batch")
    parser.add_count("own_tokens", 16_000, "those of a device if the batch grows")
    parser.add_count("length", 32, "tokens of a sentence on either side")
    parser.add_argument(
        "--utilization", type=float, default=0.4, help="share of the peak that one device reaches (0.4, an assumption)"
    )
    parser.add_output()
    options = parser.parse_args(arguments)
    if not 0 < options.utilization <= 1:
        parser.error(f"--utilization must be above 0 and at most 1. Received: {options.utilization}")
    try:
        work = work_of(options.model, options.length, VOCABULARY)
    except InputError as error:
        parser.error(str(error))
    lines = [
        f"`{options.model}`, {work.weights:,} weights, vocabularies of {VOCABULARY:,}, sentences of {options.length} "
        f"tokens: {work.operations / 1e6:,.0f} million operations for a target token forward. Devices reach "
        f"{options.utilization:.0%} of their peak. This is a calculation, not a measurement.",
    ]
    for name in options.hardware or HARDWARE:
        for grows, batch in ((False, options.tokens), (True, options.own_tokens)):
            what = "each device" if grows else "all devices"
            lines += ["", f"### {name}, {batch:,} tokens in the batch of {what}", ""]
            lines += section(name, work, batch, options.utilization, grows)
        lines += ["", f"Figures of {name}: {HARDWARE[name].source}."]
    write_page("\n".join(lines) + "\n", options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
