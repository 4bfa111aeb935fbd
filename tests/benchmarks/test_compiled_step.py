"""What a compiled training step sends, read from XLA's text; and a step that is compiled for four devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compiled_step import sent_bytes
from benchmarks.scaling import HARDWARE, Mesh, predict, work_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("groups", "devices"),
    [
        ("{{0,1,2,3}}", 4),
        ("[2,2]<=[4]", 2),
        ("mesh['axis_0'=4,'axis_1'=1] {'axis_0'}", 4),
        ("mesh['a'=2,'b'=3], device_ids=([2,3]T(1,0)) {'a','b'}", 6),
    ],
)
def test_all_reduce(groups, devices):
    line = f"  %sum = (f32[10,4]{{1,0}}, bf16[8]{{0}}) all-reduce(%a, %b), channel_id=1, replica_groups={groups}, x=1"
    assert sent_bytes(line) == {"all-reduce": pytest.approx(2 * (devices - 1) / devices * (160 + 16))}


def test_other_operations_and_results_of_tuples():
    text = """
      %x = f32[8,2]{1,0} all-gather(%y), replica_groups={{0,1}}, dimensions={0}
      %z = f32[2,2]{1,0} reduce-scatter(%y), replica_groups={{0,1}}
      %g = f32[8]{0} get-tuple-element(%all-reduce.3), index=0
    """
    assert sent_bytes(text) == {"all-gather": 32, "reduce-scatter": 16}
    with pytest.raises(ValueError, match="not known"):
        sent_bytes("%x = f32[8] all-reduce(%y), replica_groups=new")


@pytest.mark.slow
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
