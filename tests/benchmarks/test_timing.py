"""How measurements are taken in turns and summed up."""

import pytest

from benchmarks.timing import Spread, take_turns, where


def test_spread_by_hand():
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)
    assert Spread.of([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(3.0, 2.0, 4.0)


def test_contestants_take_turns():
    calls = []

    def contestant(name):
        def measure():
            calls.append(name)
            return float(len(calls))

        return measure

    found = take_turns({"a": contestant("a"), "b": contestant("b")}, rounds=2, warm_up=1)
    assert calls == ["a", "b"] * 3
    assert found == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


def test_where_names_machine_and_commit():
    assert "AMX" in where() and "cores, commit " in where()


@pytest.mark.parametrize("rounds", [0])
def test_nothing_measured_is_nothing_found(rounds):
    assert take_turns({"a": lambda: 1.0}, rounds=rounds) == {"a": []}
