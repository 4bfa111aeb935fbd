"""Training on JAX: without TensorFlow, resumed to the last bit, and read by TensorFlow."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from support.tiny_runs import TRANSFORMER

import zoo
from training.data import load_data

pytest.importorskip("jax")

# No cooldown: with it, the rate of the first steps depends on the number of all.
SHORT = "training.eval_every=10 training.cooldown=0 training.average_checkpoints=1".split()


def run_python(*arguments):
    """Runs Python with JAX as the backend of Keras."""
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def losses_of(workdir):
    """Returns step and losses of each round."""
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [(record["step"], record["loss"], record["val_loss"]) for record in records if not record.get("final")]


@pytest.mark.nightly
def test_jax_trains_without_tensorflow_and_tensorflow_answers_alike(text_spec, tmp_path):
    code = (
        "import json, sys, zoo; from training.data import load_data; from training.train import main;"
        "spec, workdir = sys.argv[1:3]; main(['--data', spec, '--workdir', workdir, *sys.argv[3:]]);"
        "run, texts = zoo.load(workdir), load_data(spec).split('test').source;"
        "weights = run.attention(texts[:1])[0][2].tolist();"
        "print(json.dumps([run.translate(texts), weights, bool(sys.modules.get('tensorflow'))]))"
    )
    workdir = tmp_path / "run"
    arguments = [text_spec, str(workdir), "--model", "transformer_tiny", "--set", *TRANSFORMER]
    done = run_python("-c", code, *arguments)
    translations, weights, has_tensorflow = json.loads(done.stdout.splitlines()[-1])
    assert not has_tensorflow
    run = zoo.load(workdir)
    assert keras.backend.backend() == "tensorflow"
    texts = load_data(text_spec).split("test").source
    assert run.translate(texts) == translations
    np.testing.assert_allclose(run.attention(texts[:1])[0][2], weights, atol=1e-4)


@pytest.mark.nightly
def test_a_dry_run_counts_what_a_step_does_and_leaves_nothing(text_spec, tmp_path):
    """On two devices: half the work of the batch each, and gradients that are sent."""
    flags = "--xla_force_host_platform_device_count=2"
    code = f"import os, sys; os.environ['XLA_FLAGS'] = '{flags}'; from training.train import main; main(sys.argv[1:])"
    arguments = ["--data", text_spec, "--workdir", str(tmp_path / "run"), "--model", "transformer_tiny", "--dry_run"]
    done = run_python("-c", code, *arguments, "--set", *TRANSFORMER, "training.mesh=data=2", "training.batch_tokens=64")
    found = json.loads(done.stdout)
    assert (found["mesh"], found["devices"]) == ("data=2,model=1", 2)
    rows, length = found["batch"]["target"]
    assert found["operations"] > 6 * found["weights"] * rows * length / 2 / 2  # one of two tables is multiplied with
    assert found["sent"] >= 4 * found["weights"] and set(found["sent_by"]) == {"all-reduce"}
    assert found["peak"] >= found["temporary"] + 12 * found["weights"]
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
def test_a_run_goes_on_as_if_it_had_not_stopped(tmp_path):
    """Another process goes on from step 20; its weights after step 30 are those of a run of 30 to the last bit."""

    def train(workdir, *arguments):
        return run_python("-m", "training.train", "--workdir", str(workdir), *arguments).stderr

    begin = ["--model", "transformer_tiny", "--data", "dates", "--set", *TRANSFORMER, *SHORT]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, *begin, "training.max_steps=30")
    train(parts, *begin, "training.max_steps=20")
    log = train(parts, "--resume", "--set", "training.max_steps=30")
    assert "resuming from step_00000020.npz" in log and ", jax, float32" in log
    assert [step for step, *_ in losses_of(parts)] == [10, 20, 30]
    assert losses_of(parts) == losses_of(whole)
    for resumed, uninterrupted in zip(zoo.load(parts).model.weights, zoo.load(whole).model.weights, strict=True):
        np.testing.assert_array_equal(resumed, uninterrupted)
