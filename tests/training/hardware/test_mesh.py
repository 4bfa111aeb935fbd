"""Meshes of devices: which fit, and whose rows of a batch are whose."""

import re

import pytest

from training.config.mesh import parse_mesh
from training.config.options import TrainingConfig
from training.config.resolve import resolve
from training.data.batching import Share
from training.hardware.mesh import Mesh
from zoo.errors import InputError

EIGHT = [f"gpu:{number}" for number in range(8)]


NO_MESH = (
    "4",
    "data",
    "data=0",
    "data=-1",
    "data=²",
    "data=two",
    "rows=2",
    "data=2,data=2",
    "data=2,fsdp=2",
    "data=2,",
)


def test_what_is_no_mesh(subtests):
    for text in NO_MESH:
        with subtests.test(text):
            for read in (parse_mesh, lambda text: resolve("transformer_tiny", "dates", [f"training.mesh={text}"])):
                with pytest.raises(InputError, match=re.escape(f"Received: training.mesh={text!r}.")):
                    read(text)


def test_devices_and_mesh_agree():
    assert resolve("transformer_tiny", "dates", ["training.mesh=fsdp=2,model=2", "training.devices=4"])
    with pytest.raises(InputError, match="training.mesh=data=2 takes 2 devices. Received: training.devices=4."):
        resolve("transformer_tiny", "dates", ["training.mesh=data=2", "training.devices=4"])
    assert TrainingConfig.declared()["mesh"].default == ""


def test_a_mesh_has_all_devices():
    message = "training.mesh=data=4,model=1 takes 4 devices; JAX has 8 devices."
    with pytest.raises(InputError, match=re.escape(message) + "$"):
        Mesh({"data": 4, "model": 1}, EIGHT)
    with pytest.raises(InputError, match="JAX has 1 .*XLA_FLAGS=--xla"):
        Mesh({"data": 4, "model": 1}, ["cpu:0"])


SHARES = (
    ({"data": 8, "model": 1}, 1, [(0, 8)]),
    ({"data": 8, "model": 1}, 4, [(0, 2), (2, 4), (4, 6), (6, 8)]),
    ({"fsdp": 4, "model": 2}, 2, [(0, 2), (2, 4)]),
    ({"data": 2, "model": 4}, 4, [(0, 1), (0, 1), (1, 2), (1, 2)]),
    ({"data": 1, "model": 8}, 8, [(0, 1)] * 8),
)


def test_shares():
    for axes, num_processes, shares in SHARES:
        mesh = Mesh(axes, EIGHT)
        made = [mesh.share(process, num_processes) for process in range(num_processes)]
        assert made == [Share(mesh.batch_parts, first, end) for first, end in shares]


def test_a_row_of_the_mesh_is_not_cut():
    mesh = Mesh({"data": 4, "model": 3}, [f"gpu:{number}" for number in range(12)])
    with pytest.raises(InputError, match=" 2 .*model=3"):
        mesh.share(0, 6)
