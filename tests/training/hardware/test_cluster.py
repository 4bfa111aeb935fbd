"""What the command line and the cluster say of the processes of a training, and what ends one of them."""

import os
import re
import subprocess
import sys

import pytest

from training.config.options import TrainingConfig
from training.hardware import cluster
from training.hardware.choice import use_orbax
from training.hardware.cluster import Cluster, find_cluster
from training.hardware.processes import ALONE, Processes, join
from training.hardware.supervisor import _cause
from training.train import _parser
from zoo.errors import InputError
from zoo.workdir import ReadOnlyWorkDir

CANNOT_BE = (
    (("a:1", None, 0), "Missing: --num_processes."),
    ((None, None, 0), "Missing: --coordinator, --num_processes."),
    (("a", 2, 0), "Received: 'a'."),
    (("a:0", 2, 0), "Received: 'a:0'."),
    ((":1", 2, 0), "Received: ':1'."),
    (("a:99999", 2, 0), "Received: 'a:99999'."),
    (("a:1", 2, 2), "Received: --process_id 2 --num_processes 2."),
    (("a:1", 0, 0), "Received: --process_id 0 --num_processes 0."),
    (("a:1", 2, -1), "Received: --process_id -1 --num_processes 2."),
)


def test_what_cannot_be(subtests):
    for said, message in CANNOT_BE:
        with subtests.test(message), pytest.raises(InputError, match=re.escape(message)):
            Cluster.of(*said, 3)


def test_all_or_none():
    assert Cluster.of(None, None, None, 3) is None
    named = Cluster.of("[::1]:17", 5, 3, 7)
    arguments = _parser().parse_args(named.words())
    read = (arguments.coordinator, arguments.num_processes, arguments.process_id, arguments.join_seconds)
    assert Cluster.of(*read) == named


def test_a_cluster_is_asked_where_there_is_one(monkeypatch):
    found = [("host:17", 5, 3), ("host:17", 1, 0), None]
    monkeypatch.setattr(cluster, "_detect", lambda seconds: found.pop(0))
    assert find_cluster(7, {}) is None and len(found) == 3
    assert find_cluster(7, {"SLURM_JOB_ID": "11"}) == Cluster("host:17", 5, 3, 7)
    assert find_cluster(7, {"SLURM_JOB_ID": "11"}) is None, "of one process"
    assert find_cluster(7, {"JOB_COMPLETION_INDEX": "0"}) is None


def test_alone():
    assert join(None) is ALONE and ALONE.is_chief and not ALONE.should_stop(3)
    ALONE.wait("here")
    ALONE.assert_equal({"anything": object()})
    with pytest.raises(ZeroDivisionError), ALONE.watched(str):
        raise ZeroDivisionError


CAUSES = (
    ("absl::Status: DEADLINE_EXCEEDED: Deadline", "not all 5 processes joined host:17 within 7 s"),
    ("absl::Status: UNAVAILABLE: Failed", "process 0 of 5, the coordinator at host:17, is missing"),
    ("ALREADY_EXISTS: Aborted connect", "--process_id 3 is used twice at host:17"),
    ("F1125 something else\nmore", "JAX ended process 3 of 5: F1125 something else"),
    ("", "JAX ended process 3 of 5: no reason given"),
)


def test_causes_of_an_abort():
    for noise, cause in CAUSES:
        assert _cause(noise, Cluster("host:17", 5, 3, 7)) == cause


PROGRAM = """
import os, sys
from training.hardware.cluster import Cluster
from training.hardware.supervisor import is_worker, supervise
if not is_worker():
    for end in ("exit", "abort", "kill"):
        print(supervise(Cluster("host:17", 5, 3, 7), [end]), flush=True)
    sys.exit()
print(sys.argv[1:], "é", flush=True)
print("[Gloo] Rank [Gloo] Rank 1 is\\n 0 is connected to 3 peer ranks.\\n", flush=True)
os.write(2, b"a line\\nE1125 05:07:56.6 agent.cc:289] UNAVAILABLE\\n    @     0x7f1658e40634  (unknown)\\n")
{"exit": lambda: sys.exit(7), "abort": os.abort, "kill": lambda: os.kill(os.getpid(), 9)}[sys.argv[-1]]()
"""
ENDS = {
    "exit": (7, ""),
    "abort": (1, "process 0 of 5, the coordinator at host:17, is missing"),
    "kill": (137, "this process, 3, was ended by SIGKILL"),
}


def test_a_child_is_one_of_the_processes():
    """What JAX says in it is left out."""
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", PROGRAM, "first"]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert done.stderr == "a line\n" * 3
    expected = [line for end, outcome in ENDS.items() for line in (f"['first', '{end}'] é", str(outcome))]
    assert done.stdout.splitlines() == expected


def test_who_does_not_lead_writes_nothing(tmp_path):
    assert not Processes(1, 2).is_chief
    (tmp_path / "run").mkdir()
    (tmp_path / "discarded").mkdir()
    workdir = ReadOnlyWorkDir(tmp_path / "run", tmp_path / "discarded")
    workdir.write_text(workdir.config, "{}")
    workdir.append_text(workdir.metrics, "{}")
    workdir.remove_leftovers()
    with workdir.replacing(workdir.model) as temporary:
        temporary.write_text("model")
    assert not workdir.writes
    assert list((tmp_path / "run").iterdir()) == [] and list((tmp_path / "discarded").iterdir()) == []


def test_orbax_is_for_jax(monkeypatch):
    monkeypatch.setattr("training.hardware.choice.keras.backend.backend", lambda: "tensorflow")
    with pytest.raises(InputError, match="training.checkpoints=orbax.*JAX"):
        use_orbax(TrainingConfig(checkpoints="orbax"), ALONE)
    assert not use_orbax(TrainingConfig(), ALONE) and not use_orbax(TrainingConfig(checkpoints="npz"), Processes(1, 2))
