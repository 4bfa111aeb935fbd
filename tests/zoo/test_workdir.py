"""The work directory: files appear whole or not at all."""

import errno
import os
import re
import stat
import subprocess

import pytest
from support.every import every

from zoo.errors import InputError
from zoo.workdir import WorkDir, replacing


def test_a_file_takes_its_place_at_the_end(tmp_path):
    path = tmp_path / "new" / "model.keras"
    with replacing(path) as temporary:
        assert temporary.parent == path.parent
        assert temporary.suffix == ".keras"
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("old")
    with pytest.raises(KeyError), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_names_the_file_and_not_its_temporary_name(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(PermissionError) as caught, replacing(path) as temporary:
        raise PermissionError(errno.EACCES, "Permission denied", str(temporary))
    assert caught.value.filename == str(path)
    with pytest.raises(OSError, match="No space left") as caught, replacing(path) as temporary:
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(path)
    with pytest.raises(OSError, match="^only text$"), replacing(path):  # as h5py's
        raise OSError("only text")


def test_files_obey_the_umask(tmp_path):
    mask = os.umask(0o027)
    try:
        WorkDir(tmp_path).write_text(tmp_path / "a.txt", "ü")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640
    assert (tmp_path / "a.txt").read_bytes() == "ü".encode()


def test_read_config(tmp_path):
    (tmp_path / "config.json").write_text('{"model": {"name": "rnnsearch", "ü": 1}}', encoding="utf-8")
    assert WorkDir(tmp_path).read_config() == {"model": {"name": "rnnsearch", "ü": 1}}


def test_what_is_no_configuration_and_no_work_directory(tmp_path):
    with every() as failures:
        for content in (b"", b"{", b"\xff", b"[]", b"{}", b'"text"', b'{"model": 5}', b'{"model": {}}'):
            (tmp_path / "config.json").write_bytes(content)
            named = re.escape(f"{tmp_path}/config.json")
            with failures.of(content), pytest.raises(InputError, match=named):
                WorkDir(tmp_path).read_config()
        (tmp_path / "config.json").unlink()
        (tmp_path / "file").touch()
        for path in (tmp_path, tmp_path / "none", tmp_path / "file"):
            with failures.of(path), pytest.raises(InputError, match=rf"{re.escape(str(path))} .*config\.json"):
                WorkDir(path).read_config()


def test_leftovers_of_processes_that_are_gone_are_removed(tmp_path):
    """But neither files of a process that runs, nor the user's."""
    gone, workdir = subprocess.Popen(["true"]), WorkDir(tmp_path)
    gone.wait()
    names = [f".tmp-{gone.pid}-config.json", f"checkpoints/.tmp-{gone.pid}-step_1.npz", f".tmp-{os.getpid()}-a"]
    kept = {f"evaluation/.tmp-{os.getppid()}-test.json", ".tmp-mine", "checkpoints/step_1.npz"}
    for name in (*names, *kept):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    workdir.remove_leftovers()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == kept


def test_a_checked_file(tmp_path):
    workdir = WorkDir(tmp_path)
    for text in ("first", "second"):
        with workdir.replacing(tmp_path / "parts" / "a.txt") as temporary:
            temporary.write_text(text)
        workdir.check("parts")
    (tmp_path / "parts" / "a.txt").write_text("third")
    workdir.check("other")
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/parts/a.txt")):
        workdir.check("parts")
    workdir.checksums.write_text("{")
    with pytest.raises(InputError, match="checksums.json"):
        workdir.check("parts")


def test_a_process_that_is_killed_between_file_and_checksum_leaves_a_file_that_loads(tmp_path, monkeypatch):
    workdir = WorkDir(tmp_path)
    path = tmp_path / "model.keras"
    with workdir.replacing(path) as temporary:
        temporary.write_text("first")
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
        patch.setattr("zoo.workdir.os.replace", raising(os.replace, path))
        with workdir.replacing(path) as temporary:
            temporary.write_text("second")
    assert path.read_text() == "second"
    workdir.check("model.keras")


def raising(replace, last):
    def replace_and_raise(source, target):
        replace(source, target)
        if target == last:
            raise KeyboardInterrupt

    return replace_and_raise
