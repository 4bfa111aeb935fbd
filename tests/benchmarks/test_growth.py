"""How cost grows with the length: slopes, the table and the plot."""

import dataclasses

import numpy as np
import pytest

from benchmarks import growth
from benchmarks import kept as keeping
from benchmarks.attention import Found, measure
from benchmarks.growth_cases import EXPONENTS, GROWTH, LENGTHS
from benchmarks.timing import Spread
from zoo import layers


def _found(name, seconds):
    found = Found(GROWTH[name], "a machine")
    for contestant in found.case.contestants:
        value = seconds(contestant.sizes.length)
        found.time[contestant.name] = Spread(value, value, value)
    return found


def test_slope():
    medians = {length: 3e-6 * length**2 for length in LENGTHS}
    assert growth.slope(medians) == pytest.approx(2.0)
    # What every length costs alike is left behind where lengths begin to count.
    assert growth.slope({**medians, 128: 5.0, 256: 5.0, 512: 5.0}) == pytest.approx(2.0)
    assert str(growth.slope({128: 1.0, 1024: 2.0})) == "nan"


def test_rows():
    assert growth.row(_found("multi_head", lambda length: length**2 / 1e8)).endswith("| 2.00 | 2 ± 0.15 | met |")
    assert growth.row(_found("linear", lambda length: length**1.2)).endswith("| 1.20 | 1 ± 0.15 | missed |")
    nothing = Found(GROWTH["multi_head"], "a machine")
    assert (
        growth.row(nothing)
        == "| MultiHeadAttention, B1 |" + " – |" * len(LENGTHS) + " not yet measured | 2 ± 0.15 |  |"
    )
    nothing.failed = {"MultiHeadAttention, T=128": "ended with status 1"}
    assert "not measured: ended with status 1 |" in growth.row(nothing)


def test_every_attention_layer_is_there():
    named = {name for name in layers.__all__ if name.endswith("Attention") or name == "AttentionPooling"}
    titles = {case.title.split(",")[0].split()[0] for case in GROWTH.values()}
    assert titles == named - {"BaseAttention", "Attention"}, "the layers that take any score stand for none"
    assert {contestant.sizes.length for contestant in GROWTH["dot"].contestants} == {*LENGTHS}
    linear = {name for name, exponent in EXPONENTS.items() if exponent == 1}
    assert linear == {f"growth_{name}" for name in ("sliding_window", "block_local", "linear", "performer", "pooling")}


def test_command(monkeypatch, tmp_path, capsys):
    asked = []

    def measured(case, rounds, memory_rounds, tiny):
        asked.append((case.name, rounds, memory_rounds, tiny))
        return _found("dot", lambda length: length**2 / 1e9)

    monkeypatch.setattr(keeping, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(growth, "measure", measured)
    plot = tmp_path / "growth.png"
    arguments = ["--layer", "dot", "--rounds", "2", "--tiny", "--plot", str(plot)]
    assert growth.main(arguments) == growth.main(arguments) == 0
    assert asked == [("growth_dot", 2, 1, True)]
    assert plot.read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "| DotAttention, B4 | 0.0 | 0.1 | 0.3 | 1.0 | 4.2 | 16.8 | 67.1 | 2.00 | 2 ± 0.15 | met |" in out
    assert "a machine." in out


def test_pooling_has_no_length_left():
    contestant = GROWTH["pooling"].contestants[0]
    gradient = contestant.step(contestant.sizes.tiny())()
    assert gradient.shape == (1, 8, 16) and np.isfinite(gradient).all() and np.abs(gradient).max() > 0


@pytest.mark.slow
def test_every_layer_runs():
    for case in GROWTH.values():
        case = dataclasses.replace(case, contestants=case.contestants[:1])  # tiny, all lengths are one
        assert not measure(case, rounds=1, memory_rounds=1, tiny=True).failed, case.name
