"""Measures how fast untrained models of the same sizes translate, beside all peers that can.

`python -m benchmarks.decoding.untrained [--data SPEC] [--case NAME …] [--contestant NAME …] [--rounds N] [--threads N]
[--tiny] [--fresh]`

Everyone takes the same number of steps, so that it does not matter what the weights are: as many as the longest
sentence of a batch has symbols. Nobody ends before, which is checked. The case `request` is 64 sentences of 16 symbols
at once, with greedy and with beam search; `test_set`, which needs `--data`, is the source of the test split with beam
search, sorted by length into batches of 64, as `training.evaluate` translates it, with the vocabulary of training.
"""

import dataclasses
import importlib.metadata
import json
import random
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.arguments import MeasurementParser
from benchmarks.decoding.untrained_cases import BATCH, CASES, LENGTH, NOTES, OURS, PEERS, TEST_SET, Case
from benchmarks.kept import kept
from benchmarks.peers import REQUIREMENTS, python_of
from benchmarks.process import Failed, Process, until_failure
from benchmarks.texts import absolute, read
from benchmarks.timing import Spread, take_turns, where
from benchmarks.training.cases import CASES as STEPS

FOLDER = Path(__file__).parent
MODELS = FOLDER.parent / "training" / "peers"
MOST = 3  # turns of a test set, which take up to minutes each
METHOD = (
    "Untrained Transformers of 4 + 4 layers, D 128, inside 256, 4 heads, float32. Everyone takes as many steps as the"
    " longest sentence of a batch has symbols, which is checked. Median of {rounds} turns A B A B (quartiles), at most"
    f" {MOST} of a test set; {{threads}} threads each, every contestant in a process of its own, every peer in an"
    " environment of its own. Ours reads and writes text, the peers numbers of symbols."
)
Found = dict[str, Any]


@dataclass(frozen=True)
class Inputs:
    """What contestants are given.

    Args:
        tokenizer: Of both sides.
        texts: The sentences.
    """

    tokenizer: Any
    texts: Sequence[str]


def made_up(tiny: bool = False) -> Inputs:
    """Returns sentences of words that are drawn, `LENGTH` symbols each with the end, and their tokenizer.

    Args:
        tiny: Whether there are few.
    """
    from zoo.text import WordTokenizer
    from zoo.vocabulary import SPECIAL_PIECES

    size = 60 if tiny else STEPS["transformer_step"].task["vocabulary"]
    words = [f"w{number}" for number in range(size - len(SPECIAL_PIECES))]
    chance = random.Random(0)
    texts = [" ".join(chance.choices(words, k=LENGTH - 1)) for _ in range(4 if tiny else BATCH)]
    return Inputs(WordTokenizer.train(words, vocab_size=size), texts)


def test_split(spec: str, tiny: bool = False) -> Inputs:
    """Returns the source side of a test split, and the tokenizer that training would make.

    Args:
        spec: The text, `text:DIR:SRC-TGT`.
        tiny: Whether there are few sentences.
    """
    _, data, tokenizer = read(spec)
    texts = list(data.split("test").source)
    return Inputs(tokenizer, texts[: BATCH // 8] if tiny else texts)


def write_workdir(path: Path, tokenizer) -> None:
    """Writes a work directory of a model that was never trained, and never says the end by itself.

    Args:
        path: The work directory.
        tokenizer: Of both sides.
    """
    import keras

    from training.config.resolve import resolve
    from training.loop.build import save_model
    from zoo.registry import create_model
    from zoo.vocabulary import END
    from zoo.workdir import WorkDir

    steps, workdir = STEPS["transformer_step"], WorkDir(path)
    options = steps.contestants[0].options
    words = [f"model.{name}={value}" for name, value in options["options"].items()]
    config = resolve(options["model"], "text:none:source-target", words)
    config = config.with_model(source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size)
    for side in ("source", "target"):
        tokenizer.save(workdir.tokenizer(side))
    workdir.write_text(workdir.config, json.dumps(config.to_dict()))
    keras.utils.set_random_seed(0)
    model = create_model(config.spec.name, **config.model, dtype="float32")
    (embeddings,) = (weight for weight in model.variables if weight.path.endswith("target_embedding/embeddings"))
    # The logit of the end is 0: beside those of a large vocabulary, of which half are above, never among the largest.
    rows = np.array(keras.ops.convert_to_numpy(embeddings))
    rows[END] = 0.0
    embeddings.assign(rows)
    save_model(workdir, config, model)


def prepare(case: Case, inputs: Inputs, base: Path, threads: int, tiny: bool) -> tuple[dict[str, Any], list[int]]:
    """Writes what contestants need; returns functions that return their commands, by name, and the sentences' lengths.

    Args:
        case: The case.
        inputs: Its sentences.
        base: Where to write.
        threads: Threads of each contestant.
        tiny: Whether all is tiny.
    """
    import zoo
    from benchmarks.decoding.__main__ import IN_PARTS, PEER, our_commands, write_weights
    from export.graph.dynamic_batching import MAX_BATCH_SIZE

    workdir = base / "workdir"
    write_workdir(workdir, inputs.tokenizer)
    run = zoo.load(workdir)
    rows = run.source_ids(inputs.texts)
    write_weights(run, base / "weights.npz")
    (base / "texts.json").write_text(json.dumps(inputs.texts), encoding="utf-8")
    (base / "ids.json").write_text(json.dumps(rows), encoding="ascii")
    beams = list(map(str, case.beams))
    if case.name == TEST_SET:
        exact = [sys.executable, "-m", "benchmarks.decoding.exact", str(workdir), str(BATCH)]
        ours = {OURS: [*exact, str(base / "texts.json"), str(threads), *beams]}
        sizes = {PEER: BATCH}
    else:
        ours = our_commands(workdir, threads, base, max_length=LENGTH)
        sizes = {PEER: 0, f"{PEER}{IN_PARTS}": MAX_BATCH_SIZE}
    task = {
        **STEPS["transformer_step"].task,
        "vocabulary": inputs.tokenizer.vocab_size,
        **{"threads": threads, "precision": "float32", "compile": False, "network": "transformer"},
        **{"sources": str(base / "ids.json"), "batch": BATCH, "beams": case.beams},
    }

    def converted(batch):
        worker = [python_of("ctranslate2"), str(FOLDER / "ctranslate2_worker.py"), str(base / "weights.npz")]
        return [*worker, str(base / "ids.json"), str(threads), str(batch), "exact"]

    def own(peer):
        module = FOLDER / "peers" / f"{peer.environment}_search.py"
        return [python_of(peer.environment), str(module), json.dumps({**task, **peer.options})]

    commands = {name: partial(list, command) for name, command in ours.items()}
    commands |= {name: partial(converted, batch) for name, batch in sizes.items()}
    commands |= {name: partial(own, peer) for name, peer in PEERS.items() if case.name in peer.cases}
    return commands, list(map(len, rows))


def measure(case: Case, inputs: Inputs, wanted: Sequence[str], rounds: int, threads: int, tiny: bool) -> Found:
    """Returns the measurements of a case.

    Args:
        case: The case.
        inputs: Its sentences.
        wanted: How the names of contestants begin; all if there is none.
        rounds: Turns that count.
        threads: Threads of each contestant.
        tiny: Whether all is tiny.

    Returns:
        `where`, `symbols` that each contestant finds, `versions` and `beams`: by size and contestant either `seconds`
        and `processor`, two lists, or why it has `failed`.
    """
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("attention-zoo", "keras", "tensorflow")]
    found: Found = {"where": where(), "versions": versions, "beams": {str(beam): {} for beam in case.beams}}
    with tempfile.TemporaryDirectory() as folder:
        commands, lengths = prepare(case, inputs, Path(folder), threads, tiny)
        found["symbols"] = symbols_of(lengths)
        workers: dict[str, Worker] = {}
        try:
            for name, command in tqdm(commands.items(), f"{case.name}: starting", leave=False, disable=None):
                if not wanted or name.startswith(tuple(wanted)):
                    _start(name, command, threads, case, found, workers)
            for beam, results in found["beams"].items():
                turns = {name: _turn(worker, beam, results[name]) for name, worker in workers.items()}
                for name, seconds in take_turns(turns, rounds, case.warm_up).items():
                    results[name] |= {"seconds": seconds, "processor": results[name].get("processor", [])[-rounds:]}
        finally:
            for worker in workers.values():
                worker.close()
    return found


def symbols_of(lengths: Sequence[int]) -> int:
    """Returns how many symbols are found for sentences of these lengths.

    Args:
        lengths: The lengths.
    """
    ordered = sorted(lengths)
    batches = [ordered[start : start + BATCH] for start in range(0, len(ordered), BATCH)]
    return sum(len(batch) * batch[-1] for batch in batches)


class Worker(Process):
    """A process in which a contestant searches, to be closed.

    Args:
        name: The contestant.
        command: Program and arguments.
        threads: How many threads it may have.
        texts_of: Symbols of each text that it answers with; 0 if it checks that by itself.
    """

    def __init__(self, name: str, command: Sequence[str], threads: int, texts_of: int):
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow", "OMP_NUM_THREADS": str(threads)}
        ours = name.startswith(OURS)
        # Ours leaves oneDNN out, as `export.serve` and `training.evaluate` do; with it, the peers are faster.
        environment |= (
            {"TF_ENABLE_ONEDNN_OPTS": "0"} if ours else {"TF_ENABLE_ONEDNN_OPTS": "1", "PYTHONPATH": str(MODELS)}
        )
        super().__init__(command, environment)
        self._texts_of = texts_of

    def turn(self, beam: str) -> Found:
        """Returns what a search took.

        Args:
            beam: Size of the beam.

        Raises:
            Failed: If it did not take all steps.
        """
        self.tell(beam)
        told = self.answer()
        if self._texts_of:
            lengths = {len(text.split()) for text in told["texts"]}
            if lengths != {self._texts_of}:
                raise Failed(f"{self._texts_of} symbols were to be found. Received: {lengths}.")
        return told


def _start(name, command, threads, case, found, workers):
    """Puts a contestant among the workers, behind a search of each kind, or notes why it cannot be there."""
    worker = None
    try:
        worker = Worker(name, command(), threads, LENGTH if name.startswith(OURS) and case.name != TEST_SET else 0)
        for beam in case.beams:
            told = worker.turn(str(beam))
    except Failed as error:
        if worker is not None:
            worker.close()
        for results in found["beams"].values():
            results[name] = {"failed": str(error)}
        return
    workers[name] = worker
    versions = [f"{package} {version}" for package, version in told.get("versions", {}).items()]
    found["versions"] += [version for version in versions if version not in found["versions"]]
    for results in found["beams"].values():
        results[name] = {"parameters": told["parameters"]} if "parameters" in told else {}


def _turn(worker, beam, result):
    def turn():
        told = worker.turn(beam)
        result.setdefault("processor", []).append(told["processor"])
        return told["seconds"]

    return until_failure(turn, partial(result.__setitem__, "failed"))


def is_complete(found: Found) -> bool:
    """Tells whether no contestant failed: of one that did, the reason may be gone the next time."""
    return not any("failed" in result for results in found["beams"].values() for result in results.values())


def table(case: Case, found: Found) -> str:
    """Returns the measurements of a case, as Markdown.

    Args:
        case: The case.
        found: From `measure`.
    """
    rows = [
        "| search | contestant | time | processor time | symbols/s | zoo is | what it does |",
        "|---|---|---|---|---|---|---|",
    ]
    targets = ["| zoo against | search | found | target | |", "|---|---|---|---|---|"]
    for beam, results in found["beams"].items():
        search = "greedy" if beam == "1" else f"beam {beam}"
        medians = {name: Spread.of(result["seconds"]).median for name, result in results.items() if _there(result)}
        ours = min((median for name, median in medians.items() if name.startswith(OURS)), default=None)
        for name, result in results.items():
            rows.append(f"| {search} | {name} | {' | '.join(_cells(found['symbols'], name, result, ours))} |")
        for target in case.targets:
            theirs = [median for name, median in medians.items() if target.counts(name)]
            if ours is None or not theirs:
                targets.append(f"| {target.what} | {search} | not yet measured | ≥ {target.bound:.1f}× | |")
                continue
            ratio = min(theirs) / ours
            verdict = "met" if ratio >= target.bound else "missed"
            targets.append(f"| {target.what} | {search} | {ratio:.2f}× | ≥ {target.bound:.1f}× | {verdict} |")
    foot = f"{found['where']}. {found['symbols']:,} symbols. {', '.join(found['versions'])}."
    return "\n".join([f"### {case.title}", "", *rows, "", *targets, "", foot])


def _there(result):
    return "seconds" in result and "failed" not in result


def _cells(symbols, name, result, ours):
    note = NOTES.get(name, "")
    if not _there(result):
        return [f"not measured: {result['failed'].replace('|', '/')}", "", "", "", note]
    spread, processor = Spread.of(result["seconds"]), Spread.of(result["processor"]).median
    if name.startswith(OURS) or ours is None:
        ratio = ""
    else:
        ratio = f"{spread.median / ours:.2f}× as fast"
    return [
        f"{1000 * spread.median:,.0f} ms ({1000 * spread.low:,.0f}–{1000 * spread.high:,.0f})",
        f"{1000 * processor:,.0f} ms",
        f"{symbols / spread.median:,.0f}",
        ratio,
        note,
    ]


def main(arguments=None) -> int:
    """Runs the command; returns its exit status.

    Args:
        arguments: Command line without the program. Default: that of the process.
    """
    parser = MeasurementParser("python -m benchmarks.decoding.untrained", __doc__, rounds=15)
    parser.add_argument("--data", metavar="SPEC", help=f"the text of the case {TEST_SET}, text:DIR:SRC-TGT")
    parser.add_argument("--case", action="append", choices=CASES, help="a case, more than once for several (all)")
    parser.add_argument("--contestant", action="append", default=[], help="how its name begins, such as zoo (all)")
    parser.add_count("threads", 2, "of each contestant")
    parser.add_resuming()
    options = parser.parse_args(arguments)
    names = options.case or [name for name in CASES if name != TEST_SET or options.data]
    if TEST_SET in names and not options.data:
        parser.error(f"the case {TEST_SET} needs --data.")
    print(METHOD.format(rounds=options.rounds, threads=options.threads), flush=True)
    if options.tiny:
        print("\n**Tiny sizes: these numbers say only that it runs.**")
    for name in names:
        print(f"\n{_told(CASES[name], options)}", flush=True)
    return 0


def _told(case, options):
    """Returns the tables of a case, which is measured unless it was before."""
    settings: Mapping[str, Any] = {"rounds": options.rounds, "threads": options.threads, "tiny": options.tiny}
    spec = None
    if case.name == TEST_SET:
        spec, settings = absolute(options.data), {**settings, "rounds": min(options.rounds, MOST)}

    def run():
        inputs = test_split(spec, options.tiny) if spec else made_up(options.tiny)
        return measure(case, inputs, options.contestant, **settings)

    file = "-".join([f"decoding/{case.name}", *(re.sub(r"\W+", "_", each) for each in options.contestant)])
    hangs_on = {**settings, "case": dataclasses.asdict(case), "spec": spec, "pins": REQUIREMENTS}
    return table(case, kept(file, hangs_on, run, options.fresh, is_complete))


if __name__ == "__main__":
    sys.exit(main())
