"""The command on a processor: everything of the plan runs at tiny sizes, and contestants compute the same."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import cache, plan

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[3]
# cuDNN is not there, and FlexAttention has no gradients on processors.
ON_GPUS_ALONE = (plan.CUDNN, plan.FLEX)

PROGRAM = """
import jax, numpy as np, torch
from benchmarks.gpu import attention, plan
from benchmarks.peers import attention_kinds, pytorch_attention

for kind in attention_kinds.KINDS:
    figures = [plan.tiny(figure) for figure in plan.figures() if figure.name == f"attention, {kind}, T=4k"]
    arrays = [np.random.default_rng(0).standard_normal((2, 37, 2, 8), "float32") for _ in range(4)]
    results = {}
    for figure in figures:
        task = figure.task()
        if task.get("implementation") == "cudnn":
            continue
        if figure.library == "jax":
            found = attention.Pass(task).gradients(*arrays)
        else:
            heads = [torch.tensor(array).transpose(1, 2).requires_grad_(not task["flexible"]) for array in arrays]
            make = pytorch_attention.flexible if task["flexible"] else pytorch_attention.by_kernels
            options = ("cpu",) if task["flexible"] else ("cpu", torch.float32)
            output = make(task, *options)(*heads[:3])
            if task["flexible"]:  # forward alone
                forward = attention.Pass(figures[0].task()).attend(*arrays[:3])
                np.testing.assert_allclose(output.detach().transpose(1, 2), forward, atol=2e-5, err_msg=figure.label)
                continue
            gradients = torch.autograd.grad(output, heads[:3], heads[3])
            found = [gradient.transpose(1, 2).numpy() for gradient in gradients]
        results[figure.contestant] = found
    for contestant, found in results.items():
        for ours, theirs in zip(next(iter(results.values())), found, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-5, err_msg=f"{kind}: {contestant}")
    print(kind, len(results))
"""


def run(*arguments, **variables):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)


def test_the_whole_plan_runs_and_a_second_run_finds_what_was_compiled(tmp_path):
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    done = run("-m", "benchmarks.gpu", "--tiny", "--output", str(tmp_path / "first"))
    rows = list(csv.DictReader((tmp_path / "first" / "figures.csv").read_text(encoding="utf-8").splitlines()))
    found = {f"{row['figure']}, {row['contestant']}": row for row in rows}
    wanted = {figure.label: figure for figure in plan.figures()}
    failed = {
        label: found[label]["remark"] if label in found else "not taken"
        for label in wanted
        if label not in found or not found[label]["milliseconds"]
    }
    assert {label for label in failed if wanted[label].contestant not in ON_GPUS_ALONE} == set(), failed
    assert "not finite" not in "".join(row["remark"] for row in rows)
    names = {path.name for path in (tmp_path / "first").iterdir()}
    assert {"figures.jsonl", "goals.md", "profile.csv", "cache.tar.gz"} <= names and len(names) <= 8
    assert "Tiny sizes" in done.stdout
    archive = tmp_path / "first" / "cache.tar.gz"
    assert cache.unpack(archive, tmp_path / "cache") > 10
    run("-m", "benchmarks.gpu", "--tiny", "--only", "first", "--output", str(tmp_path / "2"), "--cache", str(archive))
    assert cache.unpack(tmp_path / "2" / "cache.tar.gz", tmp_path / "again")
    programs = [{path.name for path in (tmp_path / name).rglob("jit_train_step*-cache")} for name in ("cache", "again")]
    assert programs[1] == programs[0]


def test_contestants_attend_to_the_same():
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    done = run("-c", PROGRAM)
    numbers = dict(line.split() for line in done.stdout.splitlines())
    assert numbers == {"causal": "3", "window": "4", "padded": "3", "alibi": "3", "additive": "1"}


def test_a_step_is_counted_without_being_run(tmp_path):
    pytest.importorskip("jax")
    arguments = ["--dry_run", "--tiny", "--only", "transformer_base", "--output", str(tmp_path)]
    run("-m", "benchmarks.gpu", *arguments)
    (report,) = json.loads((tmp_path / "dry_run.json").read_text(encoding="utf-8")).values()
    assert report["kernels"] > 50 and report["on the host"] == []
    assert sum(report["products as traced"].values()) > 50
    assert report["logits written, by type"]
