"""What was compiled travels as one file of bounded size."""

import os

import numpy as np

from benchmarks.gpu.cache import pack, unpack

RANDOM = np.random.default_rng(0)


def write(folder, name, size, at):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(RANDOM.bytes(size))
    os.utime(path, (at, at))
    return path.read_bytes()


def test_a_folder_comes_back_as_it_was(tmp_path):
    folder = tmp_path / "compiled"
    files = {name: write(folder, name, 1009, at) for at, name in enumerate(["jax/a", "jax/xla/b", "inductor/c"], 7)}
    assert pack(folder, tmp_path / "cache.tar.gz") == (3, 0)
    again = tmp_path / "again"
    assert unpack(tmp_path / "cache.tar.gz", again) == 3
    assert {name: (again / name).read_bytes() for name in files} == files
    assert [(again / name).stat().st_mtime for name in files] == [7, 8, 9]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def test_what_was_written_first_has_room(tmp_path):
    folder, limit = tmp_path / "compiled", 500_000
    for at in range(11):
        write(folder, f"{10 - at}", 97_003, at)
    kept, lost = pack(folder, tmp_path / "cache.tar.gz", limit)
    assert (tmp_path / "cache.tar.gz").stat().st_size <= limit
    assert kept + lost == 11 and kept >= 4
    unpack(tmp_path / "cache.tar.gz", tmp_path / "again")
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == sorted(f"{10 - at}" for at in range(kept))


def test_nothing_is_an_archive_too(tmp_path):
    (tmp_path / "compiled").mkdir()
    assert pack(tmp_path / "compiled", tmp_path / "cache.tar.gz") == (0, 0)
    assert unpack(tmp_path / "cache.tar.gz", tmp_path / "again") == 0
