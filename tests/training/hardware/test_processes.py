"""Training over several processes: whatever their number, it is the training of one."""

import numpy as np
import pytest
from support.processes import SETTINGS, Trainings, write_lines

import zoo

pytestmark = pytest.mark.slow
NEW = ["--model", "causal_lm_tiny", "--set", *SETTINGS]
# Sums over devices are taken in another order where there are other processes.
TOLERANCE = 2e-6


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    pytest.importorskip("jax")
    return write_lines(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def train(folder, spec, count, devices, cache, *settings):
    trainings = Trainings(folder, count, devices, cache)
    done = trainings.start("--data", spec, *NEW, *settings).wait()
    for status, (errors, _) in done.values():
        assert status == 0, errors
    return trainings, done


def assert_alike(left, right):
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_allclose(other[name], value, rtol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("mesh", ["data=4", "fsdp=2,model=2"])
def test_losses_do_not_depend_on_the_number_of_processes(spec, cache, mesh, tmp_path):
    logs = {}
    for count in (1, 2, 4):
        trainings, done = train(tmp_path / str(count), spec, count, 4 // count, cache, f"training.mesh={mesh}")
        logs[count] = trainings.log()
        assert all(errors == "" and output == "" for number, (_, (errors, output)) in done.items() if number)
        assert f"4 devices ({mesh}" in done[0][1][0]
    assert len({record["loss"] for record in logs[1] if "loss" in record}) == 3
    assert_alike(logs[1], logs[2])
    assert_alike(logs[1], logs[4])
    one, four = (zoo.load(tmp_path / str(count)).model.get_weights() for count in (1, 4))
    for left, right in zip(one, four, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)
