"""Measures the speed of translation by models of the same sizes, beside all peers that support them.

`python -m benchmarks.decoding [--case NAME …] [--data SPEC] [--contestant NAME …] [--rounds N] [--threads N] [--tiny]
[--fresh]`: untrained models. All take as many steps as the longest sentence of a batch has tokens, so that the weights
do not matter; an earlier end is an error. The case `request` is 64 sentences of 16 tokens at once,
with greedy and with beam search; `test_set`, which requires `--data`, is the source of the test split with beam search,
sorted by length into batches of 64, like in `training.evaluate`.

`python -m benchmarks.decoding WORKDIR --text FILE [--case NAME …]`: a trained `transformer_tiny` beside CTranslate2
with its weights; 64 sentences of about 16 tokens from the file (`request`), or all of them (`test_set`). Ours reads and
writes strings, CTranslate2 tokens. Both translate a request in two ways: as one batch, whose operations use all
threads, and in parts of 32 sentences with one thread each (`export.saved_model --dynamic_batching`). Ours also
translates it compiled (`--xla`): its parts then use all threads, since XLA with one thread computes them one by one.
The case `sentence` is the most common request to a server: 40 sentences from the whole file, one at a time, beside
CTranslate2 and Hugging Face's M2M100 with the same weights; `--threads 1` uses one thread each.
"""

import dataclasses
import importlib.metadata
import json
import random
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parallel_text import read_text, with_absolute_path
from benchmarks.runner.case import ZOO, Case, Contestant, Target, in_groups
from benchmarks.runner.command import MeasurementParser, Report, load_or_measure_case
from benchmarks.runner.measure import Result, measure
from benchmarks.runner.report import Column, Spread, best_median, case_section
from benchmarks.training import CASES as TRAINING_CASES

BATCH, LENGTH = 64, 16
PART = 32  # sentences into which `export.graph.dynamic_batching` splits a request
REQUEST, TEST_SET, SENTENCE = "request", "test_set", "sentence"
SENTENCES = 40  # of the case `sentence`
CTRANSLATE2 = "CTranslate2"
SEARCHES = {"greedy": 1, "beam 5": 5}
BEAM = {"beam 5": 5}
MAX_TEST_SETS = 3  # turns of a test set with untrained models, which take up to minutes each
POSITIONS = 600  # of CTranslate2's table
METHOD = (
    "Untrained Transformers of 4 + 4 layers, D 128, inside 256, 4 heads, float32. All take as many steps as the longest"
    " sentence of a batch has tokens, which is checked. Median of {rounds} turns A B A B (quartiles), at most"
    f" {MAX_TEST_SETS} of a test set; {{threads}} threads each, every contestant in a process of its own, every peer in"
    " an environment of its own. Ours reads and writes text, the peers ids of tokens."
)

_CACHED = "pre-norm; one matrix for all embeddings; keys and values are kept"
_TEXT = "pre-norm; one matrix for all embeddings; text to text"
# Ours runs without oneDNN, like `export.serve` and `training.evaluate`; with it, the peers are faster.
_OURS = {"variables": {"TF_ENABLE_ONEDNN_OPTS": "0"}}
_THEIRS = {"variables": {"TF_ENABLE_ONEDNN_OPTS": "1"}}


def _export(name: str, export: str, note: str) -> Contestant:
    return Contestant(
        name, "benchmarks.zoo_adapter:answer_with_export", {"export": export}, note=f"{_TEXT}; {note}", **_OURS
    )


def _ctranslate2(name: str, batch: int, note: str) -> Contestant:
    adapter = "benchmarks.peers.ctranslate2:search"
    return Contestant(name, adapter, {"batch": batch}, "ctranslate2", note=f"the weights of ours; {note}", **_THEIRS)


def _peer(name: str, module: str, note: str, **work: Any) -> Contestant:
    return Contestant(name, f"benchmarks.peers.{module}:search", work, module, note=note, **_THEIRS)


OUR_EXPORTS = (
    _export("zoo", "whole", "operations have all threads, or several batches are worked on at a time"),
    _export("zoo, in parts", "parts", "parts of 32 sentences with a thread each"),
    _export("zoo, XLA, in parts", "xla", "parts of 32 sentences, compiled"),
)
OUR_EVALUATION = Contestant("zoo", "benchmarks.zoo_adapter:translate_as_evaluation", note=OUR_EXPORTS[0].note, **_OURS)
_THREADS_NOTE = "batches with a thread each, or one with all of them"
CTRANSLATE2_REQUESTS = (
    _ctranslate2(CTRANSLATE2, 0, _THREADS_NOTE),
    _ctranslate2(f"{CTRANSLATE2}, in parts", PART, "parts of 32 sentences with a thread each"),
)
CTRANSLATE2_BATCHES = _ctranslate2(CTRANSLATE2, BATCH, _THREADS_NOTE)
_KERASHUB = _peer("KerasHub", "kerashub", f"{_CACHED}; in a graph; nothing ends")
PEERS = (
    _peer("OpenNMT-tf", "opennmt_tf", f"{_CACHED}; a bias of the output; in a graph, batch after batch"),
    _peer(
        "Hugging Face Marian",
        "hugging_face",
        f"{_CACHED.replace('pre', 'post')}; eager, batch after batch; nothing ends",
    ),
    _peer("KerasHub, XLA", "kerashub", f"{_CACHED}; compiled for each width; nothing ends", compile=True),
    _peer(
        "TF Model Garden",
        "model_garden",
        f"{_CACHED}; in a graph, batch after batch; greedy is beam 1; nothing ends",
    ),
    _peer("Joey NMT", "joey_nmt", "pre-norm; one matrix for all embeddings; all tokens so far are read at each step"),
)


def _targets(searches: Iterable[str], *targets: tuple[str, float, Sequence[str], Sequence[str]]) -> tuple[Target, ...]:
    """Returns the targets for each search.

    A target is a description, a bound, the prefixes of its peers, and the prefixes of excluded contestants.
    """
    return tuple(
        Target(
            f"{what}, {search}",
            (f"zoo*, {search}",),
            tuple(f"{name}*, {search}" for name in peers),
            bound,
            without=tuple(f"{name}*" for name in (ZOO, *without)),
        )
        for search in searches
        for what, bound, peers, without in targets
    )


_FASTER_THAN_CTRANSLATE2 = (CTRANSLATE2, 1.0, (CTRANSLATE2,), ())
_WORK = {
    **TRAINING_CASES["transformer_step"].work,
    **{"batch": BATCH, "precision": "float32", "compile": False, "network": "transformer", "exact_steps": True},
}
CASES = {
    REQUEST: Case(
        REQUEST,
        f"{BATCH} sentences of {LENGTH} tokens, {LENGTH} steps, vocabulary 10,000",
        in_groups((*OUR_EXPORTS, *CTRANSLATE2_REQUESTS, *PEERS[:2], _KERASHUB, *PEERS[2:]), "beam", SEARCHES),
        _targets(
            SEARCHES,
            ("OpenNMT-tf and Hugging Face", 2.0, ("OpenNMT-tf", "Hugging Face"), ()),
            ("all peers but CTranslate2", 2.0, ("",), (CTRANSLATE2,)),
            _FASTER_THAN_CTRANSLATE2,
        ),
        {**_WORK, "exact_length": LENGTH},
        warm_up=1,
    ),
    TEST_SET: Case(
        TEST_SET,
        f"A test set, batches of {BATCH}, as many steps as the longest sentence of a batch has tokens",
        in_groups((OUR_EVALUATION, CTRANSLATE2_BATCHES, *PEERS), "beam", BEAM),
        _targets(BEAM, _FASTER_THAN_CTRANSLATE2, ("all other peers", 3.0, ("",), (CTRANSLATE2,))),
        _WORK,
        warm_up=0,
    ),
}
_TRAINED_WORK = {"batch": BATCH, "exact_steps": False}
TRAINED_CASES = {
    REQUEST: Case(
        REQUEST,
        f"{BATCH} sentences of about {LENGTH} tokens",
        in_groups((*OUR_EXPORTS, *CTRANSLATE2_REQUESTS), "beam", SEARCHES),
        work=_TRAINED_WORK,
    ),
    TEST_SET: Case(
        TEST_SET,
        f"All sentences, batches of {BATCH}",
        in_groups((OUR_EVALUATION, CTRANSLATE2_BATCHES), "beam", BEAM),
        work=_TRAINED_WORK,
    ),
    SENTENCE: Case(
        SENTENCE,
        f"{SENTENCES} sentences, one at a time",
        in_groups(
            (
                OUR_EXPORTS[0],
                _export("zoo, XLA", "compiled", "compiled"),
                CTRANSLATE2_REQUESTS[0],
                Contestant(
                    "Hugging Face",
                    "benchmarks.peers.hugging_face:translate",
                    {"length_penalty": 0.0},
                    "hugging_face",
                    note="the weights of ours; M2M100, eager",
                    **_THEIRS,
                ),
            ),
            "beam",
            SEARCHES,
        ),
        _targets(SEARCHES, (CTRANSLATE2, 0.8, (CTRANSLATE2,), ())),
        work={**_TRAINED_WORK, "one_by_one": True},
        warm_up=1,
    ),
}


@dataclass(frozen=True)
class Inputs:
    """The inputs of untrained contestants: sentences, and the tokenizer of both sides."""

    tokenizer: Any
    texts: Sequence[str]


def random_sentences(tiny: bool = False) -> Inputs:
    """Returns sentences of random words, `LENGTH` tokens each with the end, and their tokenizer; few if `tiny`."""
    return random_words(60 if tiny else TRAINING_CASES["transformer_step"].work["vocabulary"], 4 if tiny else BATCH)


def random_words(size: int, count: int) -> Inputs:
    """Returns `count` sentences of words from a vocabulary of `size`, and their tokenizer."""
    from zoo.text import WordTokenizer
    from zoo.vocabulary import SPECIAL_PIECES

    words = [f"w{number}" for number in range(size - len(SPECIAL_PIECES))]
    generator = random.Random(0)
    texts = [" ".join(generator.choices(words, k=LENGTH - 1)) for _ in range(count)]
    return Inputs(WordTokenizer.train(words, vocab_size=size), texts)


def read_test_split(spec: str, tiny: bool = False) -> Inputs:
    """Returns the source side of a test split, and the tokenizer learned from the training split; few if `tiny`."""
    _, data, tokenizer = read_text(spec)
    texts = list(data.split("test").source)
    return Inputs(tokenizer, texts[: BATCH // 8] if tiny else texts)


def sentences_of_file(run: Any, path: Path, case: str) -> list[str]:
    """Returns the lines of a file that a case translates: all, evenly spread ones, or those of about 16 tokens."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if case == TEST_SET:
        return lines
    if case == SENTENCE:
        return lines[:: max(1, len(lines) // SENTENCES)][:SENTENCES]
    pairs = zip(map(len, run.source_ids(lines)), lines, strict=True)
    return [line for _, line in sorted(pairs, key=lambda pair: abs(pair[0] - LENGTH))[:BATCH]]


def write_untrained_workdir(path: Path, tokenizer: Any, name: str | None = None) -> None:
    """Writes a work directory of an untrained model that never generates the end.

    Args:
        path: The work directory.
        tokenizer: The tokenizer of both sides.
        name: A model of its default sizes. Default: the model of the cases.
    """
    import keras

    from training.config.resolve import resolve
    from training.loop.build import save_model
    from zoo.registry import create_model
    from zoo.vocabulary import END
    from zoo.workdir import WorkDir

    workdir, ours = WorkDir(path), TRAINING_CASES["transformer_step"].contestants[0].work
    words = [] if name else [f"model.{option}={value}" for option, value in ours["options"].items()]
    config = resolve(name or ours["model"], "text:none:source-target", words)
    config = config.with_model(source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size)
    for side in ("source", "target"):
        tokenizer.save(workdir.tokenizer(side))
    workdir.write_text(workdir.config, json.dumps(config.to_dict()))
    keras.utils.set_random_seed(0)
    model = create_model(config.spec.name, **config.model, dtype="float32")
    (embeddings,) = (weight for weight in model.variables if weight.path.endswith("target_embedding/embeddings"))
    # The logit of the end is 0, which is never among the largest: about half of the others are positive.
    rows = np.array(keras.ops.convert_to_numpy(embeddings))
    rows[END] = 0.0
    embeddings.assign(rows)
    save_model(workdir, config, model)


def write_weights(run: Any, path: Path) -> None:
    """Writes the weights of a run for `benchmarks.peers.ctranslate2`."""
    from keras import ops

    from zoo.layers import SinusoidalPositions

    model, options = run.model, run.config["model"]
    if run.spec.name != "transformer_tiny" or not options.get("normalize_first") or model.tied_embeddings != "all":
        sys.exit("error: WORKDIR must be a transformer_tiny with pre-norm blocks and one shared vocabulary.")
    weights = {variable.path.partition("/")[2]: ops.convert_to_numpy(variable) for variable in model.variables}
    positions = SinusoidalPositions().encodings(ops.arange(POSITIONS), options["model_dim"])
    weights["positions"] = ops.convert_to_numpy(positions)
    np.savez(path, layers=options["num_layers"], heads=options["num_heads"], **weights)


def prepare(
    case: Case, run: Any, workdir: Path, texts: Sequence[str], folder: Path, threads: int, **options_of_search: Any
) -> Case:
    """Writes weights, texts, ids and exports into a folder, and returns the case with it.

    `options_of_search` are further options of the exports.
    """
    from export.saved_model import export_saved_model

    write_weights(run, folder / "weights.npz")
    (folder / "texts.json").write_text(json.dumps(list(texts)), encoding="utf-8")
    (folder / "ids.json").write_text(json.dumps(run.source_ids(texts)), encoding="ascii")
    parts = {"dynamic_batching": True, "num_batch_threads": threads}
    forms = {"whole": {}, "parts": parts, "xla": {**parts, "xla": True}, "compiled": {"xla": True}}
    for work in (contestant.work for contestant in case.contestants if "export" in contestant.work):
        base = folder / work["export"] / str(work["beam"])
        options = {"beam_size": work["beam"], "length_penalty": 0.0, **options_of_search, **forms[work["export"]]}
        export_saved_model(workdir, base, **options)
    return dataclasses.replace(case, work={**case.work, "folder": str(folder), "workdir": str(workdir)})


def measure_untrained(case: Case, spec: str | None, rounds: int, threads: int, tiny: bool) -> Result:
    """Returns the measurements of a case with untrained models; `spec` is the text of a test set."""
    import zoo

    inputs = read_test_split(spec, tiny) if spec else random_sentences(tiny)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_untrained_workdir(folder / "workdir", inputs.tokenizer)
        run = zoo.load(folder / "workdir")
        prepared = prepare(case, run, folder / "workdir", inputs.texts, folder, threads, max_length=LENGTH)
        prepared = dataclasses.replace(prepared, work={**prepared.work, "vocabulary": inputs.tokenizer.vocab_size})
        measurements = measure(prepared, rounds, threads, tiny)
        measurements["tokens"] = count_tokens([len(row) for row in run.source_ids(inputs.texts)])
    return {**measurements, "versions": our_versions()}


def our_versions() -> list[str]:
    """Returns the versions of this project, Keras and TensorFlow."""
    return [f"{name} {importlib.metadata.version(name)}" for name in ("attention-zoo", "keras", "tensorflow")]


def count_tokens(lengths: Sequence[int]) -> int:
    """Returns the number of tokens that are generated for sentences of these lengths."""
    ordered = sorted(lengths)
    batches = [ordered[start : start + BATCH] for start in range(0, len(ordered), BATCH)]
    return sum(len(batch) * batch[-1] for batch in batches)


def section(case: Case, measurements: Result) -> str:
    """Returns the measurements of untrained models as Markdown."""

    columns = (
        *columns_of_times("search"),
        Column("tokens/s", lambda _, result: f"{measurements['tokens'] / Spread.of(result['seconds']).median:,.0f}"),
        column_of_ratios(case, measurements),
        Column.of("note", "what it does"),
    )
    return case_section(case, measurements, columns, "zoo against", [f"{measurements['tokens']:,} tokens."])


def columns_of_times(group: str) -> tuple[Column, ...]:
    """Returns the first columns of a table: `group` as a title, contestant, time by the clock and of processors."""
    return (
        Column.of("group", group),
        Column.of("name", "contestant"),
        Column.seconds("time", digits=0),
        Column("processor time", lambda _, result: f"{1000 * Spread.of(result['processor']).median:,.0f} ms"),
    )


def column_of_ratios(case: Case, measurements: Result) -> Column:
    """Returns the column of the speed of the fastest of ours relative to a peer of the same group."""

    def ratio(contestant: Contestant, result: Result) -> str:
        ours = _fastest(case, measurements, contestant.group, ZOO)
        if contestant.name.startswith(ZOO) or ours is None:
            return ""
        return f"{Spread.of(result['seconds']).median / ours:.2f}× as fast"

    return Column("zoo is", ratio)


def _fastest(case: Case, measurements: Result, group: str, name: str) -> float | None:
    """Returns the median of the fastest contestant of a group whose name begins with `name`."""
    members = [member for member in case.contestants if member.group == group and member.name.startswith(name)]
    return best_median(measurements["results"], [member.label for member in members])


def _of_ctranslate2(measurements: Result, contestant: Contestant) -> Result:
    """Returns the last response of CTranslate2 in the group of a contestant."""
    return measurements["results"].get(f"{CTRANSLATE2}, {contestant.group}", {}).get("last", {})


def _same_answers(measurements: Result, decode: Any) -> Column:
    """Returns the column that counts translations equal to CTranslate2's; `decode` turns rows of ids into texts."""

    def count(contestant: Contestant, result: Result) -> str:
        expected, last = decode(_of_ctranslate2(measurements, contestant).get("ids", [])), result["last"]
        texts = last["texts"] if "texts" in last else decode(last["ids"])
        return f"{sum(map(str.__eq__, expected, texts))} of {len(expected):,}" if expected else ""

    return Column("same answers", count)


def trained_section(case: Case, measurements: Result, decode: Any) -> str:
    """Returns the measurements of a trained model beside CTranslate2 as Markdown."""

    def tokens_per_second(contestant: Contestant, result: Result) -> str:
        ids = _of_ctranslate2(measurements, contestant).get("ids", [])
        tokens = sum(len(row) + 1 for row in ids)  # with the ends
        return f"{tokens / Spread.of(result['seconds']).median:,.0f}" if tokens else ""

    def ratio(contestant: Contestant, result: Result) -> str:
        peer = _fastest(case, measurements, contestant.group, CTRANSLATE2)
        if peer is None or not contestant.name.startswith(ZOO):
            return ""
        return f"{peer / Spread.of(result['seconds']).median:.2f}×"

    same_answers = _same_answers(measurements, decode)
    columns = (
        Column.of("group", "search"),
        Column.of("name", ""),
        Column.seconds("ms", "", digits=0),
        Column("tokens/s", tokens_per_second),
        Column("ratio", ratio),
        Column("same answers", lambda who, result: same_answers.cell(who, result) if who.name.startswith(ZOO) else ""),
    )
    return case_section(case, {**measurements, "versions": our_versions()}, columns)


def sentence_section(case: Case, measurements: Result, decode: Any) -> str:
    """Returns the latency of a sentence by a trained model, as Markdown."""

    def quantile(result: Result, share: float) -> float:
        return float(np.quantile(result["last"]["latencies"], share))

    def milliseconds(share: float) -> Any:
        return lambda _, result: f"{1000 * quantile(result, share):.2f}"

    def ratio(contestant: Contestant, result: Result) -> str:
        latencies = _of_ctranslate2(measurements, contestant).get("latencies")
        return f"{np.median(latencies) / quantile(result, 0.5):.2f}×" if latencies else ""

    columns = (
        Column.of("group", "search"),
        Column.of("name", ""),
        Column("p50, ms", milliseconds(0.5)),
        Column("p95, ms", milliseconds(0.95)),
        Column.seconds("all, ms", "", digits=0),
        Column("speed of CTranslate2", ratio),
        _same_answers(measurements, decode),
    )
    return case_section(case, {**measurements, "versions": our_versions()}, columns, "zoo against")


def report_trained(options, report: Report) -> None:
    """Measures a trained model, and adds the result to the report."""
    import zoo

    workdir = options.workdir.resolve()
    run = zoo.load(workdir)
    report.begin(f"{options.threads} threads each, float32, median of {options.rounds} turns A B A B (quartiles).")
    for name in options.case or [REQUEST]:
        texts = sentences_of_file(run, options.text, name)
        with tempfile.TemporaryDirectory() as folder:
            case = TRAINED_CASES[name].among(options.contestant)
            prepared = prepare(case, run, workdir, texts, Path(folder), options.threads)
            measurements = measure(prepared, options.rounds, options.threads)
        show = sentence_section if name == SENTENCE else trained_section
        report.add(show(case, measurements, run.tokenizers.target.decode))


def report_untrained(options, report: Report, names: Sequence[str]) -> None:
    """Measures untrained models, and adds the results to the report."""
    report.begin(METHOD.format(rounds=options.rounds, threads=options.threads))
    for name in names:
        case, spec, rounds = CASES[name].among(options.contestant), None, options.rounds
        if name == TEST_SET:
            spec, rounds = with_absolute_path(options.data), min(rounds, MAX_TEST_SETS)
        settings = {"rounds": rounds, "threads": options.threads, "spec": spec}
        chosen = options.contestant
        report.add(
            section(case, load_or_measure_case("decoding", case, options, measure_untrained, chosen, **settings))
        )


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("decoding", __doc__, rounds=15)
    parser.add_argument("workdir", nargs="?", type=Path, help="a trained transformer_tiny (untrained models)")
    parser.add_argument("--text", type=Path, help="source sentences for WORKDIR, one a line")
    parser.add_argument(
        "--data", metavar="SPEC", help=f"the text of the case {TEST_SET} without WORKDIR, text:DIR:SRC-TGT"
    )
    parser.add_cases({**CASES, **TRAINED_CASES})
    parser.add_contestants(threads=2)
    options = parser.parse_args(arguments)
    if bool(options.workdir) != bool(options.text):
        parser.error("WORKDIR and --text go together.")
    names = options.case or [REQUEST, *([TEST_SET] if options.data else [])]
    if SENTENCE in names and not options.workdir:
        parser.error(f"the case {SENTENCE} requires WORKDIR and --text.")
    if TEST_SET in names and not (options.data or options.workdir):
        parser.error(f"the case {TEST_SET} requires --data.")
    report = Report(options)
    if options.workdir:
        report_trained(options, report)
    else:
        report_untrained(options, report, names)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
