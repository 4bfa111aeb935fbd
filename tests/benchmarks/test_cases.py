"""The cases of the measurements: what they name exists, and each pass runs in tiny sizes."""

import dataclasses
import importlib
import inspect

import keras
import numpy as np
import pytest

from benchmarks import steps
from benchmarks.cases import CASES, Sizes
from zoo import layers

if keras.backend.backend() != "tensorflow":
    pytest.skip("the measurements run on TensorFlow", allow_module_level=True)

OURS = [
    pytest.param(case, contestant, id=f"{name}-{contestant.name}")
    for name, case in CASES.items()
    for contestant in case.contestants
    if contestant.backend == "tensorflow" and not contestant.name.startswith("torch")
]


def test_targets_name_contestants():
    for case in CASES.values():
        names = [contestant.name for contestant in case.contestants]
        assert len(set(names)) == len(names)
        for target in case.targets:
            assert target.ours in names and (target.peer in names or target.kind == "bytes"), target


def test_the_table_of_the_issue():
    bounds = {
        (name, target.kind, target.peer.split(",")[0]): target.bound
        for name, case in CASES.items()
        for target in case.targets
        if not target.ours.endswith("bfloat16")
    }
    assert bounds[("additive", "memory", "keras.layers.AdditiveAttention")] == 40
    assert bounds[("additive", "speed", "keras.layers.AdditiveAttention")] == 4
    assert bounds[("scaled_dot", "memory", "keras.ops.dot_product_attention")] == 12
    assert bounds[("scaled_dot", "bytes", "")] == 140e6
    assert bounds[("scaled_dot", "speed", "keras.ops.dot_product_attention")] == 1.5
    assert bounds[("multi_head", "speed", "keras.layers.MultiHeadAttention")] == 1.3
    assert bounds[("sliding_window", "time slope", "zoo.layers.SlidingWindowAttention")] == 1.15
    assert bounds[("linear", "memory slope", "zoo.layers.LinearAttention")] == 1.15
    assert {contestant.sizes.length for contestant in CASES["linear"].contestants} == {4096, 16384}


def test_our_layers_on_processors_run_in_bfloat16_too():
    for case in CASES.values():
        if case.name == "gpu":
            continue
        targets = {target.ours: target for target in case.targets if target.ours.endswith(", bfloat16")}
        ours = [each for each in case.contestants if each.name.startswith("zoo.")]
        full = {each.name: each.sizes for each in ours if not each.sizes.half}
        assert {each.name: each.sizes for each in ours if each.sizes.half} == {
            f"{name}, bfloat16": dataclasses.replace(sizes, half=True) for name, sizes in full.items()
        }
        assert {name: (each.kind, each.peer, each.bound) for name, each in targets.items()} == {
            f"{name}, bfloat16": ("speed", name, 2) for name in full
        }


def test_tiny_sizes_are_tiny():
    tiny = Sizes(batch=8, length=16384, dim=512, heads=8, window=128, half=True).tiny()
    assert tiny == Sizes(batch=1, length=16, dim=16, heads=2, window=2, half=True, anywhere=True)
    assert (tiny.head_dim, tiny.policy) == (8, "mixed_bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize(("case", "contestant"), OURS)
def test_pass_runs(case, contestant):
    try:
        step = contestant.step(contestant.sizes.tiny())
    except steps.Unavailable as error:
        # A layer that is there has to run.
        name = contestant.name.split(",")[0].rpartition(".")[2]
        assert not hasattr(layers, name), error
        pytest.skip(str(error))
    assert np.all(np.isfinite(np.asarray(step(), "float32")))


@pytest.mark.parametrize("name", ["scaled_dot", "multi_head", "gpu"])
def test_torch_pass_runs(name):
    pytest.importorskip("torch")
    (contestant,) = (each for each in CASES[name].contestants if each.name.startswith("torch"))
    gradient = contestant.step(contestant.sizes.tiny())()
    assert bool(gradient.isfinite().all())


def test_gradients_are_those_of_the_layer():
    import tensorflow as tf

    layer = keras.layers.Dense(3)
    step = steps.tensorflow_step(layer, [(2, 5, 3)])
    (direction,) = steps.arrays([(2, 5, 3)])
    np.testing.assert_allclose(step(), direction @ tf.transpose(layer.kernel).numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_not_there_is_told():
    with pytest.raises(steps.Unavailable, match="zoo.layers has no Nothing"):
        steps.layer("zoo.layers.Nothing")
    with pytest.raises(steps.Unavailable, match="no_such_package is not installed"):
        steps.package("no_such_package")


def test_options_of_linear_layers_are_theirs():
    from benchmarks.cases import LINEAR

    for _, path, options in LINEAR:
        module, _, name = path.rpartition(".")
        if hasattr(importlib.import_module(module), name):
            accepted = inspect.signature(getattr(layers, name)).parameters
            given = options(Sizes(batch=1, length=8, dim=16, heads=2, window=2))
            assert set(given) <= set(accepted) or any(each.kind is each.VAR_KEYWORD for each in accepted.values())
