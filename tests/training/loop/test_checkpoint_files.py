"""Which checkpoints there are: files and the folders of Orbax alike."""

import zipfile

import pytest

from training.loop.checkpoint_files import (
    checkpoint_path,
    is_whole,
    last_step,
    list_checkpoints,
    remove_checkpoint,
    set_damaged_aside,
)
from zoo.errors import InputError


def write_npz(folder, step):
    with zipfile.ZipFile(folder / f"step_{step:08d}.npz", "w") as file:
        file.writestr("a.npy", "")


def write_orbax(folder, step, whole=True):
    path = folder / f"step_{step:08d}.orbax"
    (path / "d").mkdir(parents=True)
    if whole:
        (path / "_CHECKPOINT_METADATA").write_text("{}")
    return path


def test_files_and_folders_are_found_in_order(tmp_path):
    write_orbax(tmp_path, 7)
    write_npz(tmp_path, 5)
    write_orbax(tmp_path, 3)
    (tmp_path / "step_00000009.orbax.orbax-checkpoint-tmp").mkdir()
    (tmp_path / ".tmp-removed-step_00000001.orbax").mkdir()
    assert [path.name for path in list_checkpoints(tmp_path)] == [
        "step_00000003.orbax",
        "step_00000005.npz",
        "step_00000007.orbax",
    ]
    assert last_step(tmp_path) == 7
    assert [checkpoint_path(tmp_path, step).suffix for step in (3, 5, 11)] == [".orbax", ".npz", ".npz"]


def test_one_that_is_cut_off_is_set_aside_and_what_was_begun_is_removed(tmp_path, capsys):
    write_orbax(tmp_path, 3)
    damaged = write_orbax(tmp_path, 7, whole=False)
    begun = tmp_path / "step_00000009.orbax.orbax-checkpoint-tmp"
    begun.mkdir()
    assert not is_whole(damaged) and last_step(tmp_path) == 3
    set_damaged_aside(tmp_path)
    assert capsys.readouterr().err == "step_00000007.orbax is damaged; renamed to step_00000007.orbax.damaged\n"
    assert {path.name for path in tmp_path.iterdir()} == {"step_00000003.orbax", "step_00000007.orbax.damaged"}


def test_all_cut_off(tmp_path):
    write_orbax(tmp_path, 7, whole=False)
    with pytest.raises(InputError, match="All checkpoints in .* are damaged"):
        set_damaged_aside(tmp_path)


def test_removing(tmp_path):
    write_npz(tmp_path, 5)
    write_orbax(tmp_path, 7)
    for path in list_checkpoints(tmp_path):
        remove_checkpoint(path)
    assert list(tmp_path.iterdir()) == []
