"""Measures how fast a trained `transformer_tiny` translates, exported, beside CTranslate2 with the same weights.

`python -m benchmarks.decoding WORKDIR --text FILE`: 64 sentences of about 16 symbols from the file, in one request,
with greedy and with beam search. Ours reads and writes strings, CTranslate2 symbols. Each takes part twice: with all
sentences in one batch, whose operations have as many threads as there are, and in parts of 32, each of which has one
thread (`export.saved_model --dynamic_batching`). Ours does so once more with what XLA compiled (`--xla`), in parts, but
with all threads for each: with one, XLA works on one part after the other.

With `--whole`: every sentence of the file with beam search, as `training.evaluate` translates a test set. Each
contestant sorts the sentences by length and makes batches of 64.
"""

import contextlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from keras import ops

import zoo
from benchmarks.arguments import MeasurementParser
from benchmarks.peers import python_of
from benchmarks.process import Process
from benchmarks.timing import Spread, take_turns, where
from export.graph.dynamic_batching import MAX_BATCH_SIZE
from export.saved_model import export_saved_model
from zoo.layers import SinusoidalPositions
from zoo.startup import without_onednn

SENTENCES, LENGTH, BEAMS = 64, 16, (1, 5)
PEER = "CTranslate2"
IN_PARTS = ", in parts"
ROOM = 600  # positions that the peer's table has


def write_weights(run, path):
    """Writes the weights of the run's model for `ctranslate2_worker`."""
    model = run.model
    options = run.config["model"]
    if run.spec.name != "transformer_tiny" or not options.get("normalize_first") or model.tied_embeddings != "all":
        sys.exit("error: a transformer_tiny with pre-norm blocks and one shared vocabulary is needed.")
    weights = {variable.path.partition("/")[2]: ops.convert_to_numpy(variable) for variable in model.variables}
    positions = SinusoidalPositions().encodings(ops.arange(ROOM), options["model_dim"])
    weights["positions"] = ops.convert_to_numpy(positions)
    np.savez(path, layers=options["num_layers"], heads=options["num_heads"], **weights)


def choose(run, path, whole):
    """Returns texts of about `LENGTH` symbols, or all that the file has, and their ids."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    pairs = list(zip(run.source_ids(lines), lines, strict=True))
    if not whole:
        pairs = sorted(pairs, key=lambda pair: abs(len(pair[0]) - LENGTH))[:SENTENCES]
    return [text for _, text in pairs], [ids for ids, _ in pairs]


def our_commands(workdir, threads, base, **search):
    """Returns the commands of the zoo's contestants, by name; their models are exported.

    Args:
        workdir: The work directory.
        threads: Threads of each.
        base: Folder with `texts.json`, for what they need.
        **search: How an export searches, besides the size of the beam, such as `max_length`.
    """

    def command(signature, threads_of_operations, **form):
        exports = [
            export_saved_model(workdir, base / signature, beam_size=beam, length_penalty=0.0, **search, **form)
            for beam in BEAMS
        ]
        module = [sys.executable, "-m", "benchmarks.decoding.ours", *map(str, exports), signature]
        return [*module, str(base / "texts.json"), str(threads), str(threads_of_operations)]

    parts = {"dynamic_batching": True, "num_batch_threads": threads}
    return {
        "zoo": command("serving_default", threads),
        f"zoo{IN_PARTS}": command("serving_default", 1, **parts),
        f"zoo, XLA{IN_PARTS}": command("xla", threads, **parts, xla=True),
    }


def our_commands_for_whole(workdir, threads, base):
    """Returns the command of the zoo's contestant for `--whole`, by name; see `our_commands`."""
    module = [sys.executable, "-m", "benchmarks.decoding.whole", str(Path(workdir).resolve()), str(SENTENCES)]
    return {"zoo": [*module, str(base / "texts.json"), str(threads)]}


def their_commands(options, base):
    """Returns the commands of CTranslate2's contestants, by name; see `our_commands`."""
    worker = [python_of("ctranslate2"), str(Path(__file__).with_name("ctranslate2_worker.py"))]
    worker += [str(base / "weights.npz"), str(base / "ids.json"), str(options.threads)]
    if options.whole:
        return {PEER: [*worker, str(SENTENCES)]}
    return {PEER: [*worker, "0"], f"{PEER}{IN_PARTS}": [*worker, str(MAX_BATCH_SIZE)]}


def main(arguments=None):
    parser = MeasurementParser("python -m benchmarks.decoding", __doc__, rounds=15)
    parser.add_argument("workdir")
    parser.add_argument("--text", required=True, help="source sentences, one a line")
    parser.add_argument("--whole", action="store_true", help="all sentences, in batches, with beam search")
    parser.add_count("threads", 2, "of each contestant")
    options = parser.parse_args(arguments)
    without_onednn()  # in all processes of ours, as `export.serve` and `training.evaluate` do
    run = zoo.load(options.workdir)
    texts, ids = choose(run, options.text, options.whole)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        write_weights(run, base / "weights.npz")
        (base / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        (base / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
        ours = (our_commands_for_whole if options.whole else our_commands)(options.workdir, options.threads, base)
        commands = {**ours, **their_commands(options, base)}
        with contextlib.ExitStack() as stack:
            workers = {name: stack.enter_context(Process(command)) for name, command in commands.items()}
            report(run, workers, options)


def report(run, workers, options):
    print(f"{where()}, {options.threads} threads, float32, {options.rounds} rounds\n")
    print("| search | | ms | tokens/s | ratio | same answers |")
    print("|---|---|---|---|---|---|")
    for beam in BEAMS[1:] if options.whole else BEAMS:
        print("\n".join(rows(beam, workers, run, options.rounds)), flush=True)


def rows(beam, workers, run, rounds):
    """Lets the contestants take turns at one kind of search, and returns a row of the table for each."""
    last = {}

    def measure(name):
        workers[name].tell(str(beam))
        last[name] = workers[name].answer()
        return last[name]["seconds"]

    times = take_turns({name: lambda name=name: measure(name) for name in workers}, rounds)
    spreads = {name: Spread.of([1000 * value for value in values]) for name, values in times.items()}
    fastest = min(spread.median for name, spread in spreads.items() if name.startswith(PEER))
    theirs = run.tokenizers.target.decode(last[PEER]["ids"])
    tokens = sum(map(len, last[PEER]["ids"])) + len(theirs)  # with the ends
    search = "greedy" if beam == 1 else f"beam {beam}"
    for name, spread in spreads.items():
        time = f"{spread.median:.0f} ({spread.low:.0f} to {spread.high:.0f})"
        cells = [search, name, time, f"{1000 * tokens / spread.median:,.0f}", "", ""]
        if not name.startswith(PEER):
            same = sum(a == b for a, b in zip(theirs, last[name]["texts"], strict=True))
            cells[-2:] = f"{fastest / spread.median:.2f}×", f"{same} of {len(theirs)}"
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
