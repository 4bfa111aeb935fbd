"""The cost of training on many devices, on paper: figures that a person can work out."""

import dataclasses

import pytest

from benchmarks import scaling
from benchmarks.scaling import Hardware, Mesh, Work, best, last_that_pays, meshes, predict

WORK = Work(weights=1_000_000, operations=2e6, activations=1000, features=512, sums=10)
DEVICE = Hardware(peak=1e12, memory=1e9, link=1e9, group=4, network=1e8, latency=0, source="made up")


def test_what_devices_compute_send_and_keep():
    step = predict(WORK, DEVICE, Mesh(1, 1), tokens=1000, utilization=0.5)
    assert step.compute == pytest.approx(3 * 2e6 * 1000 / (0.5 * 1e12))
    assert (step.wire, step.sent) == (0, 0)
    assert step.memory == 16e6 + 1000 * 1000  # weights, gradients and two moments in float32, and the results
    step = predict(WORK, DEVICE, Mesh(4, 1), tokens=1000)
    assert step.sent == pytest.approx(2 * 3 / 4 * 4e6)
    assert step.wire == pytest.approx(step.sent / 1e9)
    step = predict(WORK, DEVICE, Mesh(8, 1), tokens=1000)  # two groups, which share what they send to each other
    assert step.wire == pytest.approx(2 * 3 / 4 * 4e6 / 1e9 + 2 * 1 / 2 * 1e6 / 1e8)
    step = predict(WORK, DEVICE, Mesh(2, 2), tokens=1000)
    activations = 2 * 10 * 512 * 2 * 500  # forward and backward, bfloat16, of half of the batch
    assert step.sent == pytest.approx(2 * 1 / 2 * activations + 2 * 1 / 2 * 2e6)
    assert step.memory == 8e6 + 1000 * 500 / 2
    sharded = predict(WORK, DEVICE, Mesh(2, 2), tokens=1000, sharded_moments=True)
    assert step.memory - sharded.memory == 2e6
    slow = dataclasses.replace(DEVICE, latency=1.0, link=1e30, network=1e30)
    assert predict(WORK, slow, Mesh(4, 1), 1).wire == pytest.approx(2 * 3)
    assert predict(WORK, slow, Mesh(1, 4), 1).wire == pytest.approx(2 * 10 * 3)


def test_the_best_mesh_has_room_and_pays():
    narrow = dataclasses.replace(DEVICE, memory=9.1e6)
    assert best(WORK, narrow, 1, 100, 1.0) is None
    mesh, step = best(WORK, narrow, 2, 100, 1.0)
    assert mesh == Mesh(1, 2) and step.memory <= narrow.memory
    assert all(mesh.devices == 8 for mesh in meshes(8)) and len(meshes(8)) == 4
    assert last_that_pays([(1, 10), (2, 18), (4, 21), (8, 39)]) == 4
    assert last_that_pays([(2, 10), (4, 9)]) == 2


def test_bad_arguments_are_named(capsys):
    for arguments in (["--utilization", "0"], ["--tokens", "0"], ["--model", "rnnsearch"]):
        with pytest.raises(SystemExit):
            scaling.main(arguments)
        error = capsys.readouterr().err
        assert arguments[0] in error and arguments[1] in error


@pytest.mark.nightly
def test_the_command_and_the_work_of_a_model(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(scaling, "VOCABULARY", 100)
    arguments = ["--model", "transformer_tiny", "--hardware", "h200", "--length", "8", "--tokens", "4096"]
    assert scaling.main([*arguments, "--output", str(tmp_path / "scaling.md")]) == 0
    text = capsys.readouterr().out
    assert text == (tmp_path / "scaling.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| 512 ")]
    assert len(rows) == 2 and all("data=" in row for row in rows)
    work = scaling.work_of("transformer_tiny", 8, 100)
    assert (work.features, work.sums) == (128, 20)
    assert 2 * work.weights * 0.5 < work.operations < 2 * work.weights * 3
