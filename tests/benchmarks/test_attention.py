"""The cases of attention: what they name exists, each pass runs in tiny sizes, and the command."""

import pytest

from benchmarks import attention
from benchmarks.attention import CASES
from benchmarks.runner import command, report, store
from zoo import layers


def test_targets_name_contestants_with_layers_that_exist():
    for case in CASES.values():
        labels = [contestant.label for contestant in case.contestants]
        assert len(set(labels)) == len(labels)
        for target in case.targets:
            assert set(target.contestants) <= set(labels) and set(target.peers) <= set(labels), target
            assert target.peers or target.kind == "bytes"
    bounds = {
        (name, target.kind, *(peer.split(",")[0] for peer in target.peers)): target.bound
        for name, case in CASES.items()
        for target in case.targets
        if not target.contestants[0].endswith("bfloat16")
    }
    assert bounds[("additive", "memory", "keras.layers.AdditiveAttention")] == 40
    assert bounds[("additive", "speed", "keras.layers.AdditiveAttention")] == 4
    assert bounds[("scaled_dot", "memory", "keras.ops.dot_product_attention")] == 12
    assert bounds[("scaled_dot", "bytes")] == 140e6
    assert bounds[("scaled_dot", "speed", "keras.ops.dot_product_attention")] == 1.5
    assert bounds[("multi_head", "speed", "keras.layers.MultiHeadAttention")] == 1.3
    assert bounds[("multi_head_long", "memory", "keras.layers.MultiHeadAttention")] is None
    assert bounds[("sliding_window", "time slope", "zoo.layers.SlidingWindowAttention")] == 1.15
    assert bounds[("linear", "memory slope", "zoo.layers.LinearAttention")] == 1.15
    assert {contestant.work["length"] for contestant in CASES["linear"].contestants} == {4096, 16384}
    ours = [each for case in CASES.values() for each in case.contestants if each.name.startswith("zoo.layers")]
    named = [each.work["layer"]["class"].rpartition(".") for each in ours]
    assert ours and not [name for module, _, name in named if module != "zoo.layers" or not hasattr(layers, name)]


def test_our_layers_on_processors_run_in_bfloat16_too():
    for case in CASES.values():
        if case.name in ("gpu", "eager"):
            continue
        targets = {target.contestants[0]: target for target in case.targets}
        ours = {each.name: each.work for each in case.contestants if each.name.startswith("zoo.")}
        full = {name: work for name, work in ours.items() if not work["half"]}
        half = {name: work for name, work in ours.items() if work["half"]}
        assert half == {f"{name}, bfloat16": {**work, "half": True} for name, work in full.items()}
        for name in full:
            target = targets[f"{name}, bfloat16"]
            assert (target.kind, target.peers, target.bound) == ("speed", (name,), 2)


def test_command(monkeypatch, tmp_path, capsys):
    asked = []

    def measured(case, **settings):
        asked.append((case.name, settings))
        label = case.contestants[0].label
        result = {"seconds": [0.1], "processor": [0.1], "extra_memory": [1e8], "versions": {}}
        return {"where": "a machine, commit abc", "results": {label: result}, "fastest": {}}

    monkeypatch.setattr(store, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(command.load_or_measure_case, "__defaults__", (measured, ()))
    file = tmp_path / "new" / "table.md"
    arguments = ["--case", "additive", "--rounds", "5", "--memory_rounds", "2", "--tiny", "--output", str(file)]
    assert attention.main(arguments) == attention.main(arguments) == 0
    assert asked == [("additive", {"rounds": 5, "starts": 2, "tiny": True})], "the second time it is loaded"
    out = capsys.readouterr().out
    assert out == 2 * file.read_text(encoding="utf-8")
    assert "median of 5 turns" in out and "median of 2 fresh processes" in out and "Tiny sizes" in out
    time = "100.0 ms (100.0–100.0)"
    assert f"| zoo.layers.AdditiveAttention | two projections | {time} | {time} | 100.0 MB" in out
    for arguments in (["--case", "nothing"], ["--rounds", "0"], ["--before", "nowhere"]):
        with pytest.raises(SystemExit) as error:
            attention.main(arguments)
        assert error.value.code == 2
        assert arguments[1] in capsys.readouterr().err


def test_layers_beside_those_of_another_checkout(tmp_path):
    case = attention.beside(CASES["causal"], tmp_path)
    here, there = case.contestants
    assert here.work == {name: value for name, value in there.work.items() if name != "checkout"}
    assert there.work["checkout"] == str(tmp_path) and "keras" not in here.name
    assert [target.kind for target in case.targets] == ["speed", "processor", "memory"]
    results = {
        each.label: {"seconds": [time], "processor": [3 * time], "extra_memory": [time]}
        for each, time in zip(case.contestants, (1.0, 2.0), strict=True)
    }
    found = [report.target_value(case, {"results": results}, target) for target in case.targets]
    assert found == [2, 2, 2]
