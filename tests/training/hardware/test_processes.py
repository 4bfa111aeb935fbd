"""Training over several processes: whatever their number, it is the training of one."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from support.processes import ROOT, SETTINGS, Trainings, write_lines

import zoo
from training.loop.checkpoint_files import last_step, list_checkpoints, step_of

NIGHTLY, WEEKLY = pytest.mark.nightly, pytest.mark.weekly
# Rounds that take some seconds.
ROUNDS = ["training.max_steps=60", "training.eval_every=20"]
SECONDS = 60
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


@pytest.mark.parametrize(
    ("mesh", "many"),
    [pytest.param("fsdp=2,model=2", 2, marks=NIGHTLY), pytest.param("data=4", 4, marks=WEEKLY)],
)
def test_losses_do_not_depend_on_the_number_of_processes(spec, cache, mesh, many, tmp_path):
    logs = {}
    for count in (1, many):
        trainings, done = train(tmp_path / str(count), spec, count, 4 // count, cache, f"training.mesh={mesh}")
        logs[count] = trainings.log()
        assert {said for number, (_, said) in done.items() if number} <= {("", "")}
        assert f"4 devices ({mesh}" in done[0][1][0]
    assert len({record["loss"] for record in logs[1]}) == 4, "it learns"
    assert_alike(logs[1], logs[many])
    one, other = (zoo.load(tmp_path / str(count)).model.get_weights() for count in (1, many))
    for left, right in zip(one, other, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


# What can happen to processes; `Trainings.wait` fails after a time.


def until_round(trainings, count):
    """Waits until so many rounds are logged and a checkpoint is written."""
    for _ in range(12000):
        log = trainings.workdir / "metrics.jsonl"
        rounds = len(log.read_text().splitlines()) if log.exists() else 0
        if rounds >= count and list_checkpoints(trainings.workdir / "checkpoints"):
            return
        assert all(process.poll() is None for process in trainings.running.values()), trainings.wait()
        time.sleep(0.01)
    raise AssertionError("it does not train")


def go_on(workdir, spec, cache, count, devices):
    trainings = Trainings(workdir, count, devices, cache)
    for status, (errors, _) in trainings.start("--resume").wait().values():
        assert status == 0, errors
    return trainings


def weights(workdir):
    return zoo.load(workdir).model.get_weights()


@pytest.fixture(scope="module")
def uninterrupted(spec, cache, tmp_path_factory):
    trainings, _ = train(tmp_path_factory.mktemp("whole") / "run", spec, 2, 1, cache, *ROUNDS)
    return trainings


@pytest.mark.parametrize("victim", [pytest.param(0, marks=WEEKLY), pytest.param(1, marks=NIGHTLY)])
def test_a_killed_process_ends_all_and_the_run_goes_on(spec, cache, uninterrupted, tmp_path, victim):
    workdir = tmp_path / "run"
    trainings = Trainings(workdir, 2, 1, cache).start("--data", spec, *NEW, *ROUNDS)
    until_round(trainings, 1)
    trainings.running[victim].kill()
    begun = time.monotonic()
    status, (errors, _) = trainings.wait(SECONDS)[1 - victim]
    assert time.monotonic() - begun < SECONDS
    last = errors.strip().splitlines()[-1]
    assert status == 1
    assert last.startswith(f"error: process {victim} of 2") and "step_" in last
    assert last.endswith(f"Resume with: python -m training.train --workdir {workdir} --resume, in every process")
    resumed = go_on(workdir, spec, cache, 2, 1)
    assert_the_same(resumed, uninterrupted)


def terminated(spec, cache, folder):
    """Yields work directories of trainings that a signal has stopped; one in twenty stops at the end of a round."""
    for attempt in range(3):
        workdir = folder / str(attempt)
        trainings = Trainings(workdir, 2, 1, cache).start("--data", spec, *NEW, *ROUNDS)
        until_round(trainings, 1)
        # Stopped for as long as the signal takes, since all of the steps take less than a second.
        (worker,) = psutil.Process(trainings.running[1].pid).children()
        worker.suspend()
        trainings.running[1].send_signal(signal.SIGTERM)
        time.sleep(1)
        worker.resume()
        for number, (status, (errors, _)) in trainings.wait(SECONDS).items():
            assert status == 143, (number, errors)
            assert errors.strip().splitlines()[-1].startswith("terminated; the last good checkpoint is ")
        yield workdir


def stopped_within_a_round(workdir):
    return last_step(workdir / "checkpoints") % 20 != 0


@pytest.mark.parametrize(("count", "devices"), [pytest.param(1, 2, marks=NIGHTLY), pytest.param(2, 1, marks=WEEKLY)])
def test_terminated_within_a_round_it_goes_on_from_that_step(spec, cache, uninterrupted, tmp_path, count, devices):
    workdir = next(filter(stopped_within_a_round, terminated(spec, cache, tmp_path)), None)
    assert workdir, "each signal came at the end of a round"
    resumed = go_on(workdir, spec, cache, count, devices)
    if count == 2:
        assert_the_same(resumed, uninterrupted)
    assert_alike(uninterrupted.log(), resumed.log())
    assert {step_of(path) % 20 for path in list_checkpoints(workdir / "checkpoints")} == {0}


def assert_the_same(left, right):
    assert left.log() == right.log()
    for one, other in zip(weights(left.workdir), weights(right.workdir), strict=True):
        np.testing.assert_array_equal(one, other)


@WEEKLY
def test_a_process_that_stands_still_is_waited_for(spec, cache, uninterrupted, tmp_path):
    trainings = Trainings(tmp_path / "run", 2, 1, cache).start("--data", spec, *NEW, *ROUNDS)
    until_round(trainings, 1)
    (worker,) = psutil.Process(trainings.running[1].pid).children()
    worker.suspend()
    time.sleep(30)
    worker.resume()
    assert {status for status, _ in trainings.wait().values()} == {0}
    assert_the_same(trainings, uninterrupted)


@NIGHTLY
def test_who_does_not_come_is_named(spec, cache, tmp_path):
    trainings = Trainings(tmp_path / "run", 2, 1, cache, join_seconds=5).start("--data", spec, *NEW, only=1)
    status, (errors, _) = trainings.wait(SECONDS)[1]
    assert status == 2, errors
    assert errors.startswith(
        f"error: The coordinator 127.0.0.1:{trainings.port}, process 0, cannot be reached after 5 s"
    )
    trainings = Trainings(tmp_path / "run", 2, 1, cache, join_seconds=5).start("--data", spec, *NEW, only=0)
    status, (errors, _) = trainings.wait(SECONDS)[0]
    assert (status, errors) == (
        1,
        f"error: not all 2 processes joined 127.0.0.1:{trainings.port} within 5 s; nothing was trained yet.\n",
    )


@NIGHTLY
def test_a_process_with_other_settings_is_refused(spec, cache, tmp_path):
    trainings = Trainings(tmp_path / "run", 2, 1, cache).start("--data", spec, *NEW, only=0)
    done = trainings.start("--data", spec, *NEW, "training.learning_rate=0.5", only=1).wait(SECONDS)
    what = "Process 1 of 2 differs from process 0 in training.learning_rate: 0.5 here, 0.02 in process 0."
    assert done[1] == (2, (f"error: {what}\n", ""))
    status, (errors, _) = done[0]
    assert status == 1 and f"error: process 1 of 2 ({socket.gethostname()}) ended: {what[:-1]}; nothing" in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "run" / "config.json").exists()


@WEEKLY
def test_a_process_of_another_version_is_refused(spec, cache, tmp_path):
    (tmp_path / "older.py").write_text("import zoo\nzoo.__version__ = '0.0.1'\n")
    trainings = Trainings(tmp_path / "run", 2, 1, cache).start("--data", spec, *NEW, only=0)
    done = trainings.start("--import", "older", "--data", spec, *NEW, only=1, folder=tmp_path).wait(SECONDS)
    what = f'differs from process 0 in the version of attention-zoo: "0.0.1" here, "{zoo.__version__}" in process 0'
    assert done[1] == (2, (f"error: Process 1 of 2 {what}.\n", ""))
    assert done[0][0] == 1 and what in done[0][1][0]


@WEEKLY
def test_all_killed_while_checkpoints_are_written(spec, cache, tmp_path):
    """A checkpoint after each step, so that one is being written at most times."""
    settings = ["training.max_steps=60", "training.eval_every=1"]
    whole, _ = train(tmp_path / "whole", spec, 2, 1, cache, *settings)
    trainings = Trainings(tmp_path / "run", 2, 1, cache).start("--data", spec, *NEW, *settings)
    until_round(trainings, 9)
    for process in trainings.running.values():
        process.kill()
    trainings.wait()
    assert_the_same(go_on(tmp_path / "run", spec, cache, 2, 1), whole)
    assert not list((tmp_path / "run" / "checkpoints").glob("*tmp*"))


@WEEKLY
def test_a_full_disk_of_one_process_ends_all(spec, tmp_path):
    sizes = ["model.model_dim=64", "model.intermediate_dim=256"]
    trainings = Trainings(tmp_path / "run", 2).start("--data", spec, *NEW, *sizes)
    resource.prlimit(trainings.running[1].pid, resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
    done = trainings.wait()
    what = "a file exceeds the maximum size (see ulimit -f)"
    assert done[1][0] == 1 and done[1][1][0].startswith(f"error: {what}; there is no checkpoint yet. Resume with: ")
    last = done[0][1][0].splitlines()[-1]
    assert done[0][0] == 1 and f"process 1 of 2 ({socket.gethostname()}) ended: {what}; there is no checkpoint" in last
    assert last.count("Resume with") == 1


@WEEKLY
def test_a_process_with_other_data_is_refused(spec, cache, tmp_path):
    for number, seed in enumerate((0, 1)):
        write_lines(tmp_path / str(number) / "text", seed)
    trainings = Trainings(tmp_path / "run", 2, 1, cache)
    for number in range(2):
        trainings.start("--data", "lines:text", *NEW, only=number, folder=tmp_path / str(number))
    done = trainings.wait(SECONDS)
    what = "Process 1 of 2 differs from process 0 in the data, train: "
    assert done[1][0] == 2 and done[1][1][0].startswith(f'error: {what}"60 examples with the hash ')
    assert done[0][0] == 1 and what in done[0][1][0]
    assert all(errors.count("\n") == 1 for _, (errors, _) in done.values())


@NIGHTLY
def test_tensorflow_says_to_use_jax(spec, tmp_path):
    trainings = Trainings(tmp_path / "run", 2).start("--data", spec, *NEW, only=1, KERAS_BACKEND="tensorflow")
    status, (errors, _) = trainings.wait(SECONDS)[1]
    assert status == 2, errors
    assert errors.startswith(
        "error: Several processes can train only on JAX, which KERAS_BACKEND=jax chooses; under tensorflow"
    )


@NIGHTLY
def test_tensorflow_reads_the_model(spec, cache, uninterrupted, tmp_path):
    text = "xabc"
    here = zoo.load(uninterrupted.workdir).score([text])
    program = f"import zoo; print(zoo.load({str(uninterrupted.workdir)!r}).score([{text!r}])[0].log_prob)"
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=ROOT)
    np.testing.assert_allclose(float(done.stdout), here[0].log_prob, rtol=1e-5)
