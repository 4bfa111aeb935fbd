"""Measures steps of training beside the peers, each in a process and an environment of its own.

`python -m benchmarks.training [--case NAME …] [--data SPEC] [--contestant NAME …] [--rounds N] [--threads N] [--fresh]`
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import start
from benchmarks.parallel_text import read_text, with_absolute_path
from benchmarks.runner.case import ZOO, Case, Contestant, Target
from benchmarks.runner.command import MeasurementParser, Report, load_or_measure_case
from benchmarks.runner.measure import Result
from benchmarks.runner.report import Column, Spread, case_section, median_of
from benchmarks.runner.store import FOLDER, load_or_measure

PRECISIONS = ("float32", "bfloat16")
START, EPOCH = "start", "epoch"
MAX_EPOCHS = 3  # turns of an epoch, which take minutes each
BATCH_TOKENS = 2048  # of an epoch, on the longer side, padding included, as in the recipe of transformer_tiny
SECONDS = 10  # from which on times are written in seconds, not milliseconds
METHOD = (
    "A step: forward, backward and Adam, on a batch without padding that is always the same, with dropout and"
    " label smoothing; an epoch: as many as a text has batches, with the text read anew. Median of {rounds} turns"
    f" A B A B (quartiles), of an epoch at most {MAX_EPOCHS};"
    " {threads} threads each, every contestant in a process of its own, every peer in an"
    " environment of its own. Processor time: of all threads, which other work on the machine disturbs less. Peak"
    " memory: largest resident set of the process, including libraries."
)


def _contestant(
    name: str, adapter: str, environment: str = "", note: str = "", precisions: Sequence[str] = PRECISIONS, **work: Any
) -> list[Contestant]:
    """Returns a contestant in each precision."""
    return [
        Contestant(name, adapter, {"precision": precision, "compile": False, **work}, environment, precision, note)
        for precision in precisions
    ]


def _peer(name: str, module: str, note: str, **options: Any) -> list[Contestant]:
    environment = options.pop("environment", module)
    return _contestant(name, f"benchmarks.peers.{module}:train", environment, note, **options)


def _ours(note: str, model: str, **options: Any) -> list[Contestant]:
    return _contestant(ZOO, "benchmarks.zoo_adapter:train", note=note, model=model, options=options)


def _target(what: str, bound: float, precision: str = "*", peers: str = "*") -> Target:
    """Returns the target that the fastest of ours is `bound` times as fast as the fastest peer."""
    return Target(
        what, (f"{ZOO}, {precision}",), (peers if peers != "*" else f"*, {precision}",), bound, without=("zoo,*",)
    )


def _targets(float32: float, fastest: float) -> tuple[Target, ...]:
    return _target("float32", float32, "float32"), _target("each at its fastest precision", fastest)


_BLOCKS = "pre-norm, one matrix for all embeddings"
_ALSO_DROPS = "drops attention weights and inside the blocks as well"
_FLOAT32 = {"precisions": ("float32",)}
_TINY = {"batch": 2, "source_length": 3, "target_length": 5, "vocabulary": 50}
_COMMON = {"dropout": 0.1, "label_smoothing": 0.1}
_KERASHUB = _peer("KerasHub", "kerashub", f"{_BLOCKS}; {_ALSO_DROPS}")
TRANSFORMER_PEERS = (
    *_peer("PyTorch nn.Transformer", "pytorch", f"{_BLOCKS}; fused Adam"),
    *_peer("PyTorch nn.Transformer, torch.compile", "pytorch", f"{_BLOCKS}; fused Adam", compile=True),
    *_KERASHUB,
    *_peer("KerasHub, XLA", "kerashub", f"{_BLOCKS}; {_ALSO_DROPS}", compile=True),
    *_peer("Hugging Face Marian", "hugging_face", "post-norm, one matrix for all embeddings; fused Adam"),
    *_peer("TF Model Garden", "model_garden", _BLOCKS),
    *_peer(
        "OpenNMT-tf",
        "opennmt_tf",
        f"{_BLOCKS}; a bias of the output; no bfloat16",
        network="transformer",
        **_FLOAT32,
    ),
    *_peer("Joey NMT", "joey_nmt", f"{_BLOCKS}; {_ALSO_DROPS}; half precision on GPUs alone", **_FLOAT32),
)


def _transformer(
    name: str, title: str, sizes: Mapping[str, int], peers: Sequence[Contestant], targets: tuple[Target, ...]
) -> Case:
    options = {
        "num_layers": sizes["layers"],
        "model_dim": sizes["dim"],
        "intermediate_dim": sizes["hidden"],
        "num_heads": sizes["heads"],
        "normalize_first": True,
    }
    contestants = (*_ours(f"{_BLOCKS}; metrics", "transformer_tiny", **options), *peers)
    return Case(name, title, contestants, targets, {**_COMMON, **sizes}, _TINY, compare_fastest=True)


def _recurrent(name: str, model: str, network: str, layers: int) -> Case:
    """Returns a case of a recurrent translator of its default sizes."""
    sizes = {"batch": 64, "source_length": 16, "target_length": 16, "vocabulary": 6000, "units": 256, "layers": layers}
    plain, note = f"PyTorch, plain {network}", "cells in a Python loop; fused Adam"
    pytorch = {"environment": "pytorch", "network": network}
    in_graph = "loop in the graph; no bfloat16"
    contestants = (
        *_ours("loop in the graph; metrics", model),
        *_peer(plain, "pytorch_recurrent", note, **pytorch),
        *_peer(f"{plain}, torch.compile", "pytorch_recurrent", note, compile=True, **pytorch),
        *_peer("OpenNMT-tf, Luong", "opennmt_tf", in_graph, network="luong", **_FLOAT32),
    )
    return Case(
        name,
        f"`{model}`, all sizes 256, vocabulary 6,000: batch of 64 × (16 + 16)",
        contestants,
        _targets(2.0, 2.0),
        {**_COMMON, "dropout": 0.3, **sizes},
        _TINY,
        compare_fastest=True,
    )


_TINY_MODEL = {"layers": 4, "dim": 128, "hidden": 256, "heads": 4}
_WIDE_MODEL = {"layers": 4, "dim": 256, "hidden": 1024, "heads": 8}
CASES = {
    case.name: case
    for case in (
        _transformer(
            "transformer_step",
            "Transformer, 4 + 4 layers, D 128, inside 256, 4 heads, vocabulary 10,000: batch of 128 × (16 + 16)",
            {"batch": 128, "source_length": 16, "target_length": 16, "vocabulary": 10_000, **_TINY_MODEL},
            TRANSFORMER_PEERS,
            _targets(1.3, 2.0),
        ),
        _transformer(
            "wide_step",
            "Transformer, 4 + 4 layers, D 256, inside 1024, 8 heads, vocabulary 8,000: batch of 64 × (32 + 32)",
            {"batch": 64, "source_length": 32, "target_length": 32, "vocabulary": 8000, **_WIDE_MODEL},
            _KERASHUB,
            (
                _target("float32", 1.3, "float32"),
                _target("fastest precision against KerasHub in mixed_bfloat16", 2.5, peers="KerasHub, bfloat16"),
            ),
        ),
        _recurrent("rnnsearch_step", "rnnsearch", "rnnsearch", layers=1),
        _recurrent("luong_step", "luong_general", "luong", layers=2),
    )
}


def epoch_case(spec: str) -> Case:
    """Returns the case of an epoch, after writing the inputs of the peers: the ids of a sentence in each line.

    Ours reads and tokenizes the text in each turn, the peers do not. They are those of `transformer_step` without
    compilation.
    """
    from training.tasks import get_task

    spec = with_absolute_path(spec)
    config, data, tokenizer = read_text(spec)
    pairs, languages = data.split("train"), spec.rpartition(":")[2]
    folder = FOLDER / "training" / "text"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder / "tokenizer.json")
    tokenizers = {"source": tokenizer, "target": tokenizer}
    batches = get_task("seq2seq").batches(config.data, data, "train", tokenizers, batch_tokens=BATCH_TOKENS)
    source, target = map(_listed, batches.sides)
    sides = {"source": source, "target": [row[:-1] for row in target]}  # peers add the end of the target
    for side, rows in sides.items():
        (folder / side).write_text("".join(f"{' '.join(map(str, row))}\n" for row in rows), encoding="ascii")
    step = CASES["transformer_step"]
    return dataclasses.replace(
        step,
        name=EPOCH,
        title=f"{len(pairs.source):,} pairs {languages}, a Transformer of 4 + 4 layers, D 128, inside 256, 4 heads, "
        f"vocabulary {tokenizer.vocab_size:,}: an epoch in batches of {BATCH_TOKENS:,} tokens, with the "
        "reading of the text",
        work={
            **_COMMON,
            **_TINY_MODEL,
            **{f"{side}_length": max(map(len, rows)) + 1 for side, rows in sides.items()},
            "text": str(folder),
            "spec": spec,
            "batch_tokens": BATCH_TOKENS,
            "vocabulary": tokenizer.vocab_size,
            "tokens": sum(len(row) + 1 for row in sides["target"]),
        },
        tiny={},  # sizes are those of the text
        contestants=tuple(contestant for contestant in step.contestants if not contestant.work["compile"]),
        targets=(_target("each at its fastest precision", 3.0),),
        turn=EPOCH,
        warm_up=0,
        compare_fastest=False,  # which would take long
    )


def _listed(rows: Any) -> list[list[int]]:
    """Returns rows of ids as lists."""
    lengths = rows.all_lengths()
    padded = rows.gather(range(len(rows)), lengths.max())
    return [row[:length].tolist() for row, length in zip(padded, lengths, strict=True)]


def tokens(case: Case) -> int:
    """Returns the number of target tokens of a turn."""
    return case.work["tokens"] if "tokens" in case.work else case.work["batch"] * case.work["target_length"]


def _time(_: Contestant, result: Result) -> str:
    spread = Spread.of(result["seconds"])
    return spread.text("s") if spread.median > SECONDS else spread.text("ms", 1000)


def _processor_time(_: Contestant, result: Result) -> str:
    median = Spread.of(result["processor"]).median
    return f"{median:,.1f} s" if Spread.of(result["seconds"]).median > SECONDS else f"{1000 * median:,.1f} ms"


def section(case: Case, measurements: Result) -> str:
    """Returns the measurements of a case as Markdown."""
    columns = (
        Column.of("name", "contestant"),
        Column.of("group", "precision"),
        Column(case.turn, _time),
        Column("processor time", _processor_time),
        Column("target tokens/s", lambda _, result: f"{tokens(case) / Spread.of(result['seconds']).median:,.0f}"),
        Column("peak memory", lambda _, result: f"{result['last']['peak'] / 1e6:,.0f} MB"),
        Column("parameters", lambda _, result: f"{result['parameters']:,}"),
        Column.of("note", "what it does"),
    )
    medians = {label: median_of(result) for label, result in measurements["fastest"].items()}
    times = [f"{label} {1000 * median:,.1f} ms" for label, median in medians.items() if median is not None]
    remarks = [f"In turns with one another, each at its fastest precision: {', '.join(times)}."] if times else []
    return case_section(case, measurements, columns, "ratio to the fastest peer", remarks)


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("training", __doc__, rounds=15)
    parser.add_cases([*CASES, EPOCH, START])
    parser.add_argument("--data", metavar="SPEC", help="the text of the case epoch, text:DIR:SRC-TGT")
    parser.add_contestants()
    options = parser.parse_args(arguments)
    names = options.case or [*CASES, *([EPOCH] if options.data else []), START]
    if EPOCH in names and not options.data:
        parser.error("the case epoch requires --data.")
    report = Report(options)
    report.begin(METHOD.format(rounds=options.rounds, threads=options.threads))
    for name in names:
        report.add(_measured_section(name, options))
    return report.end()


def _measured_section(name: str, options) -> str:
    if name == START:
        settings = {"rounds": options.rounds}
        measurements = load_or_measure("training/start", settings, lambda: start.measure(**settings), options.fresh)
        return start.section(measurements)
    case = (epoch_case(options.data) if name == EPOCH else CASES[name]).among(options.contestant)
    rounds = min(options.rounds, MAX_EPOCHS) if name == EPOCH else options.rounds
    settings = {"rounds": rounds, "threads": options.threads}
    return section(case, load_or_measure_case("training", case, options, contestants=options.contestant, **settings))


if __name__ == "__main__":
    sys.exit(main())
