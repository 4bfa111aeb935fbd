"""The learning rate over the steps."""

import math

import keras
import pytest

from training.schedules import WarmupSchedule


@pytest.mark.parametrize("warmup", [1, 4, 100])
def test_rises_to_the_peak_and_falls_with_the_root(warmup):
    schedule = WarmupSchedule(0.5, warmup, inverse_sqrt=True)
    for step in (1, 2, 3, 4, 50, 99, 100, 101, 400, 10_000):  # from 1, as papers count
        expected = 0.5 * step / warmup if step <= warmup else 0.5 * math.sqrt(warmup / step)
        assert float(schedule(step - 1)) == pytest.approx(expected, rel=1e-6)


def test_constant_stays_at_the_peak():
    schedule = WarmupSchedule(0.5, 4, inverse_sqrt=False)
    assert [float(schedule(step)) for step in (0, 1, 3, 4, 9999)] == pytest.approx([0.125, 0.25, 0.5, 0.5, 0.5])


def test_without_warmup_the_first_step_has_the_peak():
    assert float(WarmupSchedule(0.5, 0, inverse_sqrt=False)(0)) == pytest.approx(0.5)
    assert float(WarmupSchedule(0.5, 0, inverse_sqrt=True)(0)) == pytest.approx(0.5)
    assert float(WarmupSchedule(0.5, 0, inverse_sqrt=True)(3)) == pytest.approx(0.25)


def test_vaswani_2017_section_5_3():
    """`d^-0.5 · min(step^-0.5, step · warmup^-1.5)` is the schedule with the peak `(d · warmup)^-0.5`."""
    d, warmup = 128, 2000
    schedule = WarmupSchedule((d * warmup) ** -0.5, warmup, inverse_sqrt=True)
    for step in (1, 500, 2000, 2001, 30_000):
        assert float(schedule(step - 1)) == pytest.approx(d**-0.5 * min(step**-0.5, step * warmup**-1.5), rel=1e-5)


@pytest.mark.parametrize("inverse_sqrt", [True, False])
def test_cooldown_multiplies_the_last_steps_down_to_zero(inverse_sqrt):
    """With 40 steps and a cooldown of a quarter, the last ten have 10/10, 9/10, … 1/10 of the rate; then it is zero."""
    plain = WarmupSchedule(0.5, 4, inverse_sqrt)
    cooled = WarmupSchedule(0.5, 4, inverse_sqrt, total_steps=40, cooldown=0.25)
    factors = [1.0] * 30 + [number / 10 for number in range(10, 0, -1)] + [0.0, 0.0]
    for step, factor in enumerate(factors):
        assert float(cooled(step)) == pytest.approx(float(plain(step)) * factor, rel=1e-5)


def test_config_round_trip():
    settings = {"peak": 0.3, "warmup_steps": 7, "inverse_sqrt": True, "total_steps": 40, "cooldown": 0.75}
    schedule = WarmupSchedule(**settings)
    again = WarmupSchedule.from_config(schedule.get_config())
    assert again.get_config() == settings
    assert [float(again(step)) for step in (3, 20, 40)] == [float(schedule(step)) for step in (3, 20, 40)]


def test_an_optimizer_follows_it():
    variable = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(WarmupSchedule(0.4, 4, inverse_sqrt=True))
    for expected in (0.1, 0.2, 0.3, 0.4, 0.4 * math.sqrt(4 / 5)):
        assert float(optimizer.learning_rate) == pytest.approx(expected)
        optimizer.apply([keras.ops.ones((1,))], [variable])


def test_the_rate_falls_to_zero_over_the_cooldown_and_is_the_same_before():
    plain = WarmupSchedule(0.5, 2, inverse_sqrt=True)
    cooled = WarmupSchedule(0.5, 2, inverse_sqrt=True, total_steps=10, cooldown=0.4)
    factors = [float(cooled(step)) / float(plain(step)) for step in range(12)]
    assert factors == pytest.approx([1] * 7 + [0.75, 0.5, 0.25, 0, 0])
