"""How cost grows with the length: slopes, the table and the plot."""

import pytest

from benchmarks import growth
from benchmarks.growth import CASES, LAYERS, LENGTHS
from benchmarks.runner import command, store
from zoo import layers


def _found(name, seconds):
    results = {each.label: {"seconds": [seconds(each.work["length"])]} for each in CASES[name].contestants}
    return {"where": "a machine", "results": results, "fastest": {}}


def test_slopes_and_rows():
    medians = {length: 3e-6 * length**2 for length in LENGTHS}
    assert growth.slope(medians) == pytest.approx(2.0)
    # What every length costs alike does not count: it is most of the time of short ones alone.
    assert growth.slope({**medians, 128: 5.0, 256: 5.0, 512: 5.0}) == pytest.approx(2.0)
    assert str(growth.slope({128: 1.0, 1024: 2.0})) == "nan"

    def row(name, found):
        return growth.row(CASES[name], found)

    assert row("multi_head", _found("multi_head", lambda length: length**2 / 1e8))[-3:] == ["2.00", "2 ± 0.15", "met"]
    assert row("linear", _found("linear", lambda length: length**1.2))[-3:] == ["1.20", "1 ± 0.15", "missed"]
    nothing = {"where": "a machine", "results": {}, "fastest": {}}
    columns = ["MultiHeadAttention, B1", "n²·d", "1", "1", *["–"] * len(LENGTHS)]
    assert row("multi_head", nothing) == [*columns, "not yet measured", "2 ± 0.15", ""]
    nothing["results"] = {"MultiHeadAttention, T=128": {"failed": "ended with status 1"}}
    assert row("multi_head", nothing)[-3] == "not measured: ended with status 1"


NOT_MEASURED = {
    "MonotonicAttention": "one query after the other, and in training T · S², too much for 8,192 positions",
}


def test_every_attention_layer_is_there_or_said_not_to_be():
    named = {name for name in layers.__all__ if name.endswith("Attention") or name == "AttentionPooling"}
    takes_any_score = {"BaseAttention", "Attention", "SelfAttention"}
    assert {layer.name for layer in LAYERS.values() if "." not in layer.name} == named - takes_any_score - {
        *NOT_MEASURED
    }
    assert {contestant.work["length"] for contestant in CASES["dot"].contestants} == {*LENGTHS}
    quadratic = {name for name, layer in LAYERS.items() if layer.exponent == 2}
    assert {name for name in quadratic if not LAYERS[name].multiplications.startswith("n²")} == set()
    linear = {*LAYERS} - quadratic
    by_state = {"gated_linear", "delta_rule", "average", "recurrence"}
    assert linear == {"sliding_window", "block_local", "linear", "performer", "pooling", "convolution", *by_state}


def test_what_is_compared_has_its_size_and_paths():
    in_theory = {name: LAYERS[name][4:7] for name in ("recurrence", "convolution", "scaled_dot")}
    assert in_theory == {
        "recurrence": ("n·d²", "n", "n"),
        "convolution": ("k·n·d²", "1", "n/k"),
        "scaled_dot": ("n²·d", "1", "1"),
    }
    for names in (("additive_wide", "dot_wide"), ("one_head", "eight_heads", "eight_layers")):
        works = [[each.work for each in CASES[name].contestants] for name in names]
        for same_length in zip(*works, strict=True):
            assert len({(work["batch"], work["length"], work["dim"]) for work in same_length}) == 1


def test_command(monkeypatch, tmp_path, capsys):
    asked, lengths = [], []

    def measured(case, **settings):
        asked.append((case.name, settings))
        lengths.append([each.work["length"] for each in case.contestants])
        return _found("dot", lambda length: length**2 / 1e9)

    monkeypatch.setattr(store, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(command.load_or_measure_case, "__defaults__", (measured, ()))
    plot = tmp_path / "growth.png"
    arguments = ["--layer", "dot", "--rounds", "2", "--tiny", "--plot", str(plot)]
    assert growth.main(arguments) == growth.main(arguments) == 0
    assert asked == [("dot", {"rounds": 2, "tiny": True})]
    assert plot.read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "| layer | multiplications | steps in sequence | longest path | T 128 | T 256 |" in out
    assert (
        "| DotAttention, B4 | n²·d | 1 | 1 | 0.0 | 0.1 | 0.3 | 1.0 | 4.2 | 16.8 | 67.1 | 2.00 | 2 ± 0.15 | met |" in out
    )
    assert "a machine." in out
    assert growth.main([*arguments, "--length", "1024", "--length", "2048"]) == 0
    assert lengths == [[*LENGTHS], [1024, 2048]]
    assert "| – | – | – | 1.0 | 4.2 | – | – | 2.00 | 2 ± 0.15 |  |" in capsys.readouterr().out


def test_processor_time(monkeypatch, tmp_path, capsys):
    found = _found("dot", lambda length: length**2 / 1e9)
    for result in found["results"].values():
        result["processor"] = [3 * seconds for seconds in result["seconds"]]
    monkeypatch.setattr(store, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(command.load_or_measure_case, "__defaults__", (lambda case, **settings: found, ()))
    assert growth.main(["--layer", "dot", "--tiny", "--processor", "--plot", str(tmp_path / "growth.png")]) == 0
    out = capsys.readouterr().out
    assert "ms of processor time" in out and "| 201.3 | 2.00 | 2 ± 0.15 | met |" in out
