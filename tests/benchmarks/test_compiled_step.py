"""A training step that is compiled for four devices, beside what is predicted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scaling import HARDWARE, Mesh, predict, work_of

ROOT = Path(__file__).parents[2]


@pytest.mark.weekly
@pytest.mark.parametrize(("mesh", "axes"), [("data=4", Mesh(4, 1)), ("data=2,model=2", Mesh(2, 2))])
def test_a_compiled_step_does_the_work_that_is_predicted(mesh, axes):
    pytest.importorskip("jax")
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    command = [sys.executable, "-m", "benchmarks.compiled_step", "--mesh", mesh, "--vocabulary", "1000"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found, work = json.loads(result.stdout), work_of("transformer_tiny", 16, 1000)
    step = predict(work, HARDWARE["h200"], axes, tokens=64 * 16)
    assert found["operations"] == pytest.approx(3 * work.operations * 64 * 16 / 4, rel=0.1)
    assert found["sent"] > step.sent  # in float32, and what is left out on paper
    # Weights and two moments.
    assert found["arguments"] == pytest.approx(12 * work.weights / axes.model, rel=0.05)
