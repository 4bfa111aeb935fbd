"""Compares a student with its teacher: BLEU and sentences a second, and a plot of both.

`python -m benchmarks.students TEACHER STUDENT --data SPEC [--shortlist N] [--rounds N] [--threads N] [--plot FILE]`

TEACHER is a trained `transformer_tiny` with pre-norm blocks and one vocabulary, STUDENT a translator with a shortlist
(`python -m training.shortlist`). All translate the sources of SPEC's test split. Ours are exports, loaded like by a
server, from strings to strings, in parts with a thread each. CTranslate2, also in parts, and `transformers`, as M2M100
in batches of 64, have the teacher's weights and read tokens. CTranslate2 has no SSRUs, and so not the student.
"""

import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from benchmarks.decoding import BATCH, PART, SEARCHES, our_versions, write_weights
from benchmarks.runner.case import Case, Contestant, Target
from benchmarks.runner.command import MeasurementParser, Report
from benchmarks.runner.measure import Result, measure
from benchmarks.runner.process import ROOT
from benchmarks.runner.report import Column, Spread, case_section, median_of

PLOT = ROOT / "benchmarks" / "students.png"
TEACHER, STUDENT, SHORT = "teacher", "student", "student with shortlist"
SIZE_LIMIT = 10.0  # megabytes of a student
LOSS_LIMIT = 0.5  # BLEU that a student may be below its teacher


def _ours(who: str, search: str) -> Contestant:
    return Contestant(
        f"zoo, {who}, {search}",
        "benchmarks.zoo_adapter:answer_with_export",
        {"export": "parts", "beam": SEARCHES[search], "who": who},
        variables={"TF_ENABLE_ONEDNN_OPTS": "0"},  # like `export.serve`
    )


def _ctranslate2(compute_type: str, search: str) -> Contestant:
    work = {"batch": PART, "beam": SEARCHES[search], "compute_type": compute_type, "length_penalty": 1.0}
    name = f"CTranslate2 {compute_type}, {TEACHER}, {search}"
    return Contestant(name, "benchmarks.peers.ctranslate2:search", work, "ctranslate2")


def _transformers(search: str) -> Contestant:
    work = {"batch": BATCH, "beam": SEARCHES[search]}
    name = f"transformers, {TEACHER}, {search}"
    return Contestant(name, "benchmarks.peers.hugging_face:translate", work, "hugging_face")


def contestants(search: str) -> tuple[Contestant, ...]:
    """Returns the contestants with a search."""
    return (
        *(_ours(who, search) for who in (TEACHER, STUDENT, SHORT)),
        *(_ctranslate2(kind, search) for kind in ("float32", "int8")),
        _transformers(search),
    )


def _target(what: str, peer: str, bound: float | None = None) -> Target:
    return Target(f"student with shortlist, greedy, beside {what}", (f"zoo, {SHORT}, greedy",), (peer,), bound)


CASE = Case(
    "students",
    "A test set",
    tuple(contestant for search in SEARCHES for contestant in contestants(search)),
    (
        _target("the teacher, beam 5", f"zoo, {TEACHER}, beam 5", 6.0),
        _target("the teacher, greedy", f"zoo, {TEACHER}, greedy"),
        _target("CTranslate2 with the teacher in int8, beam 5", f"CTranslate2 int8, {TEACHER}, beam 5", 2.0),
        _target("CTranslate2 with the teacher in int8, greedy", f"CTranslate2 int8, {TEACHER}, greedy"),
    ),
    {"exact_steps": False},
    warm_up=1,
)


def prepare(case: Case, runs: Mapping[str, Any], texts: Sequence[str], folder: Path, shortlist: int) -> Case:
    """Returns the case with the folders of its contestants, after writing their inputs into them."""
    from export.saved_model import export_saved_model

    def with_folder(contestant: Contestant) -> Contestant:
        who = contestant.work.get("who", TEACHER)
        return dataclasses.replace(contestant, work={**contestant.work, "folder": str(folder / who)})

    case = dataclasses.replace(case, contestants=tuple(map(with_folder, case.contestants)))
    for who in (TEACHER, STUDENT, SHORT):
        (folder / who).mkdir()
        (folder / who / "texts.json").write_text(json.dumps(list(texts)), encoding="utf-8")
    form = {"nbest": 1, "dynamic_batching": True, "signatures": "none"}
    for work in (contestant.work for contestant in case.contestants if "who" in contestant.work):
        options = {**form, "beam_size": work["beam"], "shortlist": shortlist if work["who"] == SHORT else 0}
        base = Path(work["folder"]) / work["export"] / str(work["beam"])
        export_saved_model(runs[work["who"]].path, base, **options)
    write_weights(runs[TEACHER], folder / TEACHER / "weights.npz")
    (folder / TEACHER / "ids.json").write_text(json.dumps(runs[TEACHER].source_ids(texts)), encoding="ascii")
    return case


def megabytes(folder: Path) -> float:
    """Returns the size of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def measure_all(options: Any) -> tuple[Case, Result]:
    """Returns the case as it was measured, with the BLEU of each contestant's answers and the size of exports."""
    import zoo
    from export.saved_model import export_saved_model
    from training.data import load_data
    from training.tasks.metrics import translation_metrics

    split = load_data(options.data).split("test")
    count = PART if options.tiny else len(split.source)
    texts, references = list(split.source[:count]), list(split.target[:count])
    runs = {TEACHER: zoo.load(options.teacher), STUDENT: zoo.load(options.student)}
    runs[SHORT] = runs[STUDENT]
    decode = runs[TEACHER].tokenizers.target.decode
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = prepare(CASE.among(options.contestant), runs, texts, folder, options.shortlist)
        form = {"weights": "int8", "shortlist": options.shortlist, "signatures": "none"}
        small = export_saved_model(options.student, folder / "small", **form)
        measurements = measure(case, options.rounds, options.threads, options.tiny)
        measurements["megabytes"] = megabytes(Path(small))
    for result in measurements["results"].values():
        if "last" in result:
            answers = result["last"].get("texts") or decode(result["last"]["ids"])
            result["bleu"] = translation_metrics(answers, references)["bleu_lower_tokenized"]
    title = f"{count:,} test sentences, shortlist of {options.shortlist:,}"
    return dataclasses.replace(case, title=title), {**measurements, "versions": our_versions(), "sentences": count}


def section(case: Case, measurements: Result) -> str:
    """Returns the measurements as Markdown."""
    count = measurements["sentences"]

    def rate(kind: str) -> Callable[[Contestant, Mapping[str, Any]], str]:
        return lambda _, result: f"{count / Spread.of(result[kind]).median:,.0f}"

    columns = (
        Column.of("name", ""),
        Column("lower-cased BLEU", lambda _, result: f"{result['bleu']:.2f}"),
        Column.seconds("seconds", "", 1.0, digits=2),
        Column("sentences/s", rate("seconds")),
        Column("sentences/s of one core", rate("processor")),
    )
    results = measurements["results"]
    bleu = {label: result["bleu"] for label, result in results.items() if "bleu" in result}
    ours, teacher = (bleu.get(f"zoo, {who}") for who in (f"{SHORT}, greedy", f"{TEACHER}, beam 5"))
    size = measurements["megabytes"]
    remarks = [f"The export of the student in int8 with its shortlist has {size:.1f} MB (at most {SIZE_LIMIT:g})."]
    if ours is not None and teacher is not None:
        remarks.append(f"It has {teacher - ours:.2f} BLEU less than the teacher with beams (at most {LOSS_LIMIT:g}).")
    return case_section(case, measurements, columns, "found beside", remarks)


def plot(case: Case, measurements: Result, file: Path) -> None:
    """Draws BLEU against sentences a second of one core, the latter logarithmic."""
    figure, axes = plt.subplots(figsize=(9, 6), layout="constrained")
    axes.set(xscale="log", xlabel="sentences a second of one core", ylabel="lower-cased BLEU")
    axes.tick_params(which="both", labelsize="small")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.xaxis.set_major_formatter("{x:g}")
    colors: dict[str, str] = {}
    for contestant in case.contestants:
        result = measurements["results"].get(contestant.label, {})
        processor = median_of(result, "processor")
        if processor is not None and "bleu" in result:
            who, _, search = contestant.name.rpartition(", ")
            style = {"color": colors.setdefault(who, f"C{len(colors)}"), "marker": "os"[search != "greedy"]}
            point = measurements["sentences"] / processor, result["bleu"]
            axes.plot(*point, linestyle="", label=contestant.name, **style)
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("students", __doc__, rounds=7)
    parser.add_argument("teacher", type=Path, help="work directory of a trained transformer_tiny")
    parser.add_argument("student", type=Path, help="work directory of a translator with a shortlist")
    parser.add_argument("--data", metavar="SPEC", required=True, help="pairs, whose test split is translated")
    parser.add_count("shortlist", 1_000, "tokens of a batch")
    parser.add_argument("--plot", type=Path, default=PLOT, help="file of the plot (benchmarks/students.png)")
    parser.add_tiny()
    parser.add_output()
    parser.add_contestants()
    options = parser.parse_args(arguments)
    case, measurements = measure_all(options)
    report = Report(options)
    report.begin(f"Median of {options.rounds} turns A B A B (quartiles), {options.threads} threads each.")
    report.add(section(case, measurements))
    plot(case, measurements, options.plot)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
