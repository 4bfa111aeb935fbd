"""Data that change between the start of a run and its resume."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.tiny_runs import CONVOLUTIONS, train, write_labelled

from training.data import Pairs, ParallelData, load_data
from training.data.fingerprint import check_unchanged, save_fingerprint
from zoo.errors import InputError
from zoo.workdir import WorkDir

ADVICE = "Restore them, or resume with the changed data: --set data.changed=accept"


def _pairs(train=("a", "b"), val=("c",), target=str.upper):
    splits = {
        name: Pairs(list(lines), [target(line) for line in lines]) for name, lines in (("train", train), ("val", val))
    }
    return ParallelData(spec="text:x:a-b", tokenizer="chars", shared_vocabulary=True, load_split=splits.get)


def test_what_changed(tmp_path, subtests):
    many = tuple(map(str, range(5000)))
    for number, (changed, difference) in enumerate(
        (
            ({"train": ("a",)}, "train .* 2 .* 1"),
            ({"val": ("c", "d")}, "val .* 1 .* 2"),
            ({"train": ("b", "a")}, "train .*source and target"),
            ({"target": str.lower}, "train .*the target .*val"),
            ({"train": ("a", "bb"), "val": ()}, "source and target .*val .* 1 .* 0"),
            ({"train": (*many, "a")}, "train .*source and target"),
        )
    ):
        with subtests.test(difference):
            workdir = WorkDir(tmp_path / str(number))
            before = _pairs(train=(*many, "b")) if len(changed.get("train", ())) > 5000 else _pairs()
            save_fingerprint(workdir, before)
            check_unchanged(workdir, before, accept=False)
            with pytest.raises(InputError, match=re.escape(str(workdir.path))) as refusal:
                check_unchanged(workdir, _pairs(**changed), accept=False)
            assert re.search(difference, str(refusal.value)) and str(refusal.value).endswith(ADVICE)
            check_unchanged(workdir, _pairs(**changed), accept=True)
            check_unchanged(workdir, _pairs(**changed), accept=False)
            with pytest.raises(InputError, match=re.escape(str(workdir.path))):
                check_unchanged(workdir, before, accept=False)


def test_labels_that_came_and_went(tmp_path):
    spec, workdir = write_labelled(tmp_path / "data", sizes=(60, 5, 5)), WorkDir(tmp_path / "run")
    save_fingerprint(workdir, load_data(spec))
    for split in ("train", "val", "test"):
        path = tmp_path / "data" / f"{split}.tsv"
        path.write_text(path.read_text().replace("\tthing\n", "\tobject\n"))
    difference = "train .*'thing'.*'object'.*val .*'thing'.*'object'"
    with pytest.raises(InputError, match=difference):
        check_unchanged(workdir, load_data(spec), accept=False)


def test_a_damaged_fingerprint(tmp_path):
    for content in ("", "{", "[]", "{}", '{"train": 1, "val": 2}', '{"train": {"examples": 2}}'):
        workdir = WorkDir(tmp_path)
        workdir.write_text(workdir.data, content)
        with pytest.raises(InputError, match=f"{re.escape(str(workdir.data))} is damaged"):
            check_unchanged(workdir, _pairs(), accept=False)
        check_unchanged(workdir, _pairs(), accept=True)
        check_unchanged(workdir, _pairs(), accept=False)


def test_a_run_without_fingerprint_gets_one(tmp_path):
    workdir = WorkDir(tmp_path)
    check_unchanged(workdir, _pairs(), accept=False)
    with pytest.raises(InputError, match="train .* 2 .* 1"):
        check_unchanged(workdir, _pairs(train=("a",)), accept=False)


def _state(run: Path) -> dict:
    with np.load(sorted((run / "checkpoints").glob("*.npz"))[-1]) as arrays:
        return json.loads(str(arrays["state"]))


@pytest.mark.nightly
def test_resuming_with_other_data(tmp_path, capsys):
    spec, run = write_labelled(tmp_path / "data", sizes=(60, 9, 5)), tmp_path / "run"
    settings = [*CONVOLUTIONS, "training.max_steps=4", "training.eval_every=2", "training.patience=1"]
    assert train("cnn_classifier", spec, run, "--set", *settings) == 0
    before = _state(run)
    val = tmp_path / "data" / "val.tsv"
    val.write_text(val.read_text().replace("sees", "eats"))
    capsys.readouterr()
    longer = ["--resume", "--set", "training.max_steps=6"]
    assert train("cnn_classifier", spec, run, *longer) == 2
    error = capsys.readouterr().err
    assert f"{spec} have changed" in error and f"{run} " in error and "val" in error
    assert error.endswith(f"{ADVICE}\n") and "texts changed" in error
    assert train("cnn_classifier", spec, run, *longer, "data.changed=accept") == 0
    assert "but training.max_steps=6, but data.changed=accept" in capsys.readouterr().err
    # The best round so far was of other data: patience and the choice of weights begin anew.
    assert _state(run)["best_round"] == 3 and _state(run)["best"] != before["best"]
    config = json.loads((run / "config.json").read_text())
    assert config["changes"] == [{"step": 4, "training.max_steps": 6, "data.changed": "accept"}]
    card = (run / "MODEL_CARD.md").read_text()
    assert "After step 4 it was resumed with training.max_steps=6, data.changed=accept" in card
    write_labelled(tmp_path / "data", seed=1, sizes=(60, 9, 5))
    assert train("cnn_classifier", spec, run, "--resume", "--set", "training.max_steps=8") == 2
