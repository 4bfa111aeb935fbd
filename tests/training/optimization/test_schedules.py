"""The learning rate over the steps."""

import math

import keras
import pytest

from training.optimization.schedules import WarmupSchedule


def test_rises_to_the_peak_and_falls_with_the_root():
    for warmup in (1, 4, 100):
        schedule = WarmupSchedule(0.5, warmup, shape="inverse_sqrt")
        for step in (1, 2, 3, 4, 50, 99, 100, 101, 400, 10_000):  # from 1, as papers count
            expected = 0.5 * step / warmup if step <= warmup else 0.5 * math.sqrt(warmup / step)
            assert float(schedule(step - 1)) == pytest.approx(expected, rel=1e-6)


def test_constant_stays_at_the_peak():
    schedule = WarmupSchedule(0.5, 4, shape="constant")
    assert [float(schedule(step)) for step in (0, 1, 3, 4, 9999)] == pytest.approx([0.125, 0.25, 0.5, 0.5, 0.5])


def test_without_warmup_the_first_step_has_the_peak():
    assert float(WarmupSchedule(0.5, 0, shape="constant")(0)) == pytest.approx(0.5)
    assert float(WarmupSchedule(0.5, 0, shape="inverse_sqrt")(0)) == pytest.approx(0.5)
    assert float(WarmupSchedule(0.5, 0, shape="inverse_sqrt")(3)) == pytest.approx(0.25)


def test_vaswani_2017_section_5_3():
    """`d^-0.5 · min(step^-0.5, step · warmup^-1.5)` is the schedule with the peak `(d · warmup)^-0.5`."""
    d, warmup = 128, 2000
    schedule = WarmupSchedule((d * warmup) ** -0.5, warmup, shape="inverse_sqrt")
    for step in (1, 500, 2000, 2001, 30_000):
        assert float(schedule(step - 1)) == pytest.approx(d**-0.5 * min(step**-0.5, step * warmup**-1.5), rel=1e-5)


@pytest.mark.parametrize("shape", ["inverse_sqrt", "constant", "cosine"])
def test_cooldown_multiplies_the_last_steps_down_to_zero(shape):
    """With 40 steps and a cooldown of a quarter, the last ten have 10/10, 9/10, … 1/10 of the rate; then it is zero.

    All batches of a step have its rate.
    """
    plain = WarmupSchedule(0.5, 4, shape, total_steps=40)
    cooled = WarmupSchedule(0.5, 4, shape, total_steps=40, cooldown=0.25)
    accumulated = WarmupSchedule(0.5, 4, shape, total_steps=40, cooldown=0.25, accumulate_steps=3)
    factors = [1.0] * 30 + [number / 10 for number in range(10, 0, -1)] + [0.0, 0.0]
    for step, factor in enumerate(factors):
        assert float(cooled(step)) == pytest.approx(float(plain(step)) * factor, rel=1e-5)
        for batch in range(3 * step, 3 * step + 3):
            assert float(accumulated(batch)) == float(cooled(step))


def test_config_round_trip():
    settings = {"peak": 0.3, "warmup_steps": 7, "shape": "cosine", "total_steps": 40, "cooldown": 0.75}
    settings |= {"final_rate": 0.2, "accumulate_steps": 3}
    schedule = WarmupSchedule(**settings)
    again = WarmupSchedule.from_config(schedule.get_config())
    assert again.get_config() == settings
    assert [float(again(step)) for step in (3, 20, 40)] == [float(schedule(step)) for step in (3, 20, 40)]


def test_an_optimizer_follows_it():
    variable = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(WarmupSchedule(0.4, 4, shape="inverse_sqrt"))
    for expected in (0.1, 0.2, 0.3, 0.4, 0.4 * math.sqrt(4 / 5)):
        assert float(optimizer.learning_rate) == pytest.approx(expected)
        optimizer.apply([keras.ops.ones((1,))], [variable])


def test_cosine_falls_from_the_peak_to_its_share_of_it():
    """Step 4 has the peak, step 12 halfway down (1 + 0.2) / 2 of it, step 20 a fifth."""
    schedule = WarmupSchedule(0.5, 4, "cosine", total_steps=20, final_rate=0.2)
    steps = (1, 2, 4, 8, 12, 16, 20, 30)
    quarter = math.cos(math.pi / 4)
    shares = (0.25, 0.5, 1, 0.2 + 0.4 * (1 + quarter), 0.6, 0.2 + 0.4 * (1 - quarter), 0.2, 0.2)
    assert [float(schedule(step - 1)) for step in steps] == pytest.approx([0.5 * share for share in shares])
