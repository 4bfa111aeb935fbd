"""The scalings of rotary positions against the papers' formulas, pair by pair, and those of checkpoints' code."""

import functools
import math

import numpy as np
from support.every import assert_refused, every
from support.layers.contract import random_array, to_numpy
from support.layers.positions import rotate

from zoo.layers import RotaryPositions

W, R, S, L = 10000.0, 18, 4.0, 256
YARN = {"rope_type": "yarn", "factor": S, "original_max_position_embeddings": L, "beta_fast": 16.0, "beta_slow": 0.5}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": L,
}


def _plain():
    return [W ** (-2 * i / R) for i in range(R // 2)]


def _by_parts(theta):
    """Returns one angle of "NTK by parts": equations 17-20 of Peng et al. 2023."""
    ratio = L / (2 * math.pi / theta)
    gamma = 0.0 if ratio < 0.5 else 1.0 if ratio > 16 else (ratio - 0.5) / (16 - 0.5)
    return (1 - gamma) * theta / S + gamma * theta


def _by_pairs(truncate, length=L, betas=(16, 0.5)):
    """Returns the angles of YaRN in the code of its authors: the ramp grows with the number of the pair."""
    first, last = (R * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(W)) for turns in betas)
    first, last = (math.floor(first), math.ceil(last)) if truncate else (first, last)
    ramp = [min(max((i - max(first, 0)) / (min(last, R - 1) - max(first, 0)), 0), 1) for i in range(R // 2)]
    return [theta / S * part + theta * (1 - part) for theta, part in zip(_plain(), ramp, strict=True)]


def _llama3(theta):
    """Returns one angle as the code published with Llama 3.1 does."""
    wavelength = 2 * math.pi / theta
    if wavelength < L / 4:
        return theta
    if wavelength > L / 1:
        return theta / 8
    smooth = (L / wavelength - 1) / (4 - 1)
    return (1 - smooth) * theta / 8 + smooth * theta


LAYOUTS = ("interleaved", "half_split")
YARN_TEMPERATURE = 0.1 * math.log(S) + 1
ANGLES = {
    "linear": ({"rope_type": "linear", "factor": S}, [theta / S for theta in _plain()], 1.0),
    "ntk": ({"rope_type": "ntk", "factor": S}, [(W * S ** (R / (R - 2))) ** (-2 * i / R) for i in range(R // 2)], 1.0),
    "yarn": (YARN, _by_pairs(True), YARN_TEMPERATURE),
    "yarn_with_the_betas_of_the_paper": (
        {"rope_type": "yarn", "factor": S, "original_max_position_embeddings": 2048},
        _by_pairs(True, 2048, (32, 1)),
        YARN_TEMPERATURE,
    ),
    "yarn_untruncated": ({**YARN, "truncate": False}, _by_pairs(False), YARN_TEMPERATURE),
    "yarn_of_the_paper": ({**YARN, "ramp": "rotations"}, [_by_parts(theta) for theta in _plain()], YARN_TEMPERATURE),
    "yarn_with_a_factor": ({**YARN, "attention_factor": 1.3}, _by_pairs(True), 1.3),
    "yarn_of_deepseek": (
        {**YARN, "mscale": 0.5, "mscale_all_dim": 2.0},
        _by_pairs(True),
        (0.05 * math.log(S) + 1) / (0.2 * math.log(S) + 1),
    ),
    "llama3": (LLAMA3, [_llama3(theta) for theta in _plain()], 1.0),
}


def test_angles_and_lengths_are_those_of_the_formula():
    heads = random_array((2, 3, 5, 19), 1)
    with every() as failures:
        for number, (name, (scaling, rates, length)) in enumerate(ANGLES.items()):
            for layout in LAYOUTS if name == "yarn" else (LAYOUTS[number % 2],):
                with failures.of((name, layout)):
                    output = to_numpy(RotaryPositions(W, layout=layout, scaling=scaling)(heads, start_index=7))
                    for b, n, t in np.ndindex(2, 3, 5):
                        expected = rotate(heads[b, n, t], 7 + t, R, W, rates, layout)
                        expected[:R] *= length
                        np.testing.assert_allclose(output[b, n, t], expected, atol=2e-6)


def test_the_references_differ_where_they_should():
    rates = {name: np.array(rates) for name, (_, rates, _) in ANGLES.items()}
    for one, other in (("yarn", "yarn_of_the_paper"), ("yarn", "yarn_untruncated"), ("llama3", "linear")):
        assert np.abs(rates[one] / rates[other] - 1).max() > 1e-2
    kept = rates["yarn_of_the_paper"] / _plain()
    assert kept[0] == 1 and kept[-1] == 1 / S and 1 / S < kept[3] < 1  # all three parts of the ramp are there


def test_by_hand():
    # Two pairs: 1 and 1/100 radians for a step. Linear: a quarter. NTK: w' = 10000 · 4², so that 1/√w' = 1/400.
    heads = np.array([[[[1.0, 0.0, 1.0, 0.0]] * 2]], "float32")
    for kind, angles in (("linear", (0.25, 0.0025)), ("ntk", (1.0, 0.0025))):
        output = to_numpy(RotaryPositions(scaling={"rope_type": kind, "factor": 4.0})(heads))[0, 0, 1]
        expected = [math.cos(angles[0]), math.sin(angles[0]), math.cos(angles[1]), math.sin(angles[1])]
        np.testing.assert_allclose(output, expected, atol=1e-6)


def test_a_factor_of_one_changes_nothing():
    heads = random_array((1, 1, 5, 8), 1)
    for scaling in (YARN, LLAMA3, {"rope_type": "ntk", "factor": 2}):
        output = to_numpy(RotaryPositions(scaling={**scaling, "factor": 1})(heads))
        np.testing.assert_allclose(output, to_numpy(RotaryPositions()(heads)), atol=1e-6)


def test_a_ramp_outside_the_pairs():
    heads, scaling = random_array((1, 1, 4, 8), 1), {"rope_type": "yarn", "factor": S, "attention_factor": 1.0}
    for length, w, kept in ((10**6, 8.0, 1.0), (1, 1e4, 1 / S)):
        output = to_numpy(RotaryPositions(w, scaling={**scaling, "original_max_position_embeddings": length})(heads))
        rates = [w ** (-2 * i / 8) * (kept if i else 1.0) for i in range(4)]  # the ramp begins at the first pair
        for t in range(4):
            np.testing.assert_allclose(output[0, 0, t], rotate(heads[0, 0, t], t, 8, w, rates), atol=2e-6)


def test_layouts_are_an_order_of_the_features():
    heads = random_array((2, 3, 5, 11), 1)
    order = np.array([0, 2, 4, 6, 8, 1, 3, 5, 7, 9, 10])
    split = to_numpy(RotaryPositions(layout="half_split")(heads[..., order]))
    np.testing.assert_allclose(split, to_numpy(RotaryPositions()(heads))[..., order], atol=1e-6)


def test_partial_rotation_scales_what_it_rotates():
    heads = random_array((1, 1, 5, 8), 1)
    output = to_numpy(RotaryPositions(fraction=0.5, layout="half_split", scaling=YARN)(heads))
    np.testing.assert_array_equal(output[..., 4:], heads[..., 4:])
    lengths = np.sum(output[..., :4] ** 2, -1) / np.sum(heads[..., :4] ** 2, -1)
    np.testing.assert_allclose(lengths, YARN_TEMPERATURE**2, rtol=1e-5)


def test_configs_of_before_load():
    layer = RotaryPositions(97.0, 0.5)
    config = layer.get_config()
    del config["layout"], config["scaling"]
    assert RotaryPositions.from_config(config).get_config() == layer.get_config()


WRONG = [
    ({"layout": "halves"}, "layout.*halves"),
    ({"scaling": "linear"}, "scaling.*rope_type.*linear"),
    ({"scaling": {"rope_type": "dynamic", "factor": 2}}, "rope_type.*'dynamic'"),
    ({"scaling": {"rope_type": "linear"}}, "linear.*factor"),
    ({"scaling": {"rope_type": "linear", "factor": 2, "s": 1}}, "linear.* s;"),
    ({"scaling": {"rope_type": "linear", "factor": 0.5}}, "factor=0.5"),
    ({"scaling": {"rope_type": "linear", "factor": "2"}}, "factor='2'"),
    ({"scaling": {**YARN, "beta_slow": 16}}, "beta_slow=16.*beta_fast=16.0"),
    ({"scaling": {**YARN, "ramp": "steps"}}, "ramp='steps'"),
    ({"scaling": {**YARN, "truncate": 1}}, "truncate=1"),
    ({"scaling": {**YARN, "attention_factor": 0}}, "attention_factor=0"),
    ({"scaling": {**LLAMA3, "low_freq_factor": 4.0}}, "low_freq_factor=4.0.*high_freq_factor=4.0"),
    ({"scaling": YARN, "max_wavelength": 1.0}, "max_wavelength=1.0"),
]


def test_errors():
    cases = [(functools.partial(RotaryPositions, **options), pattern) for options, pattern in WRONG]
    layer = RotaryPositions(scaling={"rope_type": "ntk", "factor": 2})
    cases.append((lambda: layer(np.zeros((1, 1, 2, 3), "float32")), "ntk.*2"))  # which needs two pairs
    assert_refused(cases)
