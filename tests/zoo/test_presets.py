"""The presets: there, small, undamaged, and as good as their cards say."""

import functools
import json
import re
import shutil

import pytest

import zoo
from training.presets import LARGEST, RECIPES
from zoo import presets
from zoo.errors import InputError
from zoo.workdir import CHECKSUMS


@functools.cache
def loaded(name):
    return zoo.load(f"preset:{name}")


def test_one_for_each_task():
    assert zoo.list_presets() == sorted(RECIPES)
    tasks = {loaded(name).spec.task for name in zoo.list_presets()}
    assert tasks == {"seq2seq", "classifier", "language_model"}


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_files(name):
    folder = presets.preset_path(name)
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= LARGEST
    assert {"config.json", "model.keras", "MODEL_CARD.md", CHECKSUMS} <= set(sizes)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (config["model"]["name"], config["data"]["spec"]) == (RECIPES[name].model, RECIPES[name].spec)


def test_dates():
    run = loaded("dates_rnnsearch")
    texts = ["August 23, 2025", "24 марта 1931 г.", "2093年7月24日"]
    assert run.translate(texts) == ["2025-08-23", "1931-03-24", "2093-07-24"]


def test_sums():
    run = loaded("sums_causal_lm_tiny")
    assert run.generate(["17+25=", "8+9="]) == ["42", "17"]


def test_unknown():
    with pytest.raises(InputError, match="Unknown preset 'dates_rnsearch'. Did you mean dates_rnnsearch"):
        zoo.load("preset:dates_rnsearch")


def test_damaged(tmp_path, monkeypatch):
    shutil.copytree(presets.preset_path("dates_rnnsearch"), tmp_path / "dates_rnnsearch")
    monkeypatch.setattr(presets, "FOLDER", tmp_path)
    (tmp_path / "dates_rnnsearch" / "model.keras").write_bytes(b"other")
    message = "The preset 'dates_rnnsearch' is damaged: model.keras. Install the package again."
    with pytest.raises(InputError, match=re.escape(message)):
        zoo.load("preset:dates_rnnsearch")
