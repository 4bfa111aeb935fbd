"""Checkpoints by their name on the hub: what is brought, and what is said of one that cannot be had."""

import errno
import fnmatch
import importlib.util
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
from support import checkpoints, model_hub

from training.importing import hub
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError

COMMIT = model_hub.COMMIT
ROOT = Path(__file__).resolve().parents[3]


def stub(monkeypatch, snapshot_download):
    """Puts a package in the place of `huggingface_hub`, with its classes of errors."""
    names = {
        "RepositoryNotFoundError": OSError,
        "RevisionNotFoundError": OSError,
        "LocalEntryNotFoundError": FileNotFoundError,
    }
    errors = types.SimpleNamespace(**{name: type(name, (base,), {}) for name, base in names.items()})
    errors.GatedRepoError = type("GatedRepoError", (errors.RepositoryNotFoundError,), {})
    module = types.SimpleNamespace(errors=errors, snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return errors


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of the commit in the hub's cache, and what has been asked for."""
    folder, asked = tmp_path / "snapshots" / COMMIT, []
    folder.mkdir(parents=True)

    def snapshot_download(repository, revision, allow_patterns):
        asked.append((repository, revision, allow_patterns))
        for path in (checkpoints.FIXTURES / "gpt2").iterdir():
            if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in allow_patterns):
                shutil.copy(path, folder)
        return str(folder)

    stub(monkeypatch, snapshot_download)
    return folder, asked


def test_a_name_is_brought_and_its_commit_is_in_the_card(cache, tmp_path):
    folder, asked = cache
    import_checkpoint("hf:somebody/small@main", tmp_path / "run")
    assert [each[:2] for each in asked] == [("somebody/small", "main")]
    assert "expected.json" not in {path.name for path in folder.iterdir()}
    card = (tmp_path / "run" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"Source: `hf:somebody/small@main`, revision: {COMMIT}" in card


def test_pickled_weights_are_brought_only_where_there_are_no_others(cache, monkeypatch):
    folder, asked = cache
    assert hub.bring("somebody/small") == folder
    assert len(asked) == 1 and hub.PICKLED not in asked[0][2]
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(hub, "FILES", ("config.json",))
    hub.bring("somebody/small")
    assert asked[1:] == [
        ("somebody/small", None, ["config.json"]),
        ("somebody/small", COMMIT, ["config.json", hub.PICKLED]),
    ]


def test_all_files_that_families_read_are_brought():
    for family in ("gpt2", "gpt_neox", "llama", "marian", "minilm", "bert", "t5"):
        folder = checkpoints.FIXTURES / family
        for path in folder.rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name not in ("expected.json", "beams.json"):
                assert any(fnmatch.fnmatchcase(name, pattern) for pattern in hub.FILES), name
    others = ("onnx/model.safetensors", "flax_model.msgpack", "consolidated.safetensors", "tf_model.h5", hub.PICKLED)
    assert not [name for name in others for pattern in hub.FILES if fnmatch.fnmatchcase(name, pattern)]


def test_what_cannot_be_had_is_said_in_a_line_but_for_a_full_disk(monkeypatch, tmp_path):
    raised = []

    def snapshot_download(*_, **__):
        raise raised[-1]

    errors = stub(monkeypatch, snapshot_download)
    for kind, *words in [
        (errors.RepositoryNotFoundError, "no such model", "private"),
        (errors.GatedRepoError, "licence"),
        (errors.RevisionNotFoundError, "v7"),
        (errors.LocalEntryNotFoundError, "reached", "Error: no wire"),
        (RuntimeError, "RuntimeError: no wire."),
    ]:
        raised.append(kind("no wire\nand more"))
        checkpoints.refused("hf:somebody/small@v7", tmp_path / "made" / "run", "somebody/small", *words)
        assert not (tmp_path / "made").exists()
    raised.append(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(OSError, match="No space left"):
        hub.bring("somebody/small")


def test_a_folder_comes_before_the_hub_and_other_names_are_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hub.is_repository("runs/small") and hub.is_repository("a/b@refs/pr/1")
    (tmp_path / "runs" / "small").mkdir(parents=True)
    for name in ("runs/small", "/a/b", "./a", "../a", "a", "a/b/c", "a/b@", "", "a/b\n"):
        assert not hub.is_repository(name), name
    with pytest.raises(InputError, match="OWNER/NAME@REVISION.* 'a'"):
        hub.bring("a")


def test_the_package_is_asked_for_only_by_name(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr("builtins.__import__", _without_the_package)
    checkpoints.refused("hf:runs/gpt2", tmp_path / "run", "runs/gpt2", "pip install", "[hub]'")


_import = __import__


def _without_the_package(name, *arguments, **options):
    if name == "huggingface_hub":
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _import(name, *arguments, **options)


IMPORTS = """
import sys
from pathlib import Path
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError

for number, source in enumerate(sys.argv[1:]):
    try:
        print(import_checkpoint(f"hf:{source}", Path(f"run{number}"))["model"])
    except InputError as error:
        print(error)
"""


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("huggingface_hub") is None, reason="needs huggingface_hub")
def test_the_package_brings_a_model_from_a_hub_and_later_without_it(tmp_path):
    def imported(*sources, folder):
        (tmp_path / folder).mkdir()
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        settings = {**os.environ, "PYTHONPATH": paths, "HF_HOME": str(tmp_path / "cache"), "HF_ENDPOINT": address}
        words = [sys.executable, "-c", IMPORTS, *sources]
        options = {"cwd": tmp_path / folder, "env": settings, "capture_output": True, "text": True, "timeout": 600}
        done = subprocess.run(words, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    name = model_hub.OWNER_AND_NAME
    with model_hub.serving(checkpoints.FIXTURES / "gpt2") as (address, asked):
        found = imported(name, f"{name}@v7", "nobody/nothing", folder="online")
    assert found[:2] == ["gpt2", f"{name} cannot be downloaded: it has no revision v7."]
    assert found[2].startswith("nobody/nothing cannot be downloaded: the hub has no such model") and len(found) == 3
    assert f"revision: {COMMIT}" in (tmp_path / "online" / "run0" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert not [path for path in asked if "expected.json" in path]
    found = imported(name, "somebody/else", folder="offline")
    assert found[0] == "gpt2" and len(found) == 2
    assert found[1].startswith("somebody/else cannot be downloaded: the hub cannot be reached")
