"""Steps of training beside the peers: cases, targets, the text of an epoch, tables, the command."""

import ast
from pathlib import Path

import keras
import pytest
from support.tiny_runs import write_text

from benchmarks import peers, training, zoo_adapter
from benchmarks.peers.batches import END, PAD, START, text_batches
from benchmarks.runner import command, store
from benchmarks.runner.case import ZOO
from benchmarks.runner.environments import REQUIREMENTS
from benchmarks.training import CASES, PRECISIONS, epoch_case

PEERS = Path(peers.__file__).parent


@pytest.fixture(scope="module")
def epoch(tmp_path_factory):
    """The case of a small text in the tests' own folder."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the measurements run on TensorFlow")
    folder = tmp_path_factory.mktemp("epoch")
    write_text(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "FOLDER", folder / "stored")
        patch.setattr(training, "BATCH_TOKENS", 64)
        yield epoch_case(f"text:{folder}:en-de")


def test_targets_compare_ours_with_all_peers_in_the_precision():
    bounds = {(name, target.what): target.bound for name, case in CASES.items() for target in case.targets}
    assert bounds[("transformer_step", "float32")] == 1.3
    assert bounds[("transformer_step", "each at its fastest precision")] == 2.0
    assert bounds[("wide_step", "fastest precision against KerasHub in mixed_bfloat16")] == 2.5
    for name in ("rnnsearch_step", "luong_step"):
        assert bounds[(name, "float32")] == bounds[(name, "each at its fastest precision")] == 2.0
    case = CASES["transformer_step"]
    labels = [contestant.label for contestant in case.contestants]
    same, fastest = case.targets
    assert [label for label in labels if same.is_contestant(label)] == ["zoo, float32"]
    assert [label for label in labels if fastest.is_contestant(label)] == ["zoo, float32", "zoo, bfloat16"]
    assert all(fastest.is_peer(label) != label.startswith("zoo") for label in labels)
    assert all("float32" in label and fastest.is_peer(label) for label in labels if same.is_peer(label))
    assert sum(map(same.is_peer, labels)) == 8 and sum(map(fastest.is_peer, labels)) == 14
    case = CASES["wide_step"]
    assert case.among([]) == case
    labels = [contestant.label for contestant in case.among(["zoo, b", "KerasHub"]).contestants]
    assert labels == ["zoo, bfloat16", "KerasHub, float32", "KerasHub, bfloat16"]
    assert all(case.groups == [*PRECISIONS] for case in CASES.values())


def test_contestants_have_an_adapter_and_an_environment():
    for case in CASES.values():
        labels = [contestant.label for contestant in case.contestants]
        assert len(set(labels)) == len(labels)
        for contestant in case.contestants:
            if contestant.name != ZOO:
                module, _, function = contestant.adapter.rpartition(".")[2].partition(":")
                source = (PEERS / f"{module}.py").read_text(encoding="utf-8")
                assert f"\ndef {function}(" in source and contestant.environment in REQUIREMENTS
            task = case.task(contestant, threads=3, tiny=True)
            assert task["threads"] == 3 and task["precision"] == contestant.group and task["batch"] == 2


def test_adapters_import_nothing_of_this_project_but_the_protocol():
    for file in PEERS.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
            ours = [name for name in names if name.split(".")[0] in ("zoo", "training", "export", "benchmarks", "")]
            allowed = ("benchmarks.peers", "benchmarks.runner.worker", "benchmarks.runner.memory")
            assert all(name.startswith(allowed) for name in ours), file


def _pairs(batches):
    """Returns the pairs of batches, each with what was asked of its target, and checks that they fit together."""
    pairs = []
    for source, target, outputs in batches:
        assert (target[:, 0] == START).all() and max(source.shape[1], target.shape[1]) * len(source) <= 64
        for row, following, asked in zip(source, target, outputs, strict=True):
            tokens = [*asked[asked != PAD]]
            assert tokens[-1] == END and tokens[:-1] == [*following[1 : len(tokens)]]
            assert (following[len(tokens) :] == PAD).all(), "padding comes last"
            pairs.append((tuple(row[row != PAD]), tuple(tokens)))
    return sorted(pairs)


def test_every_pair_is_there_once_and_ours_reads_the_same_ones(epoch):
    task = epoch.task(epoch.contestants[0], threads=1)
    pairs = _pairs(text_batches(task))
    assert len(pairs) == 300
    read = zoo_adapter.read(task, zoo_adapter.configure(task))
    batches = [read[index] for index in range(len(read))]
    assert _pairs((inputs["source"], inputs["target"], outputs) for inputs, outputs, _ in batches) == pairs
    tokens = sum(len(asked) for _, asked in pairs)
    assert sum(weights.sum() for *_, weights in batches) == epoch.work["tokens"] == tokens


def test_epoch_case_has_those_contestants_that_need_no_compiler(epoch):
    labels = {contestant.label for contestant in epoch.contestants}
    steps = {contestant.label for contestant in CASES["transformer_step"].contestants}
    assert labels < steps and {"zoo, bfloat16", "OpenNMT-tf, float32", "Joey NMT, float32"} < labels
    assert not any("compile" in label or "XLA" in label for label in labels)
    task = epoch.task(epoch.contestants[0], threads=1, tiny=True)
    assert task["layers"] == 4 and task["vocabulary"] > 50, "sizes are those of the text"
    assert not epoch.compare_fastest, "epochs take long"
    result = {"seconds": [12.5], "processor": [20.0], "last": {"peak": 1e9}, "parameters": 7, "versions": {}}
    text = training.section(epoch, {"where": "a machine", "results": {"zoo, float32": result}, "fastest": {}})
    assert "| contestant | precision | epoch |" in text
    assert f"| 12.5 s (12.5–12.5) | 20.0 s | {epoch.work['tokens'] / 12.5:,.0f} | 1,000 MB | 7 |" in text
    assert "| each at its fastest precision | not yet measured | ≥ 3.00× |  |" in text


def test_section():
    case = CASES["wide_step"]
    seconds = {"zoo, float32": 0.4, "zoo, bfloat16": 0.2, "KerasHub, float32": 0.5, "KerasHub, bfloat16": 0.6}
    common = {"parameters": 2_605_568, "last": {"peak": 2e9}, "versions": {"keras": "3.15.1"}}
    results = {label: {**common, "seconds": [value], "processor": [2 * value]} for label, value in seconds.items()}
    fastest = {label: results[label] for label in ("zoo, bfloat16", "KerasHub, float32")}
    lines = training.section(case, {"where": "a machine", "results": results, "fastest": fastest}).splitlines()
    for line in (
        "| contestant | precision | step | processor time | target tokens/s | peak memory | parameters |"
        " what it does |",
        "| zoo | float32 | 400.0 ms (400.0–400.0) | 800.0 ms | 5,120 | 2,000 MB | 2,605,568 |"
        " pre-norm, one matrix for all embeddings; metrics |",
        "| ratio to the fastest peer | found | target | |",
        "| float32 | 1.25× | ≥ 1.30× | missed |",
        "| fastest precision against KerasHub in mixed_bfloat16 | 3.00× | ≥ 2.50× | met |",
        "In turns with one another, each at its fastest precision: zoo, bfloat16 200.0 ms, KerasHub, float32 500.0 ms.",
        "a machine. keras 3.15.1.",
    ):
        assert line in lines, line


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What is measured by the command, which finds nothing."""
    asked = []

    def measured(case, **settings):
        asked.append((case.name, [each.label for each in case.contestants], settings))
        return {"where": "a machine", "results": {}, "fastest": {}}

    monkeypatch.setattr(store, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(command.load_or_measure_case, "__defaults__", (measured, ()))
    return asked


def test_command(asked, capsys):
    arguments = ["--case", "wide_step", "--rounds", "3", "--threads", "1", "--tiny"]
    assert training.main(arguments) == training.main(arguments) == 0
    ((name, labels, settings),) = asked  # the second time it is loaded
    assert name == "wide_step" and len(labels) == 4 and settings == {"rounds": 3, "threads": 1, "tiny": True}
    assert training.main([*arguments, "--contestant", "zoo, f", "--contestant", "Ke"]) == 0
    assert asked[1][1] == ["zoo, float32", "KerasHub, float32", "KerasHub, bfloat16"]
    out = capsys.readouterr().out
    assert "Median of 3 turns" in out and "1 threads each" in out and "D 256" in out and "Tiny sizes" in out
    for arguments in (["--case", "nothing"], ["--rounds", "0"], ["--threads", "-1"]):
        with pytest.raises(SystemExit) as error:
            training.main(arguments)
        assert error.value.code == 2
        assert arguments[1] in capsys.readouterr().err


def test_command_of_an_epoch(epoch, asked, monkeypatch, capsys):
    monkeypatch.setattr(training, "epoch_case", lambda spec: epoch)
    assert training.main(["--case", "epoch", "--data", "text:somewhere:en-de"]) == 0
    assert asked[0][0] == "epoch" and asked[0][2]["rounds"] == training.MAX_EPOCHS
    assert "300 pairs en-de" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        training.main(["--case", "epoch"])
    assert "--data" in capsys.readouterr().err
